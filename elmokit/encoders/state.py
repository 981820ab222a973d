"""An encoder's training run between two steps: the model, and everything that the next step follows from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from elmokit.encoders.progress import EncoderStep
from elmokit.encoders.recipe import EncoderTraining
from elmokit.runs.checkpoint import Checkpoint, tensors_of_kind
from elmokit.runs.optimizers import OPTIMIZERS, check_finite
from elmokit.runs.precision import precision_on
from elmokit.runs.seeds import seeded

DROPOUT = 1  # key of the stream that dropout draws from
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class BatchLoss:
    """Loss of one batch."""

    value: Tensor  # a scalar, to be minimized
    num_targets: int
    scale: float  # the mean loss per target is value times scale


class Objective(Protocol):
    """Loss of an encoder: CoVe's on translation, context2vec's on contexts."""

    @property
    def model(self) -> nn.Module:
        """The module that is trained."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch."""

    def loss(self, step: int) -> "BatchLoss":
        """Return the loss of the batch of a step, which follows from the seed and the step alone."""

    def dev_loss(self) -> float:
        """Return the mean loss per target of the dev set."""

    def resume_key(self) -> dict[str, Any]:
        """Return settings and fingerprints that a resumed run must share, as JSON values."""


class EncoderState:
    """Trains step by step; can be copied to a checkpoint and restored between any two steps."""

    def __init__(self, objective: Objective, settings: EncoderTraining) -> None:
        self.objective, self.settings, self.model = objective, settings, objective.model
        self._optimizers = _make_optimizers(self.model, settings)
        self._mixed = precision_on(CPU, settings.precision) == "bf16"
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        self.step = 0
        self.seconds = 0.0  # over all sessions of the run
        self.learning_rate = settings.learning_rate
        self.best: float | None = None  # dev loss
        self.best_weights: dict[str, Tensor] = {}

    @property
    def num_steps(self) -> int | None:
        """Number of steps after which the run ends at the latest; None without epochs."""
        epochs = self.settings.epochs
        return None if epochs is None else max(1, round(epochs * self.objective.steps_per_epoch))

    @property
    def is_over(self) -> bool:
        """True if the run has reached the end of its recipe."""
        hours, num_steps = self.settings.hours, self.num_steps
        is_slow = self.settings.halve and self.learning_rate < self.settings.min_learning_rate
        has_time = hours is None or self.seconds < 3600 * hours
        return is_slow or not has_time or (num_steps is not None and self.step >= num_steps)

    def train_step(self) -> EncoderStep:
        """Train on the next batch."""
        self.model.train()
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        with seeded(self.settings.seed, DROPOUT, self.step):
            # Weights stay in float32, and so do their gradients. Dev losses are computed in float32.
            with torch.autocast(CPU.type, torch.bfloat16, enabled=self._mixed):
                loss = self.objective.loss(self.step)
            check_finite(f"the loss of step {self.step + 1}", loss.value.item())
            loss.value.backward()
        norm = self._clip()
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate
            optimizer.step()
        self.step += 1
        return EncoderStep(
            step=self.step,
            epoch=self.step / self.objective.steps_per_epoch,
            loss=loss.value.item() * loss.scale,
            gradient_norm=norm,
            learning_rate=self.learning_rate,
            num_targets=loss.num_targets,
            targets_per_second=0.0,
            seconds=self.seconds,
        )

    def evaluate(self) -> tuple[float, bool]:
        """Return the dev loss and whether it is the lowest so far; halve the rate if it is not, where asked for."""
        self.model.eval()
        with torch.no_grad():
            found = self.objective.dev_loss()
        is_best = self.best is None or found < self.best
        if is_best:
            self.best = found
            self.best_weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        elif self.settings.halve:
            self.learning_rate /= 2
        return found, is_best

    def checkpoint(self) -> Checkpoint:
        """Return a copy of everything that the next step follows from."""
        tensors = {
            **{f"model/{name}": tensor for name, tensor in self.model.state_dict().items()},
            **{f"best/{name}": tensor for name, tensor in self.best_weights.items()},
            **{f"optimizer/{name}": tensor for name, tensor in self._optimizer_tensors().items()},
        }
        facts = {
            "seconds": self.seconds,
            "learning_rate": self.learning_rate,
            "best": self.best,
            "follows": self.objective.resume_key(),
        }
        return Checkpoint(self.step, {name: tensor.detach().clone() for name, tensor in tensors.items()}, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to the state of a checkpoint."""
        self.model.load_state_dict(tensors_of_kind(checkpoint.tensors, "model/"))
        self.best_weights = tensors_of_kind(checkpoint.tensors, "best/")
        self._load_optimizers(tensors_of_kind(checkpoint.tensors, "optimizer/"))
        self.step, facts = checkpoint.step, checkpoint.facts
        self.seconds, self.learning_rate, self.best = facts["seconds"], facts["learning_rate"], facts["best"]

    def _clip(self) -> float:
        """Scale dense gradients down to the clip; return their norm before."""
        dense = [one for one in self.model.parameters() if one.grad is not None and not one.grad.is_sparse]
        norm = nn.utils.get_total_norm([one.grad for one in dense if one.grad is not None])
        check_finite("the gradient norm", float(norm))
        if self.settings.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(dense, self.settings.clip_norm, norm)
        return float(norm)

    def _optimizer_tensors(self) -> dict[str, Tensor]:
        return {
            f"{self._names[parameter]}/{key}": torch.as_tensor(value)
            for optimizer in self._optimizers
            for parameter, values in optimizer.state.items()
            for key, value in values.items()
        }

    def _load_optimizers(self, tensors: Mapping[str, Tensor]) -> None:
        parameters = {name: parameter for parameter, name in self._names.items()}
        owners = {
            parameter: optimizer
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for full_name, value in tensors.items():
            name, key = full_name.rsplit("/", 1)
            parameter = parameters[name]
            is_sparse = isinstance(owners[parameter], torch.optim.SparseAdam)
            # SparseAdam counts its steps in a plain number.
            owners[parameter].state[parameter][key] = int(value) if is_sparse and key == "step" else value.clone()


def _make_optimizers(model: nn.Module, settings: EncoderTraining) -> list[torch.optim.Optimizer]:
    """Return torch's optimizers: under Adam, tables with sparse gradients get one of their own."""
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding) and module.sparse}
    dense = [parameter for parameter in model.parameters() if parameter not in tables]
    sparse = [parameter for parameter in model.parameters() if parameter in tables]
    if not sparse:
        return [OPTIMIZERS[settings.optimizer](dense)]
    if settings.optimizer == "sgd":
        return [OPTIMIZERS["sgd"](dense), torch.optim.SGD(sparse)]
    return [OPTIMIZERS["adam"](dense), torch.optim.SparseAdam(sparse)]
