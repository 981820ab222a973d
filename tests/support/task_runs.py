"""Runs of the toy task that can be stopped and compared."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from toy_task import (
    RHYMES,
    toy_data,
)

from elmokit.runs.checkpoint import load_newest
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import TaskData
from elmokit.tasks.progress import DevScores, Entry, TaskStep
from elmokit.tasks.recipe import TaskRecipe


class Stop(threading.Event):
    """Is set once an entry of the run says so."""

    def __init__(self, when: Callable[[Entry], bool]) -> None:
        super().__init__()
        self.when, self.entries = when, []

    def report(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self.when(entry):
            self.set()


def run(
    folder: Path,
    asked: TaskRecipe,
    *,
    task=RHYMES,
    data: TaskData | None = None,
    when: Callable[[Entry], bool] = lambda _: False,
    layers_dir: Path | None = None,
) -> list[Entry]:
    stop = Stop(when)
    found = run_task(task, asked, data or toy_data(), folder, report=stop.report, stop=stop, layers_dir=layers_dir)
    assert (found is None) == stop.is_set()
    assert found is None or found == stop.entries[-1]
    return stop.entries


def of_kind(kind: type, entries: Sequence[Entry]) -> list[Any]:
    return [entry for entry in entries if isinstance(entry, kind)]


def state(folder: Path) -> dict[str, torch.Tensor]:
    return load_newest(folder / "checkpoints").tensors


def assert_same_bits(first: Path, second: Path) -> None:
    one, two = state(first), state(second)
    assert one.keys() == two.keys()
    assert [name for name in one if not torch.equal(one[name], two[name])] == []
    for file in ("model.safetensors", "config.json", "vocab.json"):
        assert (first / "model" / file).read_bytes() == (second / "model" / file).read_bytes()
    results = [json.loads((folder / "result.json").read_bytes()) for folder in (first, second)]
    for result in results:
        assert result.pop("seconds") > 0
    assert results[0] == results[1]


def stopped_at(*steps: int) -> Callable[[Entry], bool]:
    return lambda entry: isinstance(entry, TaskStep | DevScores) and entry.step in steps
