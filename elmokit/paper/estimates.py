"""Time that the runs of a plan take, from finished runs where there are any, else from measured steps."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import mean

from elmokit.paper.arms import BASELINE
from elmokit.paper.plan import ENSEMBLE, TASK, TUNING, PaperRun
from elmokit.paper.run_file import RunRecord
from elmokit.paper.settings import Recipes


@dataclass(frozen=True)
class Measured:
    """Size of a row's training data, and seconds per step of its recipe, with the evaluations, on one core."""

    num_train: int
    baseline: float
    with_elmo: float


# From the runs of results/tasks-runs.jsonl (AMD EPYC, one thread). Those had ELMo at one place; two places take 1.5
# times as long in SNLI, which has the widest outputs. Those of
# parse and tag are guesses.
MEASURED = {
    "ner-wikigold": Measured(946, 0.076, 0.108),
    "ner-wnut17": Measured(3_394, 0.075, 0.100),
    "sst": Measured(93_703, 0.076, 0.120),
    "snli": Measured(100_000, 0.098, 0.190),
    "squad": Measured(8_277, 0.387, 0.550),
    "srl": Measured(31_126, 0.089, 0.136),
    "coref": Measured(80, 0.267, 0.288),
    "parse": Measured(12_000, 0.300, 0.350),
    "tag": Measured(12_544, 0.120, 0.150),
}
OTHERS = {
    TUNING: 180.0,
    "coverage": 10.0,
    "perplexity": 30.0,
    "neighbors": 20.0,
    "senses": 300.0,
    "tags": 400.0,
    ENSEMBLE: 60.0,
}
TRAINED_BILM = 5.0  # times the seconds per step with cached layers; 3.4 to 3.7 were measured with NER (docs/log.md)
OVERHEAD = 15.0  # seconds of a run for reading data and layers


def estimate_runs(
    runs: Iterable[PaperRun], records: Mapping[str, RunRecord], recipes: Recipes
) -> dict[PaperRun, float]:
    """Return the seconds of every run on one core: the mean of finished runs like it, else an upper bound."""
    seconds = defaultdict(list)
    for record in records.values():
        run = record.run
        seconds[run.kind, run.row, run.arm, run.fraction].append(record.result["seconds"])
    return {
        run: mean(seconds.get((run.kind, run.row, run.arm, run.fraction), [upper_bound(run, recipes)])) for run in runs
    }


def upper_bound(run: PaperRun, recipes: Recipes) -> float:
    """Return the seconds of a run that takes all epochs of its recipe."""
    if run.kind != TASK:
        return OTHERS[run.kind]
    training, measured = recipes.recipe(run).training, MEASURED[run.row]
    num_examples = min(training.max_examples or measured.num_train, measured.num_train)
    num_steps = training.epochs * ceil(num_examples / training.batch_size)
    per_step = measured.baseline if run.arm == BASELINE else measured.with_elmo
    return OVERHEAD + num_steps * per_step * (TRAINED_BILM if recipes.recipe(run).elmo.train else 1.0)


def show_plan(runs: Sequence[PaperRun], seconds: Mapping[PaperRun, float], *, num_done: int, workers: int) -> str:
    """Return the plan as text: runs and hours per row, and in total."""
    rows: dict[tuple[str, str], list[PaperRun]] = defaultdict(list)
    for run in runs:
        rows[run.row, run.kind].append(run)
    lines = [f"{'row':<14} {'kind':<10} {'runs':>5} {'core hours':>11}  arms"]
    for (row, kind), of_row in rows.items():
        arms = ", ".join(dict.fromkeys(run.arm for run in of_row))
        hours = sum(seconds[run] for run in of_row) / 3600
        lines.append(f"{row:<14} {kind:<10} {len(of_row):>5} {hours:>11.1f}  {arms}")
    hours = sum(seconds[run] for run in runs) / 3600
    lines.append(
        f"{len(runs)} runs to make, {num_done} finished; {hours:.1f} core hours at most, "
        f"{hours / workers:.1f} hours with {workers} workers"
    )
    return "\n".join(lines)
