"""Random numbers that depend on a key alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Seed torch's CPU generator from the key within a block, and restore its state afterwards."""
    with torch.random.fork_rng(devices=()):
        # Not `torch.manual_seed`: that seeds GPUs too, and `fork_rng` restores only the CPU's state here.
        torch.default_generator.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))
        yield
