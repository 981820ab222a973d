"""Sentiment in five classes: a biattentive classification network (McCann et al. 2017) with ELMo.

As we understand the supplement of Peters et al. 2018, the head has two ReLU layers in place of maxout layers. Values
that it does not give (widths of the head, dropouts) are those of AllenNLP's first configuration.

Shapes: B phrases, T tokens, E width of an input, H hidden width, D width of the pooled vectors, K classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import FrozenConfig, Share
from elmokit.nn.attention import self_biattention
from elmokit.nn.basic import Dropout, masked_max, masked_mean, masked_softmax
from elmokit.nn.lstm import BiLSTM
from elmokit.readers.sst import SentimentTree, read_sst
from elmokit.tasks.classification import (
    Choice,
    Classification,
    ClassLabels,
    ClassTarget,
    Distribution,
    distributions,
    list_classes,
)
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.task import Batch, Sequences, Task, read_words
from elmokit.text.rules import RAW_ENGLISH, TextRules

CLASSES = ("very negative", "negative", "neutral", "positive", "very positive")
"""Names of the treebank's labels 0 to 4."""
SHORTEST_PHRASE = 4  # tokens of a phrase inside a sentence to train on

# Spelling of the treebank -> spelling of the biLM's text, static vectors and users.
_PLAIN = {"-LRB-": "(", "-RRB-": ")", "``": '"', "''": '"', "`": "'"}


@dataclass(frozen=True)
class Phrase:
    """Sentence, or a phrase of one."""

    tokens: tuple[str, ...]
    label: str | None
    """One of ``CLASSES``; None if unlabeled."""


class SSTSettings(FrozenConfig):
    """Sizes of the model; the defaults are the paper's."""

    hidden_dim: PositiveInt = 300
    input_dropout: Share = 0.25
    """On the token inputs."""
    projection_dropout: Share = 0.25
    """On the layer between these and the first LSTM."""
    pooling_dropout: Share = 0.1
    """On the pooled vectors."""
    head_dims: tuple[PositiveInt, PositiveInt] = (1200, 600)
    head_dropouts: tuple[Share, Share] = (0.2, 0.3)
    """After each of the two ReLU layers."""


class SSTModel(nn.Module):
    """Biattentive classification network: encodes a phrase, attends to itself, integrates, and pools in four ways."""

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
        """Return the scores of the classes, (B, K)."""
        (column,) = batch.columns
        read = self.tokens(column)
        encoded_BTH = self.encoder(self.project(read.inputs_BTE), read.mask_BT)
        integrated_BTD = self.integrator(self_biattention(encoded_BTH, read.mask_BT), read.mask_BT)
        if read.elmo_BTD is not None:
            integrated_BTD = torch.cat([integrated_BTD, read.elmo_BTD], dim=2)
        scores_BK: Tensor = self.classify(self._pooled(integrated_BTD, read.mask_BT))
        return scores_BK

    def _pooled(self, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return maximum, minimum, mean, and a mean with trained weights, (B, 4 D)."""
        weights_BT = masked_softmax(self.weigh(inputs_BTD).squeeze(2), mask_BT)
        weighed_BD = (weights_BT[:, None, :] @ inputs_BTD).squeeze(1)
        highest_BD, lowest_BD = masked_max(inputs_BTD, mask_BT), -masked_max(-inputs_BTD, mask_BT)
        return torch.cat([highest_BD, lowest_BD, masked_mean(inputs_BTD, mask_BT), weighed_BD], dim=1)

    def loss(self, batch: Batch[ClassTarget]) -> Tensor:
        """Return the mean negative log-likelihood of the gold classes."""
        assert batch.target.classes_B is not None
        return functional.cross_entropy(self(batch), batch.target.classes_B)

    def outputs(self, batch: Batch[ClassTarget]) -> list[Distribution]:
        """Return the distribution over the classes of every phrase."""
        return distributions(self(batch))


class SSTTask(Classification):
    """Sentiment in the trees of the Stanford Sentiment Treebank."""

    name = "sst"
    settings: type[FrozenConfig] = SSTSettings

    def read_training(self, path: Path) -> list[Phrase]:
        """Read the sentences of a file and their longer phrases."""
        return [phrase for tree in read_sst(path) for phrase in _parts(tree)]

    def read(self, path: Path) -> list[Phrase]:
        """Read the sentences of a file."""
        return [_phrase(tree) for tree in read_sst(path)]

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[Phrase]:
        """Return a line as one sentence. Given tokens are converted like those of the treebank's files."""
        tokens = read_words(text, rules)
        return [Phrase(plain_tokens(tokens) if rules.tokenized else tokens, None)]

    def sequences(self, example: Phrase) -> Sequences:
        """Return the phrase in one column."""
        return ([example.tokens],)

    def learn_labels(self, examples: Sequence[Phrase]) -> ClassLabels:
        """Return the classes that occur, from negative to positive."""
        return list_classes(examples, order=CLASSES)

    def build(self, settings: SSTSettings, labels: ClassLabels, tokens: TokenEncoder) -> SSTModel:
        """Return a new model."""
        return SSTModel(settings, labels, tokens)

    def show(self, example: Phrase, prediction: Choice) -> str:
        """Return the class and the sentence: ``very positive (81%): What a film !``."""
        return f"{prediction}: {' '.join(example.tokens)}"

    def to_json(self, example: Phrase, prediction: Choice) -> dict[str, Any]:
        """Return tokens, class and probabilities."""
        return {
            "tokens": list(example.tokens),
            "label": prediction.label,
            "probabilities": prediction.probabilities,
        }


TASK: Task[Phrase, ClassLabels, ClassTarget, Distribution, Choice] = SSTTask()


def plain_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    r"""Return treebank tokens as our tokenizer writes them: ``does n't -LRB- 9\/11`` becomes ``doesn 't ( 9/11``."""
    plain = [_PLAIN.get(token, token.replace("\\", "")) for token in tokens]
    for index in range(1, len(plain)):
        if plain[index] == "n't":
            plain[index - 1 : index + 1] = [plain[index - 1] + "n", "'t"]
    return tuple(plain)


def _parts(sentence: SentimentTree) -> Iterator[Phrase]:
    return (_phrase(tree) for tree in sentence.subtrees() if tree is sentence or len(tree.tokens) >= SHORTEST_PHRASE)


def _phrase(tree: SentimentTree) -> Phrase:
    return Phrase(plain_tokens(tree.tokens), CLASSES[tree.label])
