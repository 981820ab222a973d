"""Random numbers that follow from a key alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Let all that torch draws follow from the key alone, for as long as the block lasts."""
    with torch.random.fork_rng(devices=()):
        # Not `torch.manual_seed`: `fork_rng` here gives back the CPU's state only.
        torch.default_generator.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))
        yield
