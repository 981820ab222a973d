"""Sentiment in five classes: a biattentive classification network (McCann et al. 2017) with ELMo.

As we understand the supplement of Peters et al. 2018, the head is two relu layers in place of maxout layers. What it
does not give (widths of the head, dropouts) is as in AllenNLP's first configuration.

Shapes: B phrases, T tokens, E width of an input, H hidden width, D width of what is pooled, K classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import FrozenConfig
from elmokit.errors import InputError
from elmokit.nn.attention import self_biattention
from elmokit.nn.basic import BiLSTM, Dropout, masked_max, masked_mean, masked_softmax
from elmokit.readers.sst import SentimentTree, read_sst
from elmokit.tasks.classification import (
    Choice,
    ClassLabels,
    ClassTarget,
    Distribution,
    accuracy,
    choose,
    distributions,
    list_classes,
    number_classes,
    unknown_classes,
)
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.recipe import Share
from elmokit.tasks.task import Batch, Sequences, Task, mean_arrays
from elmokit.text.tokens import RAW_ENGLISH, TextRules

CLASSES = ("very negative", "negative", "neutral", "positive", "very positive")
"""The names of the treebank's labels 0 to 4."""
SHORTEST_PHRASE = 4  # tokens of a part of a sentence that is worth learning from

# How the treebank writes what everyone else writes otherwise: the biLM's text, static vectors, a user.
_PLAIN = {"-LRB-": "(", "-RRB-": ")", "``": '"', "''": '"', "`": "'"}


@dataclass(frozen=True)
class Phrase:
    """A sentence, or a part of one."""

    tokens: tuple[str, ...]
    label: str | None
    """One of ``CLASSES``; None if it is not known."""


class SSTSettings(FrozenConfig):
    """The sizes of the model; the defaults are the paper's."""

    hidden_dim: PositiveInt = 300
    input_dropout: Share = 0.25
    """On what is read of a token."""
    projection_dropout: Share = 0.25
    """On the layer between that and the first LSTM."""
    pooling_dropout: Share = 0.1
    """On what is known of the whole phrase."""
    head_dims: tuple[PositiveInt, PositiveInt] = (1200, 600)
    head_dropouts: tuple[Share, Share] = (0.2, 0.3)
    """After each of the two layers."""


