"""Summary of Table 1: means over seeds, error reductions, a page of Markdown, every run as JSON.

A mean over fewer seeds than requested is always shown with their number.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev

from elmokit.analysis.datasets import DataSet
from elmokit.analysis.table1 import ARMS, BASELINE, ELMO, FinishedRun, read_inputs, read_run, run_folder
from elmokit.errors import InputError
from elmokit.tasks.progress import Finished

Key = tuple[str, str, int]
"""Name of the dataset, arm, seed."""
Results = Mapping[Key, Finished]
Runs = Mapping[Key, FinishedRun]

NOTHING = "-"
ARM_TITLES = {"baseline": "baseline", "untrained": "+ untrained", "elmo": "+ ELMo"}
INTRODUCTION = """\
The setup of Table 1 of Peters et al. 2018. The paper's datasets are not free, and these replace them: no number here is
comparable with one of the paper's.

The three arms of a row have the same recipe, data and seeds, and differ in ELMo alone: no ELMo; an untrained biLM of
the same shape (another one for every seed), which shows the effect of width alone; ELMo. A seed gives all arms the same
batches in the same order. Weights and dropout are drawn one after the other: the two arms with a biLM have the same
shapes and start with the same weights, the narrower baseline with others.

The best weights are selected on dev, and test is read once. Scores are in percent, with the standard deviation over the
seeds; where some seeds are not finished, n is the number of those that are. The error reduction is the share of the
baseline's distance to 100 that ELMo removes. Seconds are wall-clock time, with whatever else ran on the machine.
Wikigold and SQuAD are texts of Wikipedia: a biLM trained on Wikipedia may have seen them, though not their labels."""


def read_runs(run_dir: Path, datasets: Sequence[DataSet], *, num_seeds: int) -> Runs:
    """Return the finished runs of a table."""
    read_inputs(run_dir)  # rejects a folder without a table
    runs: dict[Key, FinishedRun] = {}
    for dataset in datasets:
        of_row: dict[Path, FinishedRun] = {}
        for arm in ARMS:
            for seed in range(num_seeds):
                folder = run_folder(run_dir, dataset, arm, seed)
                run = read_run(folder)
                if run is not None:
                    runs[dataset.name, arm, seed] = of_row[folder] = run
        _check_alike(of_row)
    return runs


def scores_of(runs: Runs) -> Results:
    """Return the results without metadata, as the table of scores needs them."""
    return {key: run.finished for key, run in runs.items()}


def row_cells(dataset: DataSet, results: Results, *, num_seeds: int) -> list[str]:
    """Return the test scores of the three arms, and the error reduction."""
    scores = {arm: arm_scores(dataset, arm, results) for arm in ARMS}
    cells = [summarize(scores[arm], num_seeds=num_seeds) for arm in ARMS]
    return [*cells, error_reduction(scores[BASELINE], scores[ELMO], num_seeds=num_seeds)]


def arm_scores(dataset: DataSet, arm: str, results: Results, *, on_dev: bool = False) -> dict[int, float]:
    """Return the score of every finished seed."""
    found = {seed: one for (name, its_arm, seed), one in results.items() if (name, its_arm) == (dataset.name, arm)}
    parts = {seed: one.dev if on_dev else one.test for seed, one in found.items()}
    return {seed: part[dataset.metric] for seed, part in sorted(parts.items()) if part is not None}


def summarize(scores: Mapping[int, float], *, num_seeds: int) -> str:
    """Return mean and standard deviation: ``61.20 ± 0.35``; with the number of seeds if some are missing."""
    if not scores:
        return NOTHING
    percents = [100 * score for score in scores.values()]
    spread = f" ± {stdev(percents):.2f}" if len(percents) > 1 else ""
    return f"{mean(percents):.2f}{spread}{_if_fewer(len(percents), num_seeds)}"


def error_reduction(baseline: Mapping[int, float], elmo: Mapping[int, float], *, num_seeds: int) -> str:
    """Return the share of the baseline's error that ELMo removes, over the seeds that both have."""
    seeds = baseline.keys() & elmo.keys()
    if not seeds:
        return NOTHING
    before, after = (mean(scores[seed] for seed in seeds) for scores in (baseline, elmo))
    if before == 1:
        return NOTHING
    return f"{(after - before) / (1 - before):.1%}{_if_fewer(len(seeds), num_seeds)}"


def verdict(datasets: Sequence[DataSet], results: Results) -> str:
    """Return in words which rows ELMo does not improve, and the time of all runs."""
    compared, below = [], []
    for dataset in datasets:
        before, after = (arm_scores(dataset, arm, results) for arm in (BASELINE, ELMO))
        seeds = before.keys() & after.keys()
        if seeds:
            compared.append(dataset.title)
            if mean(after[seed] for seed in seeds) <= mean(before[seed] for seed in seeds):
                below.append(dataset.title)
    found = f"With ELMo {len(compared) - len(below)} of {len(compared)} rows are above their baselines on average"
    found += f"; not above: {', '.join(below)}." if below else "."
    hours = sum(one.seconds for one in results.values()) / 3600
    return f"{found} The {len(results)} finished runs trained for {hours:.1f} hours in total."


