"""Optimizer of a task model: schedule, l2 penalty, clip, update, and moving average of the weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from elmokit.runs.optimizers import OPTIMIZERS, check_finite
from elmokit.tasks.recipe import TrainingSettings

DECAY, DECAY_STEPS = 0.999, 100  # Lee et al. 2017
TOKENS = "tokens."  # prefix of the token encoder's parameters
TRAINED = "tokens.trained."  # prefix of the parameters of a biLM that is trained with the task
SCALE = "scale"  # key of a group of parameters: factor of its learning rate

RHO = 0.95  # Adadelta's


class TaskOptimizer:
    """Adds the l2 penalty to the gradients, clips them, then updates the weights.

    Args:
        model: module of a task.
        settings: of the run.
        bilm_rate: learning rate of a biLM in the model, before the schedule; None: that of all other weights.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings, *, bilm_rate: float | None = None) -> None:
        self._parameters = learned_parameters(model)
        self._decayed = [self._parameters[name] for name in decayed_names(model)] if settings.weight_decay else []
        self._settings = settings
        self._method = _make(settings, list(self._parameters.values()))
        if bilm_rate is not None:
            self._split_group(bilm_rate / settings.learning_rate)

    def clear(self) -> None:
        """Clear the gradients of the step before."""
        self._method.zero_grad(set_to_none=True)

    @torch.no_grad()
    def step(self, learning_rate: float) -> float:
        """Update the weights; return the norm of the gradients before the clip."""
        settings = self._settings
        for weight in self._decayed:
            # Part of the loss: added before the clip, and scaled by Adam like the rest.
            pull = settings.weight_decay * weight
            weight.grad = pull if weight.grad is None else weight.grad.add_(pull)
        learning = [parameter for parameter in self._parameters.values() if parameter.grad is not None]
        norm = nn.utils.get_total_norm([parameter.grad for parameter in learning if parameter.grad is not None])
        check_finite("the gradient norm", float(norm))
        if settings.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(learning, settings.clip_norm, norm)
        if settings.clip_value is not None:
            nn.utils.clip_grad_value_(learning, settings.clip_value)
        for group in self._method.param_groups:
            group["lr"] = learning_rate * group.get(SCALE, 1.0)
        self._method.step()
        return float(norm)

    def _split_group(self, scale: float) -> None:
        """Give the biLM a group of its own, whose learning rate is ``scale`` times that of the other weights."""
        (group,) = self._method.param_groups
        of_bilm = [weight for name, weight in self._parameters.items() if name.startswith(TRAINED)]
        others = [weight for name, weight in self._parameters.items() if not name.startswith(TRAINED)]
        self._method.param_groups = [{**group, "params": others}, {**group, "params": of_bilm, SCALE: scale}]

    def tensors(self) -> dict[str, Tensor]:
        """Return the state of the optimizer, by name."""
        return {
            f"{name}/{key}": torch.as_tensor(value)
            for name, parameter in self._parameters.items()
            for key, value in self._method.state[parameter].items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""
        self._method.state.clear()
        for full_name, value in tensors.items():
            name, key = full_name.rsplit("/", 1)
            self._method.state[self._parameters[name]][key] = value.clone()


class MovingMean:
    """Exponential moving average of the weights.

    In the first steps the decay is (1 + step) / (10 + step), as in AllenNLP: otherwise the random weights before the
    first step, with which the average starts, would dominate the first evaluations.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._parameters = learned_parameters(model)
        self._decay = decay
        self.tensors = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the weights after a step, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.tensors.values()), list(self._parameters.values()), 1 - decay)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the average from saved ``tensors``."""
        self.tensors = {name: tensors[name].clone() for name in self._parameters}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the average as its weights, within a ``with`` block."""
        kept = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._fill(self.tensors)
        try:
            yield
        finally:
            self._fill(kept)

    @torch.no_grad()
    def _fill(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(values[name])


def learning_rate(settings: TrainingSettings, *, step: int, num_halvings: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    match settings.schedule:
        case "constant":
            return settings.learning_rate
        case "halve":
            return settings.learning_rate * 0.5**num_halvings
        case "exponential":
            return settings.learning_rate * DECAY ** (step // DECAY_STEPS)


def _make(settings: TrainingSettings, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if settings.optimizer == "adadelta":
        return torch.optim.Adadelta(parameters, rho=RHO, eps=settings.adadelta_epsilon, foreach=True)
    return OPTIMIZERS[settings.optimizer](parameters)


def learned_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def decayed_names(model: nn.Module) -> list[str]:
    """Return the names of parameters with an l2 penalty: matrices of recurrent and feed-forward layers.

    Embeddings have none, nor has anything in the token encoder: word vectors, characters, mixes.
    """
    tables = {
        f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)
    }
    return [
        name
        for name, parameter in learned_parameters(model).items()
        if parameter.dim() >= 2 and name not in tables and not name.startswith(TOKENS)
    ]