class SSTModel(nn.Module):
    """Reads a phrase, lets its tokens look at each other, reads what was found, and pools it in four ways."""

    def __init__(self, settings: SSTSettings, labels: ClassLabels, tokens: TokenEncoder) -> None:
        super().__init__()
        hidden_dim = settings.hidden_dim
        pooled_dim = 2 * hidden_dim + tokens.output_dim
        self.tokens = tokens
        self.project = nn.Sequential(
            Dropout(settings.input_dropout),
            nn.Linear(tokens.input_dim, hidden_dim),
            nn.ReLU(),
            Dropout(settings.projection_dropout),
        )
        self.encoder = BiLSTM(hidden_dim, hidden_dim)
        self.integrator = BiLSTM(6 * hidden_dim, hidden_dim)
        self.weigh = nn.Linear(pooled_dim, 1)
        layers: list[nn.Module] = [Dropout(settings.pooling_dropout)]
        widths = (4 * pooled_dim, *settings.head_dims)
        for (read_dim, made_dim), dropout in zip(pairwise(widths), settings.head_dropouts, strict=True):
            layers += [nn.Linear(read_dim, made_dim), nn.ReLU(), Dropout(dropout)]
        self.classify = nn.Sequential(*layers, nn.Linear(widths[-1], len(labels.classes)))

    def forward(self, batch: Batch[ClassTarget]) -> Tensor:
        """The scores of the classes, (B, K)."""
        (column,) = batch.columns
        read = self.tokens(column)
        encoded_BTH = self.encoder(self.project(read.inputs_BTE), read.mask_BT)
        integrated_BTD = self.integrator(self_biattention(encoded_BTH, read.mask_BT), read.mask_BT)
        if read.elmo_BTD is not None:
            integrated_BTD = torch.cat([integrated_BTD, read.elmo_BTD], dim=2)
        scores_BK: Tensor = self.classify(self._pooled(integrated_BTD, read.mask_BT))
        return scores_BK

    def _pooled(self, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Largest, smallest, mean, and a mean with learned weights, (B, 4 D)."""
        weights_BT = masked_softmax(self.weigh(inputs_BTD).squeeze(2), mask_BT)
        weighed_BD = (weights_BT[:, None, :] @ inputs_BTD).squeeze(1)
        highest_BD, lowest_BD = masked_max(inputs_BTD, mask_BT), -masked_max(-inputs_BTD, mask_BT)
        return torch.cat([highest_BD, lowest_BD, masked_mean(inputs_BTD, mask_BT), weighed_BD], dim=1)

    def loss(self, batch: Batch[ClassTarget]) -> Tensor:
        """The mean over phrases of the right class's negative log-likelihood."""
        assert batch.target.classes_B is not None
        return functional.cross_entropy(self(batch), batch.target.classes_B)

    def believe(self, batch: Batch[ClassTarget]) -> list[Distribution]:
        """Every phrase's distribution over the classes."""
        return distributions(self(batch))


def read(path: Path, to_train_on: bool) -> list[Phrase]:  # noqa: FBT001  every task's `read` is called so
    """The sentences of a file of the treebank; to train on, their longer parts too."""
    trees = read_sst(path)
    if to_train_on:
        return [phrase for tree in trees for phrase in _parts(tree)]
    return [_phrase(tree) for tree in trees]


def _parts(sentence: SentimentTree) -> Iterator[Phrase]:
    return (_phrase(tree) for tree in sentence.subtrees() if tree is sentence or len(tree.tokens) >= SHORTEST_PHRASE)


def _phrase(tree: SentimentTree) -> Phrase:
    return Phrase(plain_tokens(tree.tokens), CLASSES[tree.label])


def plain_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    r"""The treebank's tokens as our tokeniser would have them: ``does n't -LRB- 9\/11`` becomes ``doesn 't ( 9/11``."""
    plain = [_PLAIN.get(token, token.replace("\\", "")) for token in tokens]
    for index in range(1, len(plain)):
        if plain[index] == "n't":
            plain[index - 1 : index + 1] = [plain[index - 1] + "n", "'t"]
    return tuple(plain)


def read_text(lines: Sequence[str], rules: TextRules = RAW_ENGLISH) -> list[Phrase]:
    """A sentence a line. Tokens that are given are taken for the treebank's, and read as those of its files are."""
    plain = plain_tokens if rules.tokenized else tuple
    phrases = [Phrase(plain(rules.tokens(line)), None) for line in lines]
    for number, phrase in enumerate(phrases, start=1):
        if not phrase.tokens:
            raise InputError(f"line {number}: no words; expected a sentence")
    return phrases


def sequences(example: Phrase) -> Sequences:
    """The phrase."""
    return ([example.tokens],)


def show(example: Phrase, prediction: Choice) -> str:
    """The class, then the sentence: ``very positive (81%): What a film !`` is one."""
    return f"{prediction}: {' '.join(example.tokens)}"


def to_json(example: Phrase, prediction: Choice) -> dict[str, Any]:
    """Tokens, class and probabilities."""
    return {
        "tokens": list(example.tokens),
        "label": prediction.label,
        "probabilities": prediction.probabilities,
    }


TASK = Task(
    name="sst",
    metric="accuracy",
    settings=SSTSettings,
    labels=ClassLabels,
    read=read,
    read_text=read_text,
    sequences=sequences,
    learn_labels=partial(list_classes, order=CLASSES),
    build=SSTModel,
    collate=number_classes,
    decode=choose,
    combine=mean_arrays,
    score=accuracy,
    unknown_labels=unknown_classes,
    show=show,
    to_json=to_json,
)