def to_markdown(
    run_dir: Path,
    datasets: Sequence[DataSet],
    runs: Runs,
    *,
    num_seeds: int,
    facts: Mapping[str, str],
    notes: Sequence[str],
    runs_file: str,
) -> str:
    """Return the table as a page. ``facts`` are of this machine and command; ``runs_file`` has `to_json_lines`."""
    inputs, results = read_inputs(run_dir), scores_of(runs)
    of_runs = [runs[key].facts for key in _in_order(datasets, runs)]
    facts = {
        **facts,
        **{
            name: _distinct(getattr(one, name) for one in of_runs) or facts[name]
            for name in ("machine", "versions", "kernels", "commit", "date")
        },
        "seeds": ", ".join(map(str, range(num_seeds))),
        **{name: inputs[name] for name in ("biLM", "static vectors") if name in inputs},
    }
    parts = [
        "# The six tasks, with and without ELMo",
        INTRODUCTION,
        *notes,
        f"Every run with its recipe is in [{runs_file}]({runs_file}).",
        "\n".join(f"- {name}: {value}" for name, value in facts.items()),
        _scores_table(datasets, results, num_seeds=num_seeds),
        verdict(datasets, results),
        "## Data",
        _data_table(datasets, runs, inputs),
        "## Runs",
        _runs_table(datasets, runs, num_seeds=num_seeds),
    ]
    return "\n\n".join(parts) + "\n"


def to_json_lines(run_dir: Path, datasets: Sequence[DataSet], runs: Runs) -> str:
    """Return the inputs of the table, then every finished run, as one JSON object per line; paths are cut to names."""
    lines: list[dict[str, object]] = [{"inputs": read_inputs(run_dir)}]
    for name, arm, seed in _in_order(datasets, runs):
        run = runs[name, arm, seed]
        result = deepcopy(run.result)
        for part, key in (("words", "file"), ("elmo", "model")):
            if result["recipe"][part][key] is not None:
                result["recipe"][part][key] = Path(result["recipe"][part][key]).name
        lines.append({"row": name, "arm": arm, "seed": seed, "facts": asdict(run.facts), "result": result})
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def _scores_table(datasets: Sequence[DataSet], results: Results, *, num_seeds: int) -> str:
    headings = ["task", "data", "metric", *ARM_TITLES.values(), "error reduction"]
    return as_table(
        headings, ([one.task, one.title, one.metric, *row_cells(one, results, num_seeds=num_seeds)] for one in datasets)
    )


def _data_table(datasets: Sequence[DataSet], runs: Runs, inputs: Mapping[str, str]) -> str:
    rows = []
    for dataset in datasets:
        facts = [runs[key].facts for key in _in_order([dataset], runs)]
        sizes = {(one.num_train, one.num_dev, one.num_test) for one in facts}
        counts = [_distinct(f"{number:,}" for number in numbers) for numbers in zip(*sorted(sizes), strict=True)]
        files = inputs.get(f"data of {dataset.name}", NOTHING)
        rows.append([dataset.title, dataset.split, *(counts or [NOTHING] * 3), files])
    return as_table(["data", "split", "train", "dev", "test", "files"], rows)


def _runs_table(datasets: Sequence[DataSet], runs: Runs, *, num_seeds: int) -> str:
    results, rows = scores_of(runs), []
    for dataset in datasets:
        for arm in ARMS:
            of_arm = [runs[key] for key in _in_order([dataset], runs) if key[1] == arm]
            parameters = _distinct(f"{run.facts.num_parameters:,}" for run in of_arm)
            dev = summarize(arm_scores(dataset, arm, results, on_dev=True), num_seeds=num_seeds)
            each = ", ".join(f"{100 * score:.2f}" for score in arm_scores(dataset, arm, results).values())
            seconds = f"{mean(run.finished.seconds for run in of_arm):,.0f}" if of_arm else NOTHING
            rows.append([dataset.title, ARM_TITLES[arm], parameters or NOTHING, dev, each or NOTHING, seconds])
    return as_table(["data", "arm", "trained parameters", "dev", "test, each seed", "seconds of training"], rows)


def _in_order(datasets: Sequence[DataSet], runs: Runs) -> list[Key]:
    """Return the keys of the finished runs in the table's order."""
    keys = sorted(runs, key=lambda key: (ARMS.index(key[1]), key[2]))
    return [key for dataset in datasets for key in keys if key[0] == dataset.name]


def _check_alike(runs: Mapping[Path, FinishedRun]) -> None:
    """Reject runs of a row, by their folders, that differ in more than the seed and whether ELMo was trained."""
    firsts: dict[bool | None, tuple[Path, dict[str, object]]] = {}
    for folder, run in runs.items():
        recipe = deepcopy(run.result["recipe"])
        elmo, reads_elmo = recipe["elmo"], recipe["elmo"]["place"] != "none"
        del recipe["training"]["seed"], elmo["model"], elmo["untrained"], recipe["words"]["file"]
        for kind, compared in ((reads_elmo, recipe), (None, {**recipe, "elmo": None})):
            first, expected = firsts.setdefault(kind, (folder, compared))
            if compared != expected:
                raise InputError(
                    f"{folder}: has another recipe than {first}, so the two cannot be compared; "
                    "remove the older ones, and run the table again without --only-print"
                )


def _if_fewer(num_found: int, num_seeds: int) -> str:
    return "" if num_found == num_seeds else f" (n={num_found})"


def _distinct(values: Iterable[str]) -> str:
    """Return each value once, in the order of first occurrence."""
    return "; ".join(dict.fromkeys(values))


def as_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
