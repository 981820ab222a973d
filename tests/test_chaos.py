"""Runs that are killed again and again end with the bits of one that was not.

.venv/bin/python -m pytest tests/test_chaos.py -m slow
"""

import os
import random
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from processes import finish, started, with_text
from toy import toy_recipe

from elmokit.pretrain.checkpoint import load_newest
from elmokit.pretrain.recipe import Recipe

NUM_STEPS = 400
NUM_KILLS, KILLS_IN_SAVES = 14, 4  # of each kind, for one process and for two


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


def wait_for_save(run_dir: Path, left_before: list[str]) -> None:
    until = time.monotonic() + 60
    while not set(unfinished(run_dir)) - set(left_before):
        assert time.monotonic() < until


def moments(*, seed: int) -> Iterator[float | None]:
    """Seconds to wait before a kill; None: until a checkpoint is being saved."""
    random_moments = random.Random(seed)
    plan: list[float | None] = [random_moments.uniform(0.0, 1.5) for _ in range(NUM_KILLS - KILLS_IN_SAVES)]
    plan += [None] * KILLS_IN_SAVES
    random_moments.shuffle(plan)
    yield from plan


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 2])
def test_killed_at_any_moment_a_run_ends_with_the_same_bits(tmp_path: Path, num_processes: int) -> None:
    recipe = recipe_for(tmp_path)
    finish(recipe, tmp_path / "unbroken", num_processes=num_processes)
    broken, in_saves, reached = tmp_path / "broken", 0, []
    for moment in moments(seed=num_processes):
        left_before = unfinished(broken)
        with started(recipe, broken, num_processes=num_processes) as processes:
            if moment is None:
                wait_for_save(broken, left_before)
            else:
                time.sleep(moment)
            kill(processes, processes[0] if moment is None else processes[-1])
        in_saves += bool(set(unfinished(broken)) - set(left_before))
        reached.append(newest_step(broken))
    finish(recipe, broken, num_processes=num_processes)

    assert in_saves >= 3, "too few kills fell into a save; run it again"
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
