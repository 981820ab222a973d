"""The page that walks through the paper claim by claim, generated from the file of runs alone."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from elmokit.analysis.datasets import find_dataset
from elmokit.paper.arms import BASELINE, ELMO, TUNED
from elmokit.paper.claims import CLAIMS, Claim
from elmokit.paper.plan import ABLATED, BUDGETED, SENSES, TAGS, TASK, PaperRun
from elmokit.paper.results import Results
from elmokit.paper.run_file import RunRecord
from elmokit.paper.settings import Recipes
from elmokit.paper.statistics import FAILS, HOLDS, NOT_RUN, OPEN, judge, show_difference
from elmokit.paper.table1 import show_table1
from elmokit.paper.tables import (
    as_table,
    join_parts,
    show_arms,
    show_fractions,
    show_layers,
    show_mixes,
    show_neighbors,
    show_perplexities,
    show_signals,
    show_test_sets,
    show_trained_encoders,
    show_updates,
    titled,
)

INTRODUCTION = """\
The tables and figures of Peters et al. 2018, re-run on free data with {elmo}. The paper's datasets are not free, and
its models are larger: **no number here is comparable with one of the paper's.** Only the direction of a difference is.
The exception is Table 5, whose data are the paper's; only the biLM differs.

- **Arms** of a row differ in one setting, which their name states. Runs are paired by seed: both arms see the same
  training examples in the same batches. The best weights are selected on the dev set. The test set is evaluated once.
- **Scores** are percentages: mean ± standard deviation (number of seeds). Tables 2, 3 and 7 and Figure 1 report dev
  scores, as in the paper.
- **A claim holds** if the mean paired difference exceeds two standard errors. It *does not hold here* if two standard
  errors exclude a gain of a point. It is *open* in between: the seeds are too few, or the runs too noisy. A claim of no
  difference holds if the difference is below a point, two standard errors included, and one of *as good as* if a loss
  of a point is excluded. Evaluations without a seed are paired by test instance. One seed decides nothing.
- **Training data are subsampled** to fit in 20 hours of two cores: {cuts}. The task models are smaller than the paper's
  too: `recipes/reproduce` has all sizes. {ends} The untrained biLM, a control of the same width as ELMo, is in Table
  1, and in Figure 1 at 10 % only. A tuned biLM has read the whole training text of its task, without labels.
{overlap}- `elmokit reproduce all --plan` prints the plan; `elmokit reproduce all` makes the missing runs and this page.
  [{runs}]({runs}) has every run with its dev curve and mix weights."""

OVERLAPS = {
    "en-small": """\
- **SQuAD's paragraphs are Wikipedia's**: `en-small` has read half of the test sentences
  ([tasks-overlap.md](tasks-overlap.md)). Its gain was as large on the examples that it had not read.
