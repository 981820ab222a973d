"""State of a task run between two steps: the model, and everything that the next step depends on."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, cast

from torch import Tensor, nn

from elmokit.runs.checkpoint import Checkpoint, tensors_of_kind
from elmokit.runs.optimizers import check_finite
from elmokit.runs.seeds import seeded
from elmokit.tasks.optimizer import MovingMean, TaskOptimizer, learning_rate
from elmokit.tasks.progress import DevScores
from elmokit.tasks.recipe import TrainingSettings
from elmokit.tasks.task import Batch, TaskModule

START, DROPOUT = range(2)  # keys of the random streams: initial weights, dropout


@dataclass(frozen=True)
class StepLoss:
    """Loss of one step."""

    loss: float
    gradient_norm: float
    learning_rate: float


@dataclass(frozen=True, eq=False)
class Best:
    """Weights with the best dev score so far; the earliest of equals."""

    step: int
    scores: dict[str, float]
    weights: dict[str, Tensor]  # as evaluated: the moving average if there is one


class TaskState:
    """Trains step by step; can be saved to a checkpoint and restored from one between any two steps."""

    def __init__(
        self,
        model: nn.Module,
        settings: TrainingSettings,
        *,
        steps_per_epoch: int,
        metric: str,
        bilm_rate: float | None = None,
    ) -> None:
        self.model, self.settings, self.metric = model, settings, metric
        self.steps_per_epoch = steps_per_epoch
        self.num_steps = settings.epochs * steps_per_epoch
        self._optimizer = TaskOptimizer(model, settings, bilm_rate=bilm_rate)
        self._mean = None if settings.ema is None else MovingMean(model, settings.ema)
        self.step = 0
        self.seconds = 0.0  # of training, over all processes of the run
        self.best: Best | None = None
        self.dev_curve: list[DevScores] = []
        self.evaluations_since_best = 0
        self.num_halvings = 0

    @property
    def is_over(self) -> bool:
        """True if the run has taken all its steps or run out of patience."""
        patience = self.settings.patience
        return self.step >= self.num_steps or (patience is not None and self.evaluations_since_best >= patience)

    @property
    def epoch(self) -> float:
        """Number of passes over the training data."""
        return self.step / self.steps_per_epoch

    @property
    def next_evaluation(self) -> int:
        """Step after which the model is evaluated on the dev set."""
        every = self.settings.evaluate_every or self.steps_per_epoch
        return min((self.step // every + 1) * every, self.num_steps)

    def train_step(self, batch: Batch[Any]) -> StepLoss:
        """Train on the next batch."""
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
            self._mean.update(self.step)
        self.step += 1
        return StepLoss(loss.item(), norm, rate)

    def evaluated_weights(self) -> AbstractContextManager[None]:
        """Give the model the weights to evaluate, within a ``with`` block."""
        return nullcontext() if self._mean is None else self._mean.in_place()

    def record_scores(self, scores: dict[str, float]) -> DevScores:
        """Record the dev scores of the model's current weights."""
        is_best = self.best is None or scores[self.metric] > self.best.scores[self.metric]
        if is_best:
            weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            self.best = Best(self.step, scores, weights)
            self.evaluations_since_best = 0
        else:
            self.evaluations_since_best += 1
            self.num_halvings += 1
        self.dev_curve.append(DevScores(self.step, self.epoch, scores, is_best))
        return self.dev_curve[-1]

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
            "dev_curve": [asdict(point) for point in self.dev_curve],
            "looks_since_best": self.evaluations_since_best,
            "num_halvings": self.num_halvings,
            "follows": resume_key,
        }
        return Checkpoint(self.step, {name: tensor.detach().clone() for name, tensor in tensors.items()}, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state that a checkpoint was made of."""
        tensors, facts = checkpoint.tensors, checkpoint.facts
        self.model.load_state_dict(tensors_of_kind(tensors, "model/"))
        self._optimizer.load(tensors_of_kind(tensors, "optimizer/"))
        if self._mean is not None:
            self._mean.load(tensors_of_kind(tensors, "mean/"))
        best = facts["best"]
        self.best = None if best is None else Best(best["step"], best["scores"], tensors_of_kind(tensors, "best/"))
        self.step, self.seconds = checkpoint.step, facts["seconds"]
        self.dev_curve = [DevScores(**point) for point in facts.get("dev_curve", [])]  # older versions have none
        self.evaluations_since_best, self.num_halvings = facts["looks_since_best"], facts["num_halvings"]
