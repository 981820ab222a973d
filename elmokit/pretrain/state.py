"""A pretraining run between two steps: the model and everything else that the next step depends on."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from elmokit.model.bilm import BiLMState
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.batches import PretrainBatches
from elmokit.pretrain.distributed import gather_rows, sum_gradients
from elmokit.pretrain.dropout import RowDropout
from elmokit.pretrain.optimizer import PretrainOptimizer
from elmokit.pretrain.progress import mean_loss
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.resume_check import ResumeKey, machine_kind, recipe_key
from elmokit.pretrain.schedule import learning_rate, planned_steps
from elmokit.pretrain.step import compute_gradients
from elmokit.runs.checkpoint import Checkpoint
from elmokit.runs.precision import precision_on
from elmokit.runs.world import World
from elmokit.text.corpus import Corpus
from elmokit.text.streams import Cursor
from elmokit.text.vocab import Vocab

DIRECTION_KEYS = {"forward": 0, "backward": 1}
DROPOUT_KEY = 1


@dataclass(frozen=True)
class StepLoss:
    """Losses of one step, over all ranks."""

    forward: float  # per target, in nats; of the sampled softmax if that is trained; 0 if the direction is not trained
    backward: float
    gradient_norm: float
    learning_rate: float

    @property
    def mean(self) -> float:
        """Mean loss of the trained directions."""
        return mean_loss(self.forward, self.backward)


class PretrainState:
    """Model, optimizer, batches and LSTM state of a run; saved to and restored from checkpoints between two steps."""

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        vocab: Vocab,
        *,
        world: World,
        model: LanguageModel | None = None,
        frozen_bilm: bool = False,
    ) -> None:
        """Start a run. A given ``model`` is trained in place; with ``frozen_bilm`` only its softmax is trained."""
        settings = recipe.training
        self.frozen_bilm = frozen_bilm
        self.recipe, self.corpus, self.vocab, self.world = recipe, corpus, vocab, world
        self.num_negatives = recipe.softmax.negatives_for(len(vocab))
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(settings.seed)
            model = _untrained(recipe, len(vocab)) if model is None else model
        self.model = model.to(world.device)
        self.model.bilm.pack_weights()  # for reading without gradients: held-out text, or all if frozen
        self.mixed = precision_on(world.device, settings.precision) == "bf16"
        if self.mixed:
            self.model.bilm.mix_precision()
        self.optimizer = PretrainOptimizer(self.model, settings, sampled=self.num_negatives is not None)
        self.rows = world.rows(settings.num_rows)
        self.batches = PretrainBatches(
            corpus,
            vocab,
            num_rows=settings.num_rows,
            unroll_steps=settings.unroll_steps,
            num_negatives=self.num_negatives,
            seed=settings.seed,
            rows=self.rows,
            reads_words=not self.model.bilm.config.reads_bytes,
        )
        self.lstm_state = self.model.bilm.zero_state(len(self.rows))
        self.num_steps = planned_steps(settings, corpus)
        self.step = 0
        self.seconds = 0.0  # over all sessions of the run
        self.best: float | None = None  # held-out perplexity
        self.best_text: str | None = None  # the held-out text that it belongs to
        self.stop_requested = False  # on any rank
        self.machine = machine_kind(world.device, settings)
        self.machine_before: str | None = None  # of the checkpoint that was restored

    @property
    def is_over(self) -> bool:
        """True once the run has reached its steps, epochs or hours."""
        hours = self.recipe.training.hours
        steps_done = self.num_steps is not None and self.step >= self.num_steps
        return steps_done or (hours is not None and self.seconds >= 3600 * hours)

    def train_step(self, executor: Executor | None, *, seconds: float, stop: bool) -> StepLoss:
        """Train on the next batch. ``seconds`` is the run's clock before it; ``stop`` requests that it be the last."""
        settings = self.recipe.training
        batch = next(self.batches).to(self.world.device)

        def drop(direction: str) -> RowDropout:
            # One number longer than the negatives' key, so that the two never share a random stream.
            key = (settings.seed, self.step, DIRECTION_KEYS[direction], DROPOUT_KEY)
            return RowDropout(settings.dropout, num_rows=settings.num_rows, rows=self.rows, key=key)

        # Half of each direction's mean loss, times the unrolled steps, as in bilm-tf. The scale decides what the clip
        # cuts and how fast Adagrad slows down.
        scale = 0.5 / settings.num_rows
        result = compute_gradients(
            self.model,
            batch,
            self.lstm_state,
            drop=drop,
            scale=scale,
            executor=executor,
            mixed=self.mixed,
            frozen_bilm=self.frozen_bilm,
            direction=settings.direction,
        )
        # The first rank's clock and every rank's request to stop travel with the losses: all ranks end at one step.
        clock = torch.tensor([seconds if self.world.is_first else 0.0, float(stop)], device=self.world.device)
        shared = torch.cat([torch.stack([result.forward_loss, result.backward_loss]).float(), clock])
        sum_gradients(self.model, result.softmax_rows, shared, self.world)
        rate = learning_rate(settings, self.step, self.num_steps)
        norm = self.optimizer.step(result.softmax_rows, rate)
        self.lstm_state = result.final
        self.step += 1
        forward, backward, self.seconds, stops = shared.tolist()
        self.stop_requested = stops > 0
        num_targets = settings.num_rows * settings.unroll_steps
        return StepLoss(forward / num_targets, backward / num_targets, norm, rate)

    def record_perplexity(self, perplexity: float, text: str) -> bool:
        """Record a held-out perplexity; return whether it is the best so far on this ``text``."""
        # Checkpoints of older versions do not name the text of their best perplexity; it is assumed to be this one.
        is_other_text = self.best_text not in (None, text)
        is_best = self.best is None or is_other_text or perplexity < self.best
        if is_best:
            self.best = perplexity
        self.best_text = text
        return is_best

    def checkpoint(self, unlogged: Sequence[tuple[StepLoss, float]] = ()) -> Checkpoint | None:
        """Return a copy of everything that the next step depends on, with the rows of all ranks; first rank only.

        ``unlogged`` are the steps that are not in the log yet, with their seconds.
        """
        lstm_state = gather_rows(self.lstm_state, self.world)
        if not self.world.is_first:
            return None
        tensors = {
            **{f"model/{name}": tensor for name, tensor in self.model.state_dict().items()},
            **{f"optimizer/{name}": tensor for name, tensor in self.optimizer.tensors().items()},
            **{f"state/{name}": tensor for name, tensor in lstm_state.parts().items()},
        }
        facts = {
            "seconds": self.seconds,
            "best": self.best,
            "best_text": self.best_text,
            "cursors": [asdict(cursor) for cursor in self.batches.cursors()],
            "follows": self.resume_key(),
            "machine": self.machine,
            "unlogged": [(asdict(loss), took) for loss, took in unlogged],
        }
        return Checkpoint(self.step, {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint, also with another number of ranks."""
        parts = _by_kind(checkpoint.tensors)
        device = self.world.device
        self.model.load_state_dict(parts["model"])
        self.optimizer.load(parts["optimizer"])
        mine = torch.arange(self.rows.start, self.rows.stop)
        whole = BiLMState.from_parts(parts["state"]).select(mine)
        self.lstm_state = BiLMState.from_parts({name: part.to(device) for name, part in whole.parts().items()})
        self.batches.resume([Cursor(**_as_tuples(values)) for values in checkpoint.facts["cursors"]])
        self.step, self.seconds = checkpoint.step, checkpoint.facts["seconds"]
        self.best, self.best_text = checkpoint.facts["best"], checkpoint.facts.get("best_text")
        self.machine_before = checkpoint.facts.get("machine")  # older versions did not store it

    def resume_key(self) -> ResumeKey:
        """Return the values that must be unchanged when the run is resumed."""
        fingerprints = {"text": self.corpus.fingerprint, "vocabulary": self.vocab.fingerprint}
        return recipe_key(self.recipe, self.world.device) | fingerprints


def _untrained(recipe: Recipe, num_words: int) -> LanguageModel:
    """Return a model as training starts; the LSTMs of a direction that is not trained are zero."""
    model = LanguageModel.untrained(recipe.model_for(num_words), num_words)
    silent = {"both": None, "forward": model.bilm.backward_lstm, "backward": model.bilm.forward_lstm}
    stack = silent[recipe.training.direction]
    if stack is not None:
        for weight in stack.parameters():
            torch.nn.init.zeros_(weight)
    return model


def _by_kind(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    kinds: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "state": {}}
    for name, tensor in tensors.items():
        kind, rest = name.split("/", 1)
        kinds[kind][rest] = tensor
    return kinds


def _as_tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
