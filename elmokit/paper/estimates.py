"""Time that the runs of a plan take, from finished runs where there are any, else from measured steps.

Patience ends most runs long before their last epoch: steps are those that runs like them took.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from elmokit.paper.arms import BASELINE
from elmokit.paper.plan import ENSEMBLE, TASK, TUNING, PaperRun
from elmokit.paper.run_file import RunRecord
from elmokit.paper.settings import Recipes


@dataclass(frozen=True)
class Measured:
    """Steps of a run that patience ends, and seconds per step, with the evaluations, on one core."""

    num_steps: int
    baseline: float
    with_elmo: float


# From runs of this plan and pilots (docs/log.md); AMD EPYC, one thread. Those of ner-wnut17, sst, squad, parse and tag
# are guesses for their present recipes.
MEASURED = {
    "ner-wikigold": Measured(1_600, 0.100, 0.130),
    "ner-wnut17": Measured(2_000, 0.100, 0.130),
    "sst": Measured(2_000, 0.090, 0.140),
    "snli": Measured(2_800, 0.120, 0.200),
    "squad": Measured(1_900, 0.280, 0.400),
    "srl": Measured(2_000, 0.130, 0.180),
    "coref": Measured(1_800, 0.350, 0.400),
    "parse": Measured(4_500, 0.180, 0.220),
    "tag": Measured(4_000, 0.120, 0.150),
}
FRACTION = Measured(800, 0.250, 0.300)
"""A run of Figure 1 on a part of the data, with more evaluations per step."""
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
    """Return the seconds of every run on one core: the mean of finished runs like it, else a guess."""
    seconds = defaultdict(list)
    for record in records.values():
        run = record.run
        seconds[run.kind, run.row, run.arm, run.fraction].append(record.result["seconds"])
    return {
        run: mean(seconds.get((run.kind, run.row, run.arm, run.fraction), [expected_seconds(run, recipes)]))
        for run in runs
    }


def expected_seconds(run: PaperRun, recipes: Recipes) -> float:
    """Return the seconds of a run that takes as many steps as others of its row."""
    if run.kind != TASK:
        return OTHERS[run.kind]
    measured = MEASURED[run.row] if run.fraction == 1 else FRACTION
    per_step = measured.baseline if run.arm == BASELINE else measured.with_elmo
    return OVERHEAD + measured.num_steps * per_step * (TRAINED_BILM if recipes.recipe(run).elmo.train else 1.0)


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
        f"{len(runs)} runs to make, {num_done} finished; {hours:.1f} core hours, "
        f"{hours / workers:.1f} hours with {workers} workers"
    )
    return "\n".join(lines)
