"""Updates of the weights: torch's optimizers for whole tensors, Adagrad or SGD by hand for rows of the softmax.

A sampled softmax has a gradient in a few thousand of its rows only. torch's sparse gradients would do, but its
optimizer warns at every step that it does not check them, and the arithmetic is two lines.

Shapes: R rows of the softmax, P width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.recipe import PretrainSettings
from elmokit.runs.optimizers import FIRST_SUM, OPTIMIZERS, TINY, check_finite


@dataclass(frozen=True)
class RowGradients:
    """Gradient of the softmax in a few rows; it is zero in all others."""

    rows_R: Tensor
    weight_RP: Tensor
    bias_R: Tensor


class PretrainOptimizer:
    """Optimizer of a language model: clips the gradients by their common norm, then updates the weights."""

    def __init__(self, model: LanguageModel, settings: PretrainSettings, *, sampled: bool) -> None:
        self._softmax = model.softmax
        self._clip_norm = settings.clip_norm
        # Adam's moments decay in every row at every step, so it needs the whole softmax gradient.
        self._by_rows = sampled and settings.optimizer != "adam"
        self._names = {
            parameter: name
            for name, parameter in model.named_parameters()
            if not (self._by_rows and name.startswith("softmax."))
        }
        self._whole = OPTIMIZERS[settings.optimizer](self._names)
        self._row_sums: dict[str, Tensor] = {}
        if self._by_rows and settings.optimizer == "adagrad":
            self._row_sums = {
                name: torch.full_like(parameter, FIRST_SUM) for name, parameter in self._softmax.named_parameters()
            }

    def step(self, rows: RowGradients | None, learning_rate: float) -> float:
        """Update every weight; return the norm of the gradients before the clip."""
        if rows is not None:
            self._softmax.weight.grad = self._softmax.bias.grad = None
        gradients = [parameter.grad for parameter in self._names if parameter.grad is not None]
        if rows is not None:
            gradients += [rows.weight_RP, rows.bias_R]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in gradients])))
        check_finite("the gradient norm", norm)
        if self._clip_norm is not None and norm > self._clip_norm:
            torch._foreach_mul_(gradients, self._clip_norm / norm)
        if rows is not None and not self._by_rows:
            self._softmax.weight.grad = _whole(self._softmax.weight, rows.rows_R, rows.weight_RP)
            self._softmax.bias.grad = _whole(self._softmax.bias, rows.rows_R, rows.bias_R)
            rows = None
        for group in self._whole.param_groups:
            group["lr"] = learning_rate
        self._whole.step()
        # A fused step does not count up versions, by which packed copies of the weights are known to be outdated.
        increment_version([parameter for parameter in self._names if parameter.grad is not None])
        if rows is not None:
            self._move_rows("weight", self._softmax.weight, rows.rows_R, rows.weight_RP, learning_rate)
            self._move_rows("bias", self._softmax.bias, rows.rows_R, rows.bias_R, learning_rate)
        return norm

    @torch.no_grad()
    def _move_rows(
        self, name: str, parameter: nn.Parameter, rows_R: Tensor, gradient: Tensor, learning_rate: float
    ) -> None:
        if name in self._row_sums:
            sums = self._row_sums[name].index_add_(0, rows_R, gradient.square())
            gradient = gradient / (sums[rows_R].sqrt() + TINY)
        parameter.index_add_(0, rows_R, gradient, alpha=-learning_rate)

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimizer's state by name."""
        whole = {
            f"{name}/{key}": torch.as_tensor(value)
            for parameter, name in self._names.items()
            for key, value in self._whole.state[parameter].items()
        }
        return whole | {f"softmax.{name}/rows": sums for name, sums in self._row_sums.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""
        parameters = {name: parameter for parameter, name in self._names.items()}
        for full_name, value in tensors.items():
            name, key = full_name.rsplit("/", 1)
            if key == "rows":
                self._row_sums[name.removeprefix("softmax.")].copy_(value)
            else:
                # torch keeps step counts on the CPU.
                device = torch.device("cpu") if key == "step" else parameters[name].device
                self._whole.state[parameters[name]][key] = value.to(device, copy=True)


def _whole(parameter: nn.Parameter, rows_R: Tensor, gradient: Tensor) -> Tensor:
    return torch.zeros_like(parameter).index_copy_(0, rows_R, gradient)
