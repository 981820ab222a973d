"""Ranks of a distributed run, and how they wait for each other.

``torchrun`` starts the ranks and numbers them in the environment; without it there is one. A rank that works alone
sends a heartbeat, so that the others can tell a slow rank from a dead one.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from elmokit.errors import ConfigError, ElmokitError

# Timeout for a silent rank; a dead one is noticed at once. torchrun then takes up to 30 seconds more to end the rank
# that hangs, and the total must stay below a minute.
PATIENCE = timedelta(seconds=25)
JOIN_PATIENCE = timedelta(minutes=10)  # for ranks that start later, for example from a slow disk
BEAT = 5.0  # seconds between two heartbeats

Found = TypeVar("Found")


@dataclass(frozen=True)
class World:
    """One rank of a run, and its way to the others."""

    rank: int
    size: int
    device: torch.device
    steps: dist.ProcessGroup | None = None  # for the messages of every step; None for a single rank
    beating: dist.ProcessGroup | None = None  # for heartbeats

    @property
    def is_first(self) -> bool:
        """True for the rank that writes to disk."""
        return self.rank == 0

    def rows(self, num_rows: int) -> range:
        """Return the rows of a batch that this rank reads."""
        if num_rows % self.size:
            raise ConfigError(
                f"{num_rows} rows (training.num_rows) cannot be divided among {self.size} ranks; "
                "start another number of ranks, or choose another number of rows for a new run"
            )
        share = num_rows // self.size
        return range(self.rank * share, (self.rank + 1) * share)


ALONE = World(rank=0, size=1, device=torch.device("cpu"))


@contextmanager
def join_world() -> Iterator[World]:
    """Join the other ranks of a ``torchrun``; without one, yield a single rank."""
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    has_gpu = torch.cuda.is_available()
    if has_gpu and local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"rank {local_rank} of this machine has no GPU: torch sees {torch.cuda.device_count()}; "
            "start as many ranks as there are GPUs (--nproc-per-node)"
        )
    device = torch.device("cuda", local_rank) if has_gpu else torch.device("cpu")
    if size == 1:
        yield World(rank, size, device)
        return
    with translate_dist_errors():
        backend, device_id = ("nccl", device) if has_gpu else ("gloo", None)
        dist.init_process_group(backend, timeout=JOIN_PATIENCE, device_id=device_id)
        steps = dist.new_group(timeout=PATIENCE)
        # Always gloo: nccl has no wait that leaves the GPU alone.
        beating = dist.new_group(backend="gloo", timeout=PATIENCE)
    try:
        yield World(rank, size, device, steps, beating)
    finally:
        dist.destroy_process_group()


def wait_with_heartbeat(is_ready: Callable[[float], bool], world: World) -> None:
    """Wait until every rank is ready, however long that takes, as long as all of them are alive.

    ``is_ready`` is called repeatedly with a number of seconds that it may wait. A rank that hangs is noticed by its
    silence, as in a step.
    """
    while True:
        num_ready = torch.tensor([int(is_ready(BEAT))])
        if world.beating is not None:
            with translate_dist_errors():
                dist.all_reduce(num_ready, group=world.beating)
        if int(num_ready) == world.size:
            return


def run_with_heartbeat(work: Callable[[], Found], world: World) -> Found:
    """Return the result of ``work``, which may take longer on one rank than on another, when all ranks are done."""
    if world.size == 1:
        return work()
    working: Future[Found] = Future()

    def run() -> None:
        try:
            working.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised again by `result`
            working.set_exception(error)

    def is_done(within: float) -> bool:
        if not wait([working], timeout=within).done:
            return False
        working.result()
        return True

    # Not a pool's thread: the interpreter would wait for it when another rank dies.
    threading.Thread(target=run, daemon=True).start()
    wait_with_heartbeat(is_done, world)
    return working.result()


def on_first_rank(work: Callable[[], object], world: World) -> None:
    """Run ``work`` on the first rank only; all ranks return when it is done, with heartbeats until then."""
    run_with_heartbeat(work if world.is_first else lambda: None, world)


@contextmanager
def translate_dist_errors() -> Iterator[None]:
    """Raise ElmokitError when a rank is lost, for which torch raises a ``RuntimeError`` full of C++."""
    try:
        yield
    except RuntimeError as error:
        raise ElmokitError(
            "another rank of the run failed, was killed, or does not answer; "
            "start all ranks again, and the run resumes from its last checkpoint"
        ) from error


def sum_over_ranks(values: Tensor, world: World) -> Tensor:
    """Return the sum of a small tensor over all ranks."""
    if world.size > 1:
        with translate_dist_errors():
            dist.all_reduce(values, group=world.steps)
    return values
