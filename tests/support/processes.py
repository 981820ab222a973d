"""Runs in processes of their own, to be killed; a server that has torch loaded forks them, so they start at once."""

import multiprocessing
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from toy import TEXT

from elmokit.pretrain.pretraining import pretrain
from elmokit.pretrain.recipe import DataSettings, Recipe

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["elmokit.pretrain.pretraining", "elmokit.embed.files", "elmokit.score.scoring", "elmokit.cli"]
)


def with_text(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with the toy text, for training and as held-out text."""
    source = folder / "toy.txt"
    source.write_text(TEXT, "utf-8")
    data = DataSettings(train=(str(source),), heldout=(str(source),), tokenized=True)
    return recipe.model_copy(update={"data": data})


def run_alone(recipe: Recipe, run_dir: Path) -> Path | None:
    """A run in this process."""
    return pretrain(recipe, run_dir, report=lambda _: None, stop=threading.Event())


def _change_nothing(_rank: int) -> None:
    pass


@contextmanager
def started(
    recipe: Recipe, run_dir: Path, *, num_processes: int, change: Callable[[int], None] = _change_nothing
) -> Iterator[list[BaseProcess]]:
    """Yield the processes of a run; those that are alive at the end of the block are killed.

    ``change`` is called first in each of them, with its rank.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        SERVER.Process(target=_work, args=(recipe, run_dir, rank, num_processes, port, change))
        for rank in range(num_processes)
    ]
    with ExitStack() as at_end:
        for process in processes:
            process.start()
            at_end.callback(_end, process)
        yield processes


def finish(
    recipe: Recipe, run_dir: Path, *, num_processes: int, change: Callable[[int], None] = _change_nothing
) -> None:
    """A run in processes of its own, to its end."""
    with started(recipe, run_dir, num_processes=num_processes, change=change) as processes:
        for process in processes:
            process.join(120)
        assert [process.exitcode for process in processes] == [0] * num_processes


def _work(recipe: Recipe, run_dir: Path, rank: int, size: int, port: int, change: Callable[[int], None]) -> None:
    import torch

    change(rank)
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    run_alone(recipe, run_dir)


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join()
