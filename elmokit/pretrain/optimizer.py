"""Updates of the weights: torch's optimizers for whole tensors, Adagrad or SGD by hand for rows of the softmax.

Adam on a CPU is a kernel of our own, in one visit to every weight: the clip is part of it, and rows of the softmax
without a gradient need none in memory. torch's optimizer stores its state.

A sampled softmax has a gradient in a few thousand of its rows only. torch's sparse gradients would do, but its
optimizer warns at every step that it does not check them, and the arithmetic is two lines.

Shapes: R rows of the softmax, P width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from elmokit.kernels.adam import AdamPart, AdamSettings, halve, update
from elmokit.model.directions import call_both
from elmokit.model.language_model import LanguageModel
from elmokit.model.products import kernels_for
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
        scale = self._clip_norm / norm if self._clip_norm is not None and norm > self._clip_norm else 1.0
        if isinstance(self._whole, torch.optim.Adam) and self._step_adam(self._whole, rows, learning_rate, scale):
            return norm
        if scale != 1:
            torch._foreach_mul_(gradients, scale)
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
    def _step_adam(self, adam: torch.optim.Adam, rows: RowGradients | None, learning_rate: float, scale: float) -> bool:
        """Update every weight by the kernel; return False if there is none for such weights."""
        kernels = kernels_for(self._softmax.weight)
        if kernels is None or not all(parameter.is_contiguous() for parameter in self._names):
            return False
        listed = (
            {} if rows is None else {self._softmax.weight: rows.weight_RP, self._softmax.bias: rows.bias_R[:, None]}
        )
        parts = []
        for parameter in self._names:
            gradient = listed.get(parameter, parameter.grad)
            if gradient is None:
                continue
            state = adam.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device="cpu")
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            state["step"] += 1
            weight, *others = (parameter.detach(), state["exp_avg"], state["exp_avg_sq"], gradient.contiguous())
            of = rows.rows_R if rows is not None and parameter in listed else None
            mean, square, grad = (_as_matrix(tensor) for tensor in others)
            parts.append(AdamPart(_as_matrix(weight), mean, square, grad, int(state["step"]), of))
        group = adam.param_groups[0]
        settings = AdamSettings(learning_rate, scale, group["betas"], group["eps"])
        calls = [(kernels, half, settings) for half in halve(parts)]
        call_both(None, update, *calls)
        increment_version([parameter for parameter in self._names if parameter.grad is not None or parameter in listed])
        return True

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


def _as_matrix(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim == 2 else tensor.view(-1, 1)


def _whole(parameter: nn.Parameter, rows_R: Tensor, gradient: Tensor) -> Tensor:
    return torch.zeros_like(parameter).index_copy_(0, rows_R, gradient)
