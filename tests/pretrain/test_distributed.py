"""Several ranks against one, and against the death of one of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from processes import finish, run_alone, started, with_text
from toy import toy_recipe

from elmokit.errors import ConfigError
from elmokit.pretrain import loop, pretraining, texts
from elmokit.pretrain.recipe import Recipe
from elmokit.runs import saving
from elmokit.runs import world as ranks
from elmokit.runs.checkpoint import Checkpoint, checkpoints, load_newest
from elmokit.runs.world import World
from elmokit.score import perplexity

NUM_STEPS = 40


def recipe_for(folder: Path, *, steps: int = NUM_STEPS) -> Recipe:
    return with_text(toy_recipe(negatives=30, num_rows=8, steps=steps, evaluate_every=20), folder)


def losses(run_dir: Path) -> list[float]:
    lines = [json.loads(line) for line in (run_dir / "log.jsonl").read_text("utf-8").splitlines()]
    names = ("forward_loss", "backward_loss", "gradient_norm", "forward_perplexity", "backward_perplexity")
    return [line[name] for line in lines for name in names if name in line]


def newest(run_dir: Path) -> Checkpoint:
    found = load_newest(run_dir / "checkpoints")
    assert found is not None
    return found


@pytest.mark.long
def test_two_ranks_train_as_one_does_and_another_number_can_resume(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    run_alone(recipe_for(tmp_path), whole)
    finish(recipe_for(tmp_path, steps=20), halves, num_processes=2)
    assert newest(halves).step == 20
    run_alone(recipe_for(tmp_path), halves)
    assert losses(halves) == pytest.approx(losses(whole), rel=1e-5)
    ones, twos = newest(whole).tensors, newest(halves).tensors
    assert ones.keys() == twos.keys()
    for name, tensor in ones.items():
        torch.testing.assert_close(twos[name], tensor, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text)


def test_rows_are_shared_out_without_rest() -> None:
    worlds = [World(rank, 4, torch.device("cpu")) for rank in range(4)]
    assert [row for world in worlds for row in world.rows(12)] == list(range(12))
    with pytest.raises(ConfigError, match=r"10 rows \(training.num_rows\) cannot be divided among 4 ranks"):
        worlds[0].rows(10)


def wait_for_checkpoint(run_dir: Path) -> None:
    until = time.monotonic() + 180
    while not checkpoints(run_dir / "checkpoints"):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_more_ranks_than_gpus_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(ConfigError, match="rank 1 of this machine has no GPU: torch sees 1; start as many"),
        ranks.join_world(),
    ):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("hurt", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_rank_ends_the_other_within_a_minute_and_a_relaunch_resumes(
    tmp_path: Path, hurt: signal.Signals, rank: int
) -> None:
    endless, run_dir = recipe_for(tmp_path, steps=10**6), tmp_path / "run"
    with started(endless, run_dir, num_processes=2) as processes:
        wait_for_checkpoint(run_dir)
        began = time.monotonic()
        os.kill(processes[rank].pid, hurt)
        processes[1 - rank].join(60)
        assert processes[1 - rank].exitcode == 1
        assert time.monotonic() - began < 60
    reached = newest(run_dir).step
    finish(recipe_for(tmp_path, steps=reached + 10), run_dir, num_processes=2)
    assert newest(run_dir).step == reached + 10


def slow_disk(_rank: int) -> None:
    shorten_patience()
    slow_down(saving, "save_checkpoint")


def slow_evaluation(rank: int) -> None:
    shorten_patience()
    if rank == 1:
        slow_down(perplexity, "read_contexts")


def slow_preparation(rank: int) -> None:
    shorten_patience()
    if rank == 0:
        slow_down(texts, "prepare_corpus")


def slow_start(rank: int) -> None:
    shorten_patience()
    if rank == 1:
        slow_down(loop, "load_newest")


def slow_end(rank: int) -> None:
    shorten_patience()
    if rank == 0:
        slow_down(pretraining, "_finish")


def shorten_patience() -> None:
    ranks.PATIENCE, ranks.BEAT = timedelta(seconds=2), 0.5


def slow_down(module: ModuleType, name: str) -> None:
    as_before = getattr(module, name)

    def slowly(*args: Any, **options: Any) -> Any:
        time.sleep(4)
        return as_before(*args, **options)

    setattr(module, name, slowly)


@pytest.mark.slow
@pytest.mark.parametrize("change", [slow_disk, slow_evaluation, slow_preparation, slow_start, slow_end])
def test_a_process_that_is_only_slow_is_waited_for(tmp_path: Path, change: Callable[[int], None]) -> None:
    recipe = recipe_for(tmp_path, steps=4)
    training = recipe.training.model_copy(update={"checkpoint_every": 2, "evaluate_every": 3})
    recipe = recipe.model_copy(update={"training": training})
    finish(recipe, tmp_path / "run", num_processes=2, change=change)
    assert newest(tmp_path / "run").step == 4


def hang(*_args: Any, **_options: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang_in_an_evaluation(rank: int) -> None:
    shorten_patience()
    if rank == 1:
        perplexity.read_contexts = hang


def hang_in_preparation(rank: int) -> None:
    shorten_patience()
    if rank == 0:
        texts.prepare_corpus = hang


def hang_on_resume(rank: int) -> None:
    shorten_patience()
    if rank == 1:
        loop.load_newest = hang


def hang_in_the_last_save(rank: int) -> None:
    shorten_patience()
    if rank == 0:
        pretraining._finish = hang


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "hurt"),
    [(hang_in_an_evaluation, 1), (hang_in_preparation, 0), (hang_on_resume, 1), (hang_in_the_last_save, 0)],
)
def test_a_process_that_hangs_is_noticed_wherever_it_does(
    tmp_path: Path, change: Callable[[int], None], hurt: int
) -> None:
    with started(recipe_for(tmp_path, steps=30), tmp_path / "run", num_processes=2, change=change) as processes:
        processes[1 - hurt].join(40)
        assert processes[1 - hurt].exitcode == 1


@pytest.mark.slow
def test_torchrun_ends_within_a_minute_of_a_worker_that_hangs(tmp_path: Path) -> None:
    recipe, run_dir = recipe_for(tmp_path, steps=10**6), tmp_path / "run"
    values = {name: recipe.model_dump(mode="json")[name] for name in ("model", "data", "softmax", "training")}
    (tmp_path / "toy.toml").write_text("[training]\nsteps = 1\n")
    changes = [f"{table}.{key}={json.dumps(value)}" for table, part in values.items() for key, value in part.items()]
    changes = [change.replace("null", '"none"') for change in changes if not change.startswith("model.")]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "elmokit", "pretrain"]
    small = ["model.lstm.cell_dim=8", "model.lstm.proj_dim=4", "model.char_encoder.filters=[[1,4]]"]
    command = [sys.executable, *launch, str(tmp_path / "toy.toml"), *changes, *small, "--run-dir", str(run_dir)]
    agent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_checkpoint(run_dir)
        workers = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        began = time.monotonic()
        os.kill(int(workers[-1]), signal.SIGSTOP)
        _, err = agent.communicate(timeout=90)
        assert time.monotonic() - began < 60
        assert agent.returncode == 1
        assert "does not answer" in err
    finally:
        agent.terminate()  # not kill: it ends its workers first
        agent.communicate()
