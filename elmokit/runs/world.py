"""Ranks of a distributed run: who they are, and how they wait for each other.

``torchrun`` starts the ranks and names them in the environment; without it there is one. A rank that works alone sends
a heartbeat, so that the others tell a slow rank from a dead one.
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

# For a process that does not answer; a dead one is noticed at once. torchrun then takes up to 30 seconds more to end
# the one that hangs, and all together must stay below a minute.
PATIENCE = timedelta(seconds=25)


JOIN_PATIENCE = timedelta(minutes=10)  # for those that start later, from a slow disk say


BEAT = 5.0  # seconds after which a process that works alone tells the others that it lives


Found = TypeVar("Found")


@dataclass(frozen=True)
class World:
    """One process among all."""

    rank: int
    size: int
    device: torch.device
    steps: dist.ProcessGroup | None = None  # for what every step sends; None if there is nobody to talk to
    beating: dist.ProcessGroup | None = None  # for waits in which the others are heard

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def rows(self, num_rows: int) -> range:
        """The rows of a batch that this process reads."""
        if num_rows % self.size:
            raise ConfigError(
                f"{num_rows} rows (training.num_rows) do not divide among {self.size} processes; "
                "start another number of them, or choose other rows before the run begins"
            )
        share = num_rows // self.size
        return range(self.rank * share, (self.rank + 1) * share)


ALONE = World(rank=0, size=1, device=torch.device("cpu"))


@contextmanager
def join_world() -> Iterator[World]:
    """Meet the other processes of a ``torchrun``, if this is one."""
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    has_gpu = torch.cuda.is_available()
    if has_gpu and local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"process {local_rank + 1} of this machine has no GPU of its own: torch sees {torch.cuda.device_count()}; "
            "start as many processes as there are GPUs (--nproc-per-node)"
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
    """Go on when every process is ready, however long that takes, as long as all of them are alive.

    ``is_ready`` is called again and again, and may wait for so many seconds. A process that hangs is noticed as in
    a step, by its silence.
    """
    while True:
        num_ready = torch.tensor([int(is_ready(BEAT))])
        if world.beating is not None:
            with translate_dist_errors():
                dist.all_reduce(num_ready, group=world.beating)
        if int(num_ready) == world.size:
            return


def run_with_heartbeat(work: Callable[[], Found], world: World) -> Found:
    """Do what may take longer in one process than in another; the result is there when all are done."""
    if world.size == 1:
        return work()
    working: Future[Found] = Future()

    def run() -> None:
        try:
            working.set_result(work())
        except BaseException as error:  # noqa: BLE001  it is raised again where the result is asked for
            working.set_exception(error)

    def is_done(within: float) -> bool:
        if not wait([working], timeout=within).done:
            return False
        working.result()
        return True

    # Not a pool's thread: that would be waited for when another process is lost.
    threading.Thread(target=run, daemon=True).start()
    wait_with_heartbeat(is_done, world)
    return working.result()


def on_first_rank(work: Callable[[], object], world: World) -> None:
    """Let the first process do what only one may do; all go on when it is done, and stay in touch until then."""
    run_with_heartbeat(work if world.is_first else lambda: None, world)


@contextmanager
def translate_dist_errors() -> Iterator[None]:
    """Say in our words that a process was lost: torch has a plain ``RuntimeError`` for it, full of C++."""
    try:
        yield
    except RuntimeError as error:
        raise ElmokitError(
            "another process of the run failed, was ended, or does not answer; "
            "start all of them again, and the run goes on from its last checkpoint"
        ) from error


def sum_over_ranks(values: Tensor, world: World) -> Tensor:
    """Add up a small tensor."""
    if world.size > 1:
        with translate_dist_errors():
            dist.all_reduce(values, group=world.steps)
    return values
