"""Time the parts of each training step: a worker of `training_steps.py`.

    python benchmarks/step_profile.py CONFIG.json BATCHES.pt

Parts that run on two threads, one per direction, count with the mean of both. A part is timed by wrapping the function
that computes it, so the sum of all parts is less than the step by what lies between them.
"""

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import step_worker  # first: it sets the environment before torch is imported
import torch

from elmokit.model.directions import direction_threads
from elmokit.model.lstm import LSTMStack
from elmokit.pretrain import step
from elmokit.pretrain.optimizer import PretrainOptimizer


class Stopwatch:
    """Seconds per part of one step, summed over threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Time every call of a function, which belongs to a module or a class."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            found = function(*args, **kwargs)
            with self._lock:
                self.seconds[part] += time.perf_counter() - start
            return found

        setattr(owner, name, timed)

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call."""
        found, self.seconds = dict(self.seconds), defaultdict(float)
        return found


def watch() -> Stopwatch:
    stopwatch = Stopwatch()
    for owner, name, part in (
        (step, "_encode", "character encoder, forward"),
        (LSTMStack, "forward", "LSTMs, forward"),
        (step, "sampled_loss", "softmax"),
        (step, "_run_direction", "directions"),
        (step, "_learn_encoding", "character encoder, backward"),
        (step, "_softmax_gradients", "merge of softmax rows"),
        (PretrainOptimizer, "step", "clip and optimizer"),
    ):
        stopwatch.wrap(owner, name, part)
    return stopwatch


def main() -> None:
    steps = step_worker.Steps(Path(sys.argv[1]), Path(sys.argv[2]))
    stopwatch = watch()
    with direction_threads(torch.device("cpu")) as executor:
        for request in sys.stdin:
            start = time.perf_counter()
            steps.take(int(request), executor)
            whole = time.perf_counter() - start
            found = stopwatch.take()
            for part in ("LSTMs, forward", "softmax", "directions"):
                found[part] /= 2
            found["LSTMs, backward"] = found.pop("directions") - found["LSTMs, forward"] - found["softmax"]
            num_words = len(steps.batches[int(request) % len(steps.batches)].char_ids_WC)
            print(json.dumps({"whole": whole, "parts": found, "num_words": num_words}), flush=True)


if __name__ == "__main__":
    main()