"""
}
"""Remarks on test sets that a biLM has read, by its name."""
TRAINING_DATA = {
    "snli": (549_367, "pairs"),
    "squad": (87_599, "questions"),
    "srl": (31_126, "predicates"),
    "sst": (93_703, "phrases"),
    "ner-wnut17": (3_394, "sentences"),
    "parse": (12_517, "trees"),
}
"""Size of the published training data, of rows that use a part."""
PAPER2 = {
    BASELINE: {"squad": "80.8", "snli": "88.1", "srl": "81.6"},
    "last": {"squad": "84.7", "snli": "89.1", "srl": "84.1"},
    "lambda-1": {"squad": "85.0", "snli": "89.3", "srl": "84.6"},
    "lambda-0.001": {"squad": "85.2", "snli": "89.5", "srl": "84.8"},
    "cove-last": {"snli": "88.2", "srl": "82.1"},
    "cove": {"snli": "88.7", "srl": "82.2"},
    "last-no-gamma": {"srl": "failed"},
}
PAPER3 = {
    "input": {"squad": "85.1", "snli": "88.9", "srl": "84.7"},
    "both": {"squad": "85.6", "snli": "89.5", "srl": "84.3"},
    "output": {"squad": "84.8", "snli": "88.7", "srl": "80.9"},
}
PAPER7 = {
    BASELINE: {"squad": "80.8", "snli": "88.1", "srl": "81.6"},
    "type": {"squad": "81.4", "snli": "88.5", "srl": "81.7"},
    "elmo-alone": {"squad": "85.3", "snli": "89.1", "srl": "84.5"},
    ELMO: {"squad": "85.6", "snli": "89.5", "srl": "84.7"},
}

VERDICTS = (HOLDS, FAILS, OPEN, NOT_RUN)
Sections = Sequence[tuple[str, str, Callable[[Results], str]]]
SECTIONS: Sections = (
    ("table1", "Table 1: six tasks, and parsing", show_table1),
    (
        "table2",
        "Table 2: weighting of the layers",
        lambda results: join_parts(
            [
                show_arms(results, ABLATED, [BASELINE, "last", "lambda-1", "lambda-0.001"], PAPER2),
                titled(
                    "CoVe, and gamma",
                    show_arms(results, ["snli", "srl"], ["cove-last", "cove", "last-no-gamma"], PAPER2),
                ),
                titled(
                    "NER, test scores",
                    show_arms(results, ["ner-wikigold"], ["last", "lambda-1", "lambda-0.001", ELMO], {}, part="test"),
                ),
            ]
        ),
    ),
    (
        "table3",
        "Table 3: places of ELMo",
        lambda results: show_arms(results, [*ABLATED, "coref"], ["input", "both", "output"], PAPER3),
    ),
    ("table4", "Table 4: neighbors of *play* in SemCor", show_neighbors),
    (
        "table5",
        "Table 5: word senses",
        lambda results: join_parts(
            [show_layers(results, SENSES), show_test_sets(results), show_trained_encoders(results)]
        ),
    ),
    (
        "table6",
        "Table 6: parts of speech",
        lambda results: join_parts(
            [show_layers(results, TAGS), titled("Other signals in the biLM's layers", show_signals(results))]
        ),
    ),
    (
        "table7",
        "Table 7: sub-word information",
        lambda results: show_arms(results, ABLATED, [BASELINE, "type", "elmo-alone", ELMO], PAPER7),
    ),
    (
        "figure1",
        "Figure 1: less training data",
        lambda results: join_parts(
            [
                show_fractions(results),
                titled("Updates that ELMo needs to reach the baseline's best dev score", show_updates(results)),
            ]
        ),
    ),
    ("figure2", "Figure 2: trained weights of the layers", show_mixes),
    ("questions", "Open questions", lambda results: _show_questions(results)),
)


def make_page(results: Results, *, runs_file: str, figures: Mapping[str, str]) -> str:
    """Return the page. ``figures`` are the pictures by the names of their sections."""
    introduction = INTRODUCTION.format(
        elmo=f"`{results.elmo}`" if results.elmo else "a small biLM",
        runs=runs_file,
        cuts=_show_cuts(results.recipes),
        ends=_show_ends(results),
        overlap=OVERLAPS.get(results.elmo, ""),
    )
    parts = ["# The paper, claim by claim", introduction, _facts(results), _summary(results)]
    for name, title, show in SECTIONS:
        parts += [f"## {title}", claims_table(name, results)]
        if name in figures:
            parts.append(f"![{title}]({figures[name]})")
        parts.append(show(results))
    return join_parts(parts) + "\n"


def claims_table(section: str, results: Results) -> str:
    """Return the claims of a section with the paper's numbers, ours, and the verdicts; in a line those not run."""
    rows: list[list[str]] = []
    others: list[str] = []
    for claim in CLAIMS[section]:
        missing = []
        for number, (comparison, paper) in enumerate(claim.tests):
            difference = comparison.difference(results)
            if difference is None:
                missing.append(comparison.title().partition(":")[0])
                continue
            is_first = not any(row[0] == claim.text for row in rows)
            verdict = _verdict(claim, number, results)
            rows.append(
                [claim.text if is_first else "", comparison.title(), paper, show_difference(difference), verdict]
            )
        if missing:
            others.append(f"{claim.text.rstrip('.')} ({'; '.join(dict.fromkeys(missing))}).")
    table = as_table(["claim", "comparison", "paper", "our difference", "verdict"], rows) if rows else ""
    return join_parts([table, f"Claims without runs: {' '.join(others)}" if others else ""])


