"""The paper's claims as data: the claim, the comparisons that test it, and the paper's numbers (Peters et al. 2018).

``questions`` has answers to questions that the paper leaves open, stated as claims.
"""

from dataclasses import dataclass

from elmokit.paper.arms import BASELINE, ELMO, TUNED, UNTRAINED
from elmokit.paper.comparisons import (
    FIRST_SENSE,
    Arms,
    BestOf,
    Comparison,
    Ensemble,
    ErrorsRemoved,
    Favored,
    Gains,
    Layers,
    Probe,
    Steps,
    Updates,
    Weight,
)
from elmokit.paper.plan import NEIGHBORS, SENSES, TAGS
from elmokit.paper.statistics import Expected

NOT_GIVEN = "-"


@dataclass(frozen=True)
class Claim:
    """A claim and its tests: pairs of a comparison and the paper's two numbers, the claimed better one first."""

    text: str
    tests: tuple[tuple[Comparison, str], ...]
    expected: Expected = "better"
    """The relation that is claimed of the two sides."""


def _test(row: str, better: str, worse: str, paper: str = NOT_GIVEN) -> tuple[Comparison, str]:
    return Arms(row, better, worse, "test"), paper


def _dev(row: str, better: str, worse: str, paper: str = NOT_GIVEN) -> tuple[Comparison, str]:
    return Arms(row, better, worse), paper


