"""Table 1 and what belongs to it: ensembles, tuned biLMs, perplexities, and the coverage of the static vectors."""

from collections.abc import Iterable, Mapping
from typing import Any

from elmokit.analysis.datasets import find_dataset
from elmokit.paper.arms import ARMS, BASELINE, ELMO, TUNED, UNTRAINED
from elmokit.paper.plan import (
    COVERAGE,
    ENSEMBLES,
    FIVE_SEEDS,
    PERPLEXITY,
    THREE_SEEDS,
    TUNED_ROWS,
    TUNING,
    UNTUNED_ROWS,
)
from elmokit.paper.results import Results
from elmokit.paper.statistics import NOT_RUN, error_reduction, show_scores
from elmokit.paper.tables import NOTHING, join_parts, run_table, show_arms, titled

PAPER1 = {
    "squad": ("84.4", "81.1", "85.8", "24.9 %"),
    "snli": ("88.6", "88.0", "88.7 ± 0.17", "5.8 %"),
    "srl": ("81.7", "81.4", "84.6", "17.2 %"),
    "coref": ("67.2", "67.2", "70.4", "9.8 %"),
    "ner-wikigold": ("91.93 ± 0.19", "90.15", "92.22 ± 0.10", "21 %"),
    "sst": ("53.7", "51.4", "54.7 ± 0.5", "6.8 %"),
}
"""The paper's Table 1: previous best, baseline, with ELMo, errors removed. Its NER data are CoNLL-2003."""
TABLE1_ENDS = ("errors removed", "paper: previous best", "paper: baseline", "paper: + ELMo", "paper: errors removed")
PAPER_ENSEMBLES = {"squad": "87.4 (11 models)", "snli": "89.3 (5 models; previous best 88.9)"}
COVE_ROWS, COVE_ARMS = ("squad", "sst"), (BASELINE, "cove", ELMO)
PAPER_PERPLEXITIES = {
    "ner-wikigold": "103.2, 46.3",
    "snli": "72.1, 16.8",
    "squad": "99.1, 43.5",
    "sst": "131.5, 78.6",
}
PAPER_QUESTIONS, PAPER_UNTUNED = "158.2, 52.0", "92.3"


def show_table1(results: Results) -> str:
    """Return the test scores of all tasks, the tuned biLMs' perplexities, the ensembles, and the coverage of GloVe."""
    rows = []
    for row in FIVE_SEEDS + THREE_SEEDS:
        arms = {arm: results.scores(row, arm, "test") for arm in (BASELINE, UNTRAINED, ELMO, TUNED)}
        cells = [show_scores(scores) for scores in arms.values()]
        if row not in TUNED_ROWS:
            cells[-1] = NOTHING
        removed = error_reduction(arms[BASELINE], arms[ELMO])
        dataset = find_dataset(row)
        ours = [*cells, NOTHING if removed is None else f"{removed:.1%}"]
        rows.append([dataset.task, dataset.title, dataset.metric, *ours, *PAPER1.get(row, [NOTHING] * 4)])
    headings = ["task", "data", "metric", *(ARMS[arm].title for arm in (BASELINE, UNTRAINED, ELMO, TUNED))]
    ensembles = run_table(
        ["data", "arm", "mean of the members", "ensemble", "paper"],
        _ensemble_rows(results),
        results=slice(3, 4),
        label=slice(2),
    )
    tuning = run_table(
        ["data", "before", "after", "paper, on its data"], _tuning_rows(results), results=slice(1, 3), label=slice(1)
    )
    coverage = run_table(
        ["data", "covered", "most frequent words without a vector"],
        _coverage_rows(results),
        results=slice(1, 2),
        label=slice(1),
    )
    return join_parts(
        [
            run_table([*headings, *TABLE1_ENDS], rows, results=slice(3, 7), label=slice(1, 2)),
            titled("CoVe in place of ELMo, test scores", show_arms(results, COVE_ROWS, COVE_ARMS, {}, part="test")),
            titled("Ensembles of the same runs, test scores", ensembles),
            titled("ELMo, tuned on the task's text, dev scores", show_arms(results, TUNED_ROWS, [ELMO, TUNED], {})),
            titled("Perplexity of the dev text, mean of both directions, before and after tuning", tuning),
            titled("Share of the tokens that have a static vector", coverage),
        ]
    )


def _ensemble_rows(results: Results) -> Iterable[list[str]]:
    for row, arms, _ in ENSEMBLES["table1"]:
        for arm in arms:
            found = results.ensemble(row, arm)
            score = NOT_RUN
            if found is not None:
                size, result = found
                score = f"{100 * result['test'][result['metric']]:.2f} ({size} models)"
            members = show_scores(results.scores(row, arm, "test"))
            paper = PAPER_ENSEMBLES[row] if arm == ELMO else NOTHING
            yield [find_dataset(row).title, ARMS[arm].title, members, score, paper]


def _tuning_rows(results: Results) -> Iterable[list[str]]:
    for row in TUNED_ROWS:
        found = results.evaluation(TUNING, row, "bilm")
        yield [find_dataset(row).title, *_before_and_after(found), PAPER_PERPLEXITIES.get(row, NOTHING)]
        if row == "squad":
            questions = None if found is None else found["questions"]
            yield [f"{find_dataset(row).title}: questions", *_before_and_after(questions), PAPER_QUESTIONS]
    for row in UNTUNED_ROWS:
        measured = results.evaluation(PERPLEXITY, row, "bilm")
        before = NOT_RUN if measured is None else f"{(measured['forward'] + measured['backward']) / 2:.1f}"
        yield [find_dataset(row).title, before, NOTHING, PAPER_UNTUNED]


def _before_and_after(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return [NOT_RUN] * 2
    return [f"{found[when]['perplexity']:.1f}" if when in found else NOTHING for when in ("before", "after")]


def _coverage_rows(results: Results) -> Iterable[list[str]]:
    for row in FIVE_SEEDS + THREE_SEEDS:
        found = results.evaluation(COVERAGE, row, "glove")
        cells = [NOT_RUN, NOTHING]
        if found is not None:
            words = " ".join(f"`{word}`" for word in found["missing"]).replace("|", "\\|")
            cells = [f"{found['num_covered'] / found['num_tokens']:.1%} of {found['num_tokens']:,}", words]
        yield [find_dataset(row).title, *cells]