def section_verdicts(section: str, results: Results) -> list[str]:
    """Return the verdict on every comparison of a section."""
    return [_verdict(claim, number, results) for claim in CLAIMS[section] for number in range(len(claim.tests))]


def _verdict(claim: Claim, number: int, results: Results) -> str:
    return judge(claim.tests[number][0].difference(results), claim.expected)


def _summary(results: Results) -> str:
    """Return the number of verdicts of each kind, in total and per section."""
    counts = {name: Counter(section_verdicts(name, results)) for name, _, _ in SECTIONS}
    total = sum(counts.values(), Counter())
    rows = [
        [f"[{title}](#{_anchor(title)})", *(str(counts[name][verdict]) for verdict in VERDICTS)]
        for name, title, _ in SECTIONS
    ]
    sentence = (
        f"Of {total.total()} comparisons {total[HOLDS]} hold, {total[FAILS]} do not, {total[OPEN]} are open (one seed, "
        f"or too noisy), and {total[NOT_RUN]} are not run yet."
    )
    return f"{sentence}\n\n{as_table(['section', *VERDICTS], rows)}"


def _anchor(title: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")


def _show_questions(results: Results) -> str:
    budget = "Language models of one size, trained on the same 20 million tokens"
    return join_parts(
        [
            titled(
                "Mixes of the layers, dev scores",
                show_arms(results, ["ner-wikigold", "sst"], [ELMO, "dimension", "gated"], {}),
            ),
            titled(
                "Places, chosen by hand or by a trained gate, dev scores",
                show_arms(results, ["snli"], ["input", "output", "both", "gate"], {}),
            ),
            titled(
                "Gradients into the biLM, dev scores",
                show_arms(results, ["ner-wikigold"], [BASELINE, ELMO, TUNED, "trained"], {}),
            ),
            titled(f"{budget}: perplexity of Wikigold", show_perplexities(results)),
            titled(f"{budget}: dev scores", show_arms(results, ["ner-wikigold"], list(BUDGETED), {})),
            titled(f"{budget}: word senses", show_layers(results, SENSES, BUDGETED)),
            titled(f"{budget}: parts of speech", show_layers(results, TAGS, BUDGETED)),
        ]
    )


def _show_cuts(recipes: Recipes) -> str:
    """Return the parts of the training data that are used, in words."""
    parts = []
    for row, (total, unit) in TRAINING_DATA.items():
        training = recipes.recipe(PaperRun(TASK, row, BASELINE)).training
        part = f"{find_dataset(row).title} {training.max_examples or total:,} of {total:,} {unit}"
        limit = f" of at most {training.max_tokens} tokens" if training.max_tokens else ""
        parts.append(part + limit)
    return ", ".join(parts)


def _show_ends(results: Results) -> str:
    """Return how many runs were ended by patience, in words."""
    runs = [one for one in results.used if one.run.kind == TASK]
    patient = [one for one in runs if _is_ended_by_patience(one)]
    return f"Patience ended {len(patient)} of {len(runs)} runs; the others took all epochs of their recipe."


def _is_ended_by_patience(record: RunRecord) -> bool:
    since_best = sum(step > record.result["best_step"] for step, _ in record.result["dev_curve"])
    patience = record.settings["recipe"]["training"].get("patience")
    return patience is not None and since_best >= patience


def _facts(results: Results) -> str:
    used = results.used
    facts = {
        name: "; ".join(dict.fromkeys(str(record.facts[name]) for record in used)) for name in ("machine", "versions")
    }
    commits = dict.fromkeys(str(record.facts["commit"]) for record in used)
    dates = sorted(str(record.facts["date"]) for record in used)
    hours = sum(record.result["seconds"] for record in used) / 3600
    lines = {
        "biLM": results.elmo or NOT_RUN,
        **facts,
        "commits": ", ".join(commits),
        "dates": f"{dates[0]} to {dates[-1]}" if dates else "",
        "runs": f"{len(used)}, {hours:.1f} core hours",
    }
    return "\n".join(f"- {name}: {value or NOT_RUN}" for name, value in lines.items())
