"""A task of our own, which no part of the trainer has heard of: mark the words that rhyme with the one before.

Rhyming is here to end with the same letter. A word's own spelling is not enough, so a model has to read its neighbor.
"""

import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import FrozenConfig
from elmokit.errors import InputError
from elmokit.nn.lstm import BiLSTM
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.loop import run_task
from elmokit.tasks.materials import TaskData
from elmokit.tasks.recipe import CharSettings, ElmoSettings, TaskRecipe, TrainingSettings, WordSettings
from elmokit.tasks.task import AnyTask, Batch, Sequences, Task, mean_arrays
from elmokit.text.rules import RAW_ENGLISH, TextRules

WORDS = "ba bo be da do de ga go ge ka ko ke la lo le ma mo me na no ne".split()
PLAIN, RHYME = "plain", "rhyme"


@dataclass(frozen=True)
class Verse:
    tokens: tuple[str, ...]
    tags: tuple[str, ...] = ()


class VerseSettings(FrozenConfig):
    hidden_dim: int = 8
    dropout: float = 0.2


class VerseLabels(FrozenConfig):
    tags: tuple[str, ...]


class VerseModel(nn.Module):
    def __init__(self, settings: VerseSettings, labels: VerseLabels, tokens: TokenEncoder) -> None:
        super().__init__()
        self.tokens = tokens
        self.dropout = nn.Dropout(settings.dropout)
        self.rnn = BiLSTM(tokens.input_dim, settings.hidden_dim)
        self.emit = nn.Linear(2 * settings.hidden_dim + tokens.output_dim, len(labels.tags))

    def forward(self, batch: Batch[Any]) -> Tensor:
        read = self.tokens(batch.columns[0])
        hidden_BTH = self.rnn(self.dropout(read.inputs_BTE), read.mask_BT)
        parts = [hidden_BTH] if read.elmo_BTD is None else [hidden_BTH, read.elmo_BTD]
        return self.emit(torch.cat(parts, dim=2)).log_softmax(dim=2)

    def loss(self, batch: Batch[Any]) -> Tensor:
        return functional.nll_loss(self(batch)[batch.columns[0].mask_BT], batch.target)

    def outputs(self, batch: Batch[Any]) -> list[Any]:
        lengths = batch.columns[0].mask_BT.sum(dim=1).tolist()
        return [beliefs_TK[:length].numpy() for beliefs_TK, length in zip(self(batch), lengths, strict=True)]


def verse(*tokens: str) -> Verse:
    return Verse(
        tokens,
        tuple(RHYME if i and token[-1] == tokens[i - 1][-1] else PLAIN for i, token in enumerate(tokens)),
    )


def verses(num_verses: int, *, seed: int, shortest: int = 2, longest: int = 9) -> list[Verse]:
    chance = np.random.default_rng(seed)
    lengths = chance.integers(shortest, longest + 1, size=num_verses)
    return [verse(*chance.choice(WORDS, size=length).tolist()) for length in lengths]


class RhymesTask:
    name = "rhymes"
    metric = "accuracy"
    settings = VerseSettings
    labels = VerseLabels
    reads_paragraphs = False

    def read_training(self, path: Path) -> list[Verse]:
        return self.read(path)

    def read(self, path: Path) -> list[Verse]:
        return [verse(*line.split()) for line in path.read_text("utf-8").splitlines()]

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[Verse]:
        return [Verse(tuple(rules.tokens(text)))]

    def sequences(self, example: Verse) -> Sequences:
        return ([example.tokens],)

    def learn_labels(self, examples: Sequence[Verse]) -> VerseLabels:
        return VerseLabels(tags=tuple(sorted({tag for one in examples for tag in one.tags})))

    def build(self, settings: VerseSettings, labels: VerseLabels, tokens: TokenEncoder) -> VerseModel:
        return VerseModel(settings, labels, tokens)

    def collate(self, examples: Sequence[Verse], labels: VerseLabels, *, labeled: bool) -> Tensor | None:
        if not labeled:
            return None
        tags = [tag for example in examples for tag in example.tags]
        if unknown := set(tags) - set(labels.tags):
            raise InputError(f"unknown tags: {unknown}")
        return torch.tensor([labels.tags.index(tag) for tag in tags])

    def decode(self, output: np.ndarray, example: Verse, labels: VerseLabels) -> tuple[str, ...]:
        del example
        return tuple(labels.tags[index] for index in output.argmax(axis=1))

    def combine(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        return mean_arrays(outputs)

    def score(self, examples: Sequence[Verse], predictions: Sequence[tuple[str, ...]]) -> dict[str, float]:
        pairs = [
            (right, guess)
            for example, prediction in zip(examples, predictions, strict=True)
            for right, guess in zip(example.tags, prediction, strict=True)
        ]
        return {"accuracy": sum(right == guess for right, guess in pairs) / len(pairs), "num_tags": float(len(pairs))}

    def unknown_labels(self, examples: Sequence[Verse], labels: VerseLabels) -> set[str]:
        return {tag for one in examples for tag in one.tags} - set(labels.tags)

    def vary(self, example: Verse, rng: np.random.Generator) -> Verse:
        del rng
        return example

    def show(self, example: Verse, prediction: tuple[str, ...]) -> str:
        return " ".join(map("/".join, zip(example.tokens, prediction, strict=True)))

    def to_json(self, example: Verse, prediction: tuple[str, ...]) -> dict[str, Any]:
        return {"tokens": example.tokens, "tags": prediction}


RHYMES: Task[Verse, VerseLabels, Tensor | None, np.ndarray, tuple[str, ...]] = RhymesTask()


def changed(task: AnyTask, **changes: Any) -> AnyTask:
    """The same task with some attributes or methods replaced."""
    other = copy(task)
    vars(other).update(changes)
    return other


def recipe(
    *,
    words: str | None = None,
    bilm: str | None = None,
    chars: bool = True,
    elmo: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **training: Any,
) -> TaskRecipe:
    settings = {"batch_size": 8, "epochs": 3, "learning_rate": 0.02, "seed": 5} | training
    return TaskRecipe(
        task="rhymes",
        words=WordSettings(file=words, trained=words is not None),
        chars=CharSettings(char_dim=4, filters=((1, 6), (2, 6)), dropout=0.1) if chars else None,
        elmo=ElmoSettings(model=bilm, **(elmo or {})),
        model=model or {},
        training=TrainingSettings(**settings),
    )


def toy_data(num_train: int = 60) -> TaskData:
    return TaskData(verses(num_train, seed=1), verses(12, seed=2), lambda: verses(15, seed=3))


class EveryStepModel(VerseModel):
    """Lets others know of every step."""

    def loss(self, batch: Batch[Any]) -> Tensor:
        for listener in LISTENERS:
            listener()
        return super().loss(batch)


LISTENERS: list[Callable[[], object]] = []
EVERY_STEP = changed(RHYMES, build=EveryStepModel)


def train_slowly(asked: TaskRecipe, folder: Path) -> None:
    """A run in a process of its own, that leaves others the time to kill it."""
    torch.set_num_threads(1)
    LISTENERS.append(lambda: time.sleep(0.01))
    run_task(EVERY_STEP, asked, toy_data(), folder, report=lambda _: None, stop=threading.Event())
