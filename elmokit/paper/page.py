"""The page that walks through the paper claim by claim, generated from the file of runs alone."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from elmokit.paper.arms import BASELINE, ELMO
from elmokit.paper.claims import CLAIMS, Claim
from elmokit.paper.plan import ABLATED, SENSES, TAGS
from elmokit.paper.results import Results
from elmokit.paper.statistics import FAILS, HOLDS, NOT_RUN, OPEN, judge, judge_alike, show_difference
from elmokit.paper.tables import (
    as_table,
    show_arms,
    show_fractions,
    show_layers,
    show_mixes,
    show_neighbors,
    show_table1,
    show_test_sets,
    show_updates,
)

INTRODUCTION = """\
Every table and figure of Peters et al. 2018, re-run on free data with a small biLM. The paper's datasets are not free,
and its models are larger: **no number here is comparable with one of the paper's.** What can be compared is the
direction of each difference.

- **Arms** of a row differ in what their names say and in nothing else. They are paired by seed: the same training
  examples, batches and order. The best weights are selected on the dev set. The test set is read once.
- **Scores** are in percent: mean ± standard deviation (number of seeds). Tables 2, 3 and 7 and Figure 1 are of dev
  scores, as in the paper.
- **A claim holds** if the mean of the paired differences exceeds two standard errors. Evaluations without a seed have
  the binomial standard error over their test instances. A claim that two sides do not differ holds if the mean is
  within two standard errors. One seed decides nothing.
- **Cut** to fit in 20 hours of two cores: the training data (SNLI 12,000 of 549,367 pairs, SQuAD 4,000 of 87,599
  questions, SRL 8,000 of 31,126 predicates, SST 30,000 of 93,703 phrases, WNUT-17 2,500 of 3,394 sentences, parsing
  6,000 of 12,517 trees) and the sizes of the models. Runs end by patience. The untrained biLM, whose width equals that
  of ELMo, is in Table 1, and in Figure 1 at 10 % only.
- `elmokit reproduce all --plan` prints the plan, `elmokit reproduce all` makes what is missing and writes this page.
  Every run with its dev curve and mix weights is in [{runs}]({runs})."""

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

Sections = Sequence[tuple[str, str, Callable[[Results], str]]]
SECTIONS: Sections = (
    ("table1", "Table 1: six tasks, and parsing", show_table1),
    (
        "table2",
        "Table 2: weighting of the layers",
        lambda results: (
            show_arms(results, ABLATED, [BASELINE, "last", "lambda-1", "lambda-0.001"], PAPER2)
            + "\n\nCoVe, and gamma:\n\n"
            + show_arms(results, ["snli", "srl"], ["cove-last", "cove", "last-no-gamma"], PAPER2)
            + "\n\nNER:\n\n"
            + show_arms(results, ["ner-wikigold"], ["last", "lambda-1", "lambda-0.001"], {})
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
        lambda results: f"{show_layers(results, SENSES)}\n\n{show_test_sets(results)}",
    ),
    ("table6", "Table 6: parts of speech", lambda results: show_layers(results, TAGS)),
    (
        "table7",
        "Table 7: sub-word information",
        lambda results: show_arms(results, ABLATED, [BASELINE, "type", "elmo-alone", ELMO], PAPER7),
    ),
    (
        "figure1",
        "Figure 1: less training data",
        lambda results: f"{show_fractions(results)}\n\n{show_updates(results)}",
    ),
    ("figure2", "Figure 2: trained weights of the layers", show_mixes),
)


def make_page(results: Results, *, runs_file: str, figures: Mapping[str, str]) -> str:
    """Return the page. ``figures`` are the pictures by the names of their sections."""
    verdicts = Counter(verdict for section in CLAIMS for verdict in section_verdicts(section, results))
    parts = ["# The paper, claim by claim", INTRODUCTION.format(runs=runs_file), _facts(results), _summary(verdicts)]
    for name, title, show in SECTIONS:
        parts += [f"## {title}", claims_table(name, results)]
        if name in figures:
            parts.append(f"![{title}]({figures[name]})")
        parts.append(show(results))
    return "\n\n".join(parts) + "\n"


def claims_table(section: str, results: Results) -> str:
    """Return the claims of a section with the paper's numbers, ours, and the verdicts."""
    rows = []
    for claim in CLAIMS[section]:
        for number, (comparison, paper) in enumerate(claim.tests):
            text = claim.text if number == 0 else ""
            ours = show_difference(comparison.difference(results))
            rows.append([text, comparison.title(), paper, ours, _verdict(claim, number, results)])
    return as_table(["claim", "comparison", "paper", "our difference", "verdict"], rows)


def section_verdicts(section: str, results: Results) -> list[str]:
    """Return the verdict on every comparison of a section."""
    return [_verdict(claim, number, results) for claim in CLAIMS[section] for number in range(len(claim.tests))]


def _verdict(claim: Claim, number: int, results: Results) -> str:
    difference = claim.tests[number][0].difference(results)
    return (judge_alike if claim.is_alike else judge)([difference])


def _summary(verdicts: Mapping[str, int]) -> str:
    return (
        f"Of {sum(verdicts.values())} comparisons {verdicts[HOLDS]} hold, {verdicts[FAILS]} do not, "
        f"{verdicts[OPEN]} are open with one seed, and {verdicts[NOT_RUN]} are not run yet."
    )


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
