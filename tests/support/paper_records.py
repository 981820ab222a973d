"""Records of the paper's runs, as the file of runs has them."""

from elmokit.paper.inputs import identity_of, source_of
from elmokit.paper.plan import PaperRun
from elmokit.paper.run_file import RunRecord
from elmokit.paper.settings import Recipes

FACTS = {"machine": "toy", "versions": "1", "kernels": "none", "commit": "abc", "date": "2026-01-01"}
WEIGHTS = [0.2, 0.7, 0.1]


def make_record(recipes: Recipes, run: PaperRun, result: dict, *, elmo: str = "toy", data: str = "d") -> RunRecord:
    settings = recipes.settings(run)
    inputs = {"data": data}
    if source_of(run) in ("bilm", "untrained", "tuned"):
        inputs["shape"] = f"shape of {elmo}"
    if source_of(run) in ("bilm", "tuned"):
        inputs["bilm"] = elmo
    return RunRecord(identity_of(settings, inputs), run, settings, inputs, elmo, {"seconds": 60.0, **result}, FACTS)


def task_result(score: float, *, place: str | None = "input") -> dict:
    curve = [[10, score - 0.1], [20, score]]
    mixes = {} if place is None else {place: {"weights": WEIGHTS, "gamma": 1.5}}
    scores = {"accuracy": score, "f1": score}
    return {
        "metric": "f1",
        "dev": scores,
        "test": scores,
        "step": 30,
        "best_step": 20,
        "dev_curve": curve,
        "mixes": mixes,
    }
