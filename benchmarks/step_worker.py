"""Training steps of one version of the package, for `training_steps.py`: reads batches from a file, one per request.

    python benchmarks/step_worker.py CONFIG.json BATCHES.pt

Imports what both the present version and commit 956d343 have.
"""

import json
import os
import sys
import time
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as `elmokit pretrain` sets them, before torch is imported
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import torch

from elmokit.cli import system
from elmokit.config import BiLMConfig
from elmokit.model.language_model import LanguageModel
from elmokit.model.softmax import Candidates
from elmokit.pretrain import batches as batches_module
from elmokit.pretrain import optimizer as optimizer_module
from elmokit.pretrain import recipe as recipe_module
from elmokit.pretrain.batches import DirectionBatch
from elmokit.pretrain.step import compute_gradients

with suppress(ImportError):
    from elmokit.pretrain.trainer import direction_threads  # 956d343
with suppress(ImportError):
    from elmokit.model.directions import direction_threads


def either(module: Any, *names: str) -> Any:
    """Return the first of these attributes that the module has."""
    return next(getattr(module, name) for name in names if hasattr(module, name))


def direction(parts: dict[str, torch.Tensor]) -> DirectionBatch:
    candidates = Candidates(parts["ids_K"], parts["log_expected_K"], parts["log_expected_targets_N"])
    return DirectionBatch(parts["words_N"], parts["targets_N"], candidates, parts["rows"])


class Steps:
    """A model in training, and batches for it."""

    def __init__(self, settings_path: Path, batches_path: Path) -> None:
        settings = json.loads(settings_path.read_text("utf-8"))
        make_batch = either(batches_module, "PretrainBatch", "TrainingBatch")
        self.batches = [
            make_batch(step, found["char_ids_WC"], direction(found["forward"]), direction(found["backward"]))
            for step, found in enumerate(torch.load(batches_path))
        ]
        either(system, "keep_freed_memory", "keep_memory")()
        torch.manual_seed(0)
        self.model = LanguageModel.untrained(BiLMConfig.model_validate(settings["model"]), settings["num_words"])
        training = either(recipe_module, "PretrainSettings", "TrainingSettings")(steps=1, **settings["training"])
        self.optimizer = either(optimizer_module, "PretrainOptimizer", "RunOptimizer")(
            self.model, training, sampled=True
        )
        self.learning_rate, self.num_rows = training.learning_rate, settings["num_rows"]
        self.state = self.model.bilm.zero_state(self.num_rows)
        self.options: dict[str, bool] = {}
        if settings.get("precision") == "bf16":  # the present version alone
            self.model.bilm.mix_precision()
            self.options["mixed"] = True

    def take(self, number: int, executor: Executor | None) -> float:
        """Take a step and return the loss of both directions."""
        found = compute_gradients(
            self.model,
            self.batches[number % len(self.batches)],
            self.state,
            drop=lambda _: lambda tensor: tensor,
            scale=0.5 / self.num_rows,
            executor=executor,
            **self.options,
        )
        self.optimizer.step(found.softmax_rows, self.learning_rate)
        self.state = found.final
        return float(found.forward_loss + found.backward_loss)


def main() -> None:
    steps = Steps(Path(sys.argv[1]), Path(sys.argv[2]))
    with direction_threads(torch.device("cpu")) as executor:
        for request in sys.stdin:
            wall, cpu = time.perf_counter(), time.process_time()
            loss = steps.take(int(request), executor)
            took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            print(json.dumps(took | {"loss": loss}), flush=True)


if __name__ == "__main__":
    main()
