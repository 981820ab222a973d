"""Runs that are killed again and again end with the bits of one that was not.

.venv/bin/python -m pytest tests/pretrain/test_chaos.py -m chaos
"""

import os
import random
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from processes import finish, started, with_text
from toy import toy_recipe

from elmokit.pretrain.recipe import Recipe
from elmokit.runs.checkpoint import checkpoints, load_newest

NUM_STEPS = 400
KILLS = ["early"] * 4 + ["in a step"] * 8 + ["in a save"] * 8  # for one process, and again for two
IN_SAVES = 5  # kills at least that fell into a save; as many more are made as that takes
MOST_KILLS = 40


def recipe_for(folder: Path) -> Recipe:
    settings = {"num_rows": 4, "steps": NUM_STEPS, "checkpoint_every": 2, "evaluate_every": 20}
    return with_text(toy_recipe(negatives=30, dropout=0.2, **settings), folder)


def unfinished(run_dir: Path) -> list[str]:
    """Checkpoints that are being saved."""
    try:
        return [entry.name for entry in os.scandir(run_dir / "checkpoints") if entry.name.endswith(".tmp")]
    except FileNotFoundError:
        return []


def newest_step(run_dir: Path) -> int:
    found = load_newest(run_dir / "checkpoints") if (run_dir / "checkpoints").is_dir() else None
    return 0 if found is None else found.step


def kill(processes: list[BaseProcess], victim: BaseProcess) -> None:
    victim.kill()
    for process in processes:
        process.join(60)
        assert process.exitcode != 0, "the run was over before it was killed"


def last_step(run_dir: Path) -> int:
    found = checkpoints(run_dir / "checkpoints")
    return int(found[-1].name.removeprefix("step-")) if found else 0


def wait_until(reached: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < until


def wait_for_moment(kind: str, chance: random.Random, run_dir: Path) -> None:
    """Wait from the start of a process to the moment of its death."""
    match kind:
        case "early":
            time.sleep(chance.uniform(0, 1))
        case "in a step":
            step = last_step(run_dir) + chance.randint(2, 16)
            wait_until(lambda: last_step(run_dir) >= step)
            time.sleep(chance.uniform(0, 0.05))
        case "in a save":
            step, left = last_step(run_dir), set(unfinished(run_dir))
            wait_until(lambda: last_step(run_dir) > step)  # past the start, which clears away what was left
            wait_until(lambda: set(unfinished(run_dir)) - left)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("num_processes", [1, 2])
def test_killed_at_any_moment_a_run_ends_with_the_same_bits(tmp_path: Path, num_processes: int) -> None:
    recipe = recipe_for(tmp_path)
    finish(recipe, tmp_path / "unbroken", num_processes=num_processes)
    broken, in_saves, reached = tmp_path / "broken", 0, []
    chance = random.Random(num_processes)
    kinds = chance.sample(KILLS, len(KILLS))
    while kinds or (in_saves < IN_SAVES and len(reached) < MOST_KILLS):
        kind = kinds.pop() if kinds else "in a save"
        with started(recipe, broken, num_processes=num_processes) as processes:
            wait_for_moment(kind, chance, broken)
            kill(processes, processes[0] if kind == "in a save" else chance.choice(processes))
        in_saves += kind == "in a save" and bool(unfinished(broken))
        reached.append(newest_step(broken))
    finish(recipe, broken, num_processes=num_processes)

    assert len(reached) >= 20
    assert in_saves >= IN_SAVES
    assert reached == sorted(reached)  # no kill costs a step that was saved
    assert not unfinished(broken)
    expected, found = (load_newest(run / "checkpoints") for run in (tmp_path / "unbroken", broken))
    assert found.step == expected.step == NUM_STEPS
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in expected.tensors.items())
    for folder in ("model", "best"):
        for file in ("model.safetensors", "softmax.safetensors"):
            same = (tmp_path / "unbroken" / folder / file).read_bytes()
            assert (broken / folder / file).read_bytes() == same
