"""A task run between two steps: the model, and everything that the next step follows from."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from elmokit.runs.checkpoint import Checkpoint
from elmokit.runs.optimizers import check_finite
from elmokit.runs.seeds import seeded
from elmokit.tasks.optimizer import MovingMean, TaskOptimizer, learning_rate
from elmokit.tasks.recipe import TrainingSettings
from elmokit.tasks.task import Batch, TaskModule

# Weights at the start, dropout and an untrained biLM come from different streams.
START, DROPOUT, UNTRAINED = range(3)


@dataclass(frozen=True)
class LearnedStep:
    """What one step found."""

    loss: float
    gradient_norm: float
    learning_rate: float


@dataclass(frozen=True, eq=False)
class Best:
    """The weights that had the best score so far; the earliest of equals."""

    step: int
    scores: dict[str, float]
    weights: dict[str, Tensor]  # as they were evaluated: the moving mean where there is one


class Learner:
    """Learns step by step; can be copied to a checkpoint and restored from one between any two steps."""

    def __init__(self, model: nn.Module, settings: TrainingSettings, *, steps_per_epoch: int, metric: str) -> None:
        self.model, self.settings, self.metric = model, settings, metric
        self.steps_per_epoch = steps_per_epoch
        self.num_steps = settings.epochs * steps_per_epoch
        self._optimizer = TaskOptimizer(model, settings)
        self._mean = None if settings.ema is None else MovingMean(model, settings.ema)
        self.step = 0
        self.seconds = 0.0  # of learning, over all pieces of the run
        self.best: Best | None = None
        self.looks_since_best = 0
        self.num_halvings = 0

    @property
    def is_over(self) -> bool:
        """Whether the recipe says that it is enough."""
        patience = self.settings.patience
        return self.step >= self.num_steps or (patience is not None and self.looks_since_best >= patience)

    @property
    def epoch(self) -> float:
        """How often every example was seen."""
        return self.step / self.steps_per_epoch

    @property
    def next_look(self) -> int:
        """The step after which the development data is to be looked at."""
        every = self.settings.evaluate_every or self.steps_per_epoch
        return min((self.step // every + 1) * every, self.num_steps)

    def learn(self, batch: Batch[Any]) -> LearnedStep:
        """Learn from the next batch."""
        model = cast(TaskModule, self.model)
        self.model.train()
        self._optimizer.clear()
        with seeded(self.settings.seed, DROPOUT, self.step):
            loss = model.loss(batch) + model.tokens.penalty()
            check_finite(f"the loss of step {self.step + 1}", loss.item())
            loss.backward()
        rate = learning_rate(self.settings, step=self.step, num_halvings=self.num_halvings)
        norm = self._optimizer.step(rate)
        if self._mean is not None:
            self._mean.update()
        self.step += 1
        return LearnedStep(loss.item(), norm, rate)

    def evaluated_weights(self) -> AbstractContextManager[None]:
        """Let the model have the weights that count, for as long as the block lasts."""
        return nullcontext() if self._mean is None else self._mean.in_place()

    def note(self, scores: dict[str, float]) -> bool:
        """Note the scores of the model as it is, with its evaluated weights; return whether it is the best so far."""
        is_best = self.best is None or scores[self.metric] > self.best.scores[self.metric]
        if is_best:
            weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            self.best = Best(self.step, scores, weights)
            self.looks_since_best = 0
        else:
            self.looks_since_best += 1
            self.num_halvings += 1
        return is_best

    def checkpoint(self, resume_key: dict[str, Any]) -> Checkpoint:
        """Return a copy of everything that the next step depends on."""
        tensors = {
            **{f"model/{name}": tensor for name, tensor in self.model.state_dict().items()},
            **{f"optimizer/{name}": tensor for name, tensor in self._optimizer.tensors().items()},
            **{f"mean/{name}": tensor for name, tensor in (self._mean.tensors if self._mean else {}).items()},
            **{f"best/{name}": tensor for name, tensor in (self.best.weights if self.best else {}).items()},
        }
        facts = {
            "seconds": self.seconds,
            "best": None if self.best is None else {"step": self.best.step, "scores": self.best.scores},
            "looks_since_best": self.looks_since_best,
            "num_halvings": self.num_halvings,
            "follows": resume_key,
        }
        return Checkpoint(self.step, {name: tensor.detach().clone() for name, tensor in tensors.items()}, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Be again where the checkpoint was made."""
        tensors, facts = checkpoint.tensors, checkpoint.facts
        self.model.load_state_dict(_of_kind(tensors, "model/"))
        self._optimizer.load(_of_kind(tensors, "optimizer/"))
        if self._mean is not None:
            self._mean.load(_of_kind(tensors, "mean/"))
        best = facts["best"]
        self.best = None if best is None else Best(best["step"], best["scores"], _of_kind(tensors, "best/"))
        self.step, self.seconds = checkpoint.step, facts["seconds"]
        self.looks_since_best, self.num_halvings = facts["looks_since_best"], facts["num_halvings"]


def _of_kind(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    return {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}