ROWS = ("ner-wikigold", "ner-wnut17", "sst", "snli", "squad", "srl", "coref", "parse")

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "table1": (
        Claim(
            "ELMo improves every task.",
            (
                _test("squad", ELMO, BASELINE, "85.8, 81.1"),
                _test("snli", ELMO, BASELINE, "88.7, 88.0"),
                _test("srl", ELMO, BASELINE, "84.6, 81.4"),
                _test("coref", ELMO, BASELINE, "70.4, 67.2"),
                _test("ner-wikigold", ELMO, BASELINE, "92.22, 90.15"),
                _test("ner-wnut17", ELMO, BASELINE),
                _test("sst", ELMO, BASELINE, "54.7, 51.4"),
                _test("parse", ELMO, BASELINE),
            ),
        ),
        Claim(
            "The gain comes from what the biLM learned, not from wider inputs (our control).",
            tuple(_test(row, ELMO, UNTRAINED) for row in ROWS),
        ),
        Claim(
            "An ensemble is better than its members.",
            (
                (Ensemble("squad", ELMO), "87.4, 85.8"),
                (Ensemble("snli", ELMO), "89.3, 88.7"),
            ),
        ),
        Claim("ELMo removes a tenth of the parser's errors (our goal).", ((ErrorsRemoved("parse", 0.1), NOT_GIVEN),)),
        Claim("Tuning the biLM on SNLI's text helps.", (_dev("snli", TUNED, ELMO, "89.5, 88.9"),)),
        Claim("Tuning the biLM on SST's text makes no difference.", (_dev("sst", TUNED, ELMO),), expected="alike"),
        Claim(
            "CoVe improves on the baseline.",
            (_test("squad", "cove", BASELINE, "gain of 1.8"), _test("sst", "cove", BASELINE, "53.7, 51.4")),
        ),
        Claim(
            "ELMo gains more than CoVe.",
            (_test("squad", ELMO, "cove", "gains of 4.7, 1.8"), _test("sst", ELMO, "cove", "54.7, 53.7")),
        ),
    ),
    "table2": (
        Claim(
            "The last layer alone improves on the baseline.",
            (
                _dev("squad", "last", BASELINE, "84.7, 80.8"),
                _dev("snli", "last", BASELINE, "89.1, 88.1"),
                _dev("srl", "last", BASELINE, "84.1, 81.6"),
            ),
        ),
        Claim(
            "The mean of all layers is better than the last one.",
            (
                _dev("squad", "lambda-1", "last", "85.0, 84.7"),
                _dev("snli", "lambda-1", "last", "89.3, 89.1"),
                _dev("srl", "lambda-1", "last", "84.6, 84.1"),
            ),
        ),
        Claim(
            "Letting the task weight the layers (a small lambda) is better still.",
            (
                _dev("squad", "lambda-0.001", "lambda-1", "85.2, 85.0"),
                _dev("snli", "lambda-0.001", "lambda-1", "89.5, 89.3"),
                _dev("srl", "lambda-0.001", "lambda-1", "84.8, 84.6"),
            ),
        ),
        Claim(
            "CoVe improves on the baseline.",
            (_dev("snli", "cove", BASELINE, "88.7, 88.1"), _dev("srl", "cove", BASELINE, "82.2, 81.6")),
        ),
        Claim(
            "All layers of CoVe are better than its last one.",
            (_dev("snli", "cove", "cove-last", "88.7, 88.2"), _dev("srl", "cove", "cove-last", "82.2, 82.1")),
        ),
        Claim(
            "ELMo is better than CoVe.",
            (_dev("snli", ELMO, "cove", "89.5, 88.7"), _dev("srl", ELMO, "cove", "84.8, 82.2")),
        ),
        Claim("NER is insensitive to lambda.", (_dev("ner-wikigold", "lambda-0.001", "lambda-1"),), expected="alike"),
        Claim(
            "In NER all layers are better than the top one (TagLM).",
            (_test("ner-wikigold", ELMO, "last", "92.22, 91.93"),),
        ),
        Claim(
            "Gamma matters: without it the last layer alone is worse than the baseline.",
            (
                _dev("snli", BASELINE, "last-no-gamma", "far below"),
                _dev("srl", BASELINE, "last-no-gamma", "failed"),
                _dev("snli", "last", "last-no-gamma"),
                _dev("srl", "last", "last-no-gamma", "84.1, failed"),
            ),
        ),
    ),
    "table3": (
        Claim(
            "SQuAD and SNLI: both places are better than the input alone.",
            (_dev("squad", "both", "input", "85.6, 85.1"), _dev("snli", "both", "input", "89.5, 88.9")),
        ),
        Claim(
            "SQuAD and SNLI: both places are better than the output alone.",
            (_dev("squad", "both", "output", "85.6, 84.8"), _dev("snli", "both", "output", "89.5, 88.7")),
        ),
        Claim(
            "SRL and coreference: the input alone is best.",
            (
                _dev("srl", "input", "both", "84.7, 84.3"),
                _dev("srl", "input", "output", "84.7, 80.9"),
                _dev("coref", "input", "both", "about 0.7 apart"),
            ),
        ),
    ),
    "table4": (
        Claim(
            "The nearest neighbors of a word in context have its sense.",
            (
                (Layers(NEIGHBORS, ("bilm", 2), "chance"), NOT_GIVEN),
                (Layers(NEIGHBORS, ("bilm", 2), (UNTRAINED, 2)), NOT_GIVEN),
            ),
        ),
    ),
    "table5": (
        Claim(
            "The top layer encodes senses better than the first.",
            ((Layers(SENSES, ("bilm", 2), ("bilm", 1)), "69.0, 67.4"),),
        ),
        Claim(
            "The biLM's layers are better than WordNet's first sense.",
            (
                (Layers(SENSES, ("bilm", 2), FIRST_SENSE), "69.0, 65.9"),
                (Layers(SENSES, ("bilm", 1), FIRST_SENSE), "67.4, 65.9"),
            ),
        ),
        Claim(
            "The biLM's layers are better than CoVe's.",
            (
                (Layers(SENSES, ("bilm", 1), ("cove", 0)), "67.4, 59.4"),
                (Layers(SENSES, ("bilm", 2), ("cove", 1)), "69.0, 64.7"),
            ),
        ),
        Claim(
            "The top layer is better than vectors without context, or of an untrained biLM (our controls).",
            (
                (Layers(SENSES, ("bilm", 2), ("glove", 0)), NOT_GIVEN),
                (Layers(SENSES, ("bilm", 2), (UNTRAINED, 2)), NOT_GIVEN),
            ),
        ),
    ),
    "table6": (
        Claim(
            "The first layer encodes parts of speech better than the top one.",
            ((Layers(TAGS, ("bilm", 1), ("bilm", 2)), "97.3, 96.8"),),
        ),
        Claim(
            "The biLM's layers are better than CoVe's.",
            (
                (Layers(TAGS, ("bilm", 1), ("cove", 0)), "97.3, 93.3"),
                (Layers(TAGS, ("bilm", 2), ("cove", 1)), "96.8, 92.8"),
            ),
        ),
        Claim(
            "A linear classifier of the first layer is as good as a tagger that is trained for the task.",
            ((Probe("tag", BASELINE, 1), "97.3, 97.3 to 97.8"),),
            expected="no worse",
        ),
    ),
    "table7": (
        Claim(
            "ELMo's token layer in place of GloVe improves a little.",
            (
                _dev("squad", "type", BASELINE, "81.4, 80.8"),
                _dev("snli", "type", BASELINE, "88.5, 88.1"),
                _dev("srl", "type", BASELINE, "81.7, 81.6"),
            ),
        ),
        Claim(
            "The contextual layers improve much more.",
            (
                (Steps("squad", ("type", "elmo-alone"), (BASELINE, "type")), "gains of 3.9, 0.6"),
                (Steps("snli", ("type", "elmo-alone"), (BASELINE, "type")), "gains of 0.6, 0.4"),
                (Steps("srl", ("type", "elmo-alone"), (BASELINE, "type")), "gains of 2.8, 0.1"),
            ),
        ),
        Claim(
            "GloVe beside ELMo adds less than the contextual layers did.",
            (
                (Steps("squad", ("type", "elmo-alone"), ("elmo-alone", ELMO)), "gains of 3.9, 0.3"),
                (Steps("snli", ("type", "elmo-alone"), ("elmo-alone", ELMO)), "gains of 0.6, 0.4"),
                (Steps("srl", ("type", "elmo-alone"), ("elmo-alone", ELMO)), "gains of 2.8, 0.2"),
            ),
        ),
    ),
    "figure1": (
        Claim(
            "ELMo's gain is larger with less data.",
            tuple((Gains(row, fraction), NOT_GIVEN) for row in ("snli", "srl") for fraction in (0.1, 0.01, 0.001)),
        ),
        Claim(
            "SRL with ELMo on 1 % of the data is as good as the baseline on 10 %.",
            ((Arms("srl", ELMO, BASELINE, fraction=0.01, other_fraction=0.1), NOT_GIVEN),),
            expected="no worse",
        ),
        Claim(
            "ELMo reaches the baseline's best in fewer updates.",
            ((Updates("srl"), "98 % fewer"), (Updates("snli"), NOT_GIVEN)),
        ),
    ),
    "figure2": (
        Claim(
            "At the input, tasks favor the first LSTM layer.",
            tuple(
                (Favored(row, "input", 1), "the largest")
                for row in ("coref", "squad", "snli", "srl", "sst", "ner-wikigold")
            ),
        ),
        Claim(
            "At the output, lower layers have slightly more weight than the top one.",
            tuple((Weight(row, "output", 2), "below 1/3") for row in ("squad", "snli", "sst")),
        ),
    ),
    "questions": (
        Claim(
            "Weights per dimension or per token make no difference to one weight per layer (equation 1).",
            tuple(_dev(row, mix, ELMO) for row in ("ner-wikigold", "sst") for mix in ("dimension", "gated")),
            expected="alike",
        ),
        Claim(
            "A trained gate between the places is as good as the best place.",
            ((BestOf("snli", "gate", ("input", "both", "output")), NOT_GIVEN),),
            expected="no worse",
        ),
        Claim(
            "Training the biLM with the task is better than freezing it.",
            (_dev("ner-wikigold", "trained", ELMO), _dev("ner-wikigold", "trained", TUNED)),
        ),
        Claim(
            "Sharing the token layer and the softmax makes no difference to two separate models (TagLM).",
            (
                _dev("ner-wikigold", "shared", "taglm"),
                (Layers(SENSES, ("shared", 2), ("taglm", 2)), NOT_GIVEN),
                (Layers(TAGS, ("shared", 1), ("taglm", 1)), NOT_GIVEN),
            ),
            expected="alike",
        ),
        Claim(
            "Both directions are better than the forward one alone.",
            (
                _dev("ner-wikigold", "shared", "forward"),
                (Layers(SENSES, ("shared", 2), ("forward", 2)), NOT_GIVEN),
                (Layers(TAGS, ("shared", 1), ("forward", 1)), NOT_GIVEN),
            ),
        ),
        Claim(
            "Characters are a better input than word ids.",
            (
                _dev("ner-wikigold", "shared", "words"),
                (Layers(SENSES, ("shared", 2), ("words", 2)), NOT_GIVEN),
                (Layers(TAGS, ("shared", 1), ("words", 1)), NOT_GIVEN),
            ),
        ),
    ),
}
