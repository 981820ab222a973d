"""Small invented inputs for task models: static vectors, and layers in which a token's neighbors show."""

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from task_models import build_model, make_batch
from torch import Tensor, nn

from elmokit.config import FrozenConfig
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.recipe import ElmoSettings, TaskRecipe, WordSettings
from elmokit.tasks.task import AnyTask, Batch

WORD_DIM, LAYER_DIM, NUM_LAYERS = 6, 4, 3


class NeighborLayers:
    """Layer 0 follows from the token alone, the others from its neighbors too."""

    num_layers, width = NUM_LAYERS, LAYER_DIM

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        parts = [torch.zeros(self.num_layers, len(tokens), self.width) for tokens in sequences]
        for layers_LTD, tokens in zip(parts, sequences, strict=True):
            for place, token in enumerate(tokens):
                near = " ".join(tokens[max(place - 1, 0) : place + 2])
                layers_LTD[0, place] = _draw(token)
                layers_LTD[1, place], layers_LTD[2, place] = _draw(near), _draw(near[::-1])
        return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class LetterLayers:
    """The letters of each word, and in layer 1 also of the word so many places away."""

    neighbor: int
    num_layers, width = 2, 26

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        parts = [torch.zeros(self.num_layers, len(tokens), self.width) for tokens in sequences]
        for layers_LTD, tokens in zip(parts, sequences, strict=True):
            for place, token in enumerate(tokens):
                letters = torch.bincount(torch.tensor([ord(char) % 26 for char in token]), minlength=26).float()
                layers_LTD[0, place] = letters
                layers_LTD[1, min(max(place - self.neighbor, 0), len(tokens) - 1)] += letters
        return torch.cat(parts, dim=1)


def _draw(text: str) -> Tensor:
    return torch.from_numpy(np.random.default_rng(zlib.crc32(text.encode())).normal(size=LAYER_DIM)).float()


def make_columns(task: AnyTask, examples: Sequence[Any], *, place: str = "none") -> ColumnMaker:
    """What turns these examples' tokens into columns; ``place`` is where ELMo goes."""
    sequences = [tokens for example in examples for column in task.sequences(example) for tokens in column]
    known = sorted({token for tokens in sequences for token in tokens})
    vectors = StaticVectors(known, np.random.default_rng(0).normal(size=(len(known), WORD_DIM)))
    recipe = TaskRecipe(
        task=task.name,
        words=WordSettings(file="vectors.txt"),
        elmo=ElmoSettings(model="toy", place=place, layer_norm="token", dropout=0.0),
    )
    return ColumnMaker(
        recipe,
        learn_inputs(sequences, recipe),
        vectors=vectors,
        layers=None if place == "none" else NeighborLayers(),
    )


def make_model(task: AnyTask, columns: ColumnMaker, labels: FrozenConfig, **settings: Any) -> nn.Module:
    """A model as training begins, in evaluation."""
    torch.manual_seed(1)
    recipe = columns.recipe.model_copy(update={"model": settings})
    return build_model(task, recipe, labels, columns).eval()


def stir(model: nn.Module) -> nn.Module:
    """Give every parameter large random values, so that each of them matters."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6)
    return model


def batch_of(
    task: AnyTask,
    examples: Sequence[Any],
    labels: FrozenConfig,
    columns: ColumnMaker,
    *,
    with_labels: bool = True,
) -> Batch[Any]:
    return make_batch(task, examples, labels, columns, with_labels=with_labels)


def overfit(model: nn.Module, batch: Batch[Any], *, steps: int, learning_rate: float) -> list[float]:
    """Learn one batch by heart; the losses on the way."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.train().loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


class Call(NamedTuple):
    read: tuple[Any, ...]
    made: Any


def calls_in_training(model: nn.Module, batch: Batch[Any]) -> dict[str, list[Call]]:
    """What each part of a model is given, and what it makes of it, while the model learns from a batch."""
    calls: dict[str, list[Call]] = defaultdict(list)

    def note(name: str):
        def hook(_module: nn.Module, read: tuple[Any, ...], made: Any) -> None:
            calls[name].append(Call(read, made))

        return hook

    for name, part in model.named_children():
        part.register_forward_hook(note(name))
    torch.manual_seed(4)
    with torch.no_grad():
        model.train().loss(batch)
    return calls


def assert_half_is_dropped(values_BTD: Tensor, given_BTD: Tensor, *, one_mask: bool) -> None:
    """About half of what was given is zero, the rest twice as large; with one mask, in all places of a sequence."""
    there, kept = given_BTD != 0, values_BTD != 0
    share = kept[there].float().mean().item()
    assert 0.2 < share < 0.8, f"{share:.0%} of the values are kept"
    assert torch.equal(values_BTD, 2 * given_BTD * kept), "what is kept is not twice as large"
    partly_BD = (there & kept).any(dim=1) & (there & ~kept).any(dim=1)
    assert partly_BD.any() != one_mask, f"{partly_BD.sum()} of {partly_BD.numel()} masks differ from place to place"
