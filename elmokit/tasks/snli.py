"""Entailment: does a premise entail a hypothesis, contradict it, or neither? ESIM (Chen et al. 2017) with ELMo.

The settings are those of Peters et al. 2018, as we understand their supplement. The dataset's parses are not used,
since some of its files have none: every sentence is tokenized like the biLM's own text.

Shapes: B pairs, P = 2 B sentences (all premises, then all hypotheses), T tokens of the longest, N tokens of all
sentences, E width of an input, D width of an encoded token, H hidden width, K classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import FrozenConfig, Share
from elmokit.errors import InputError
from elmokit.nn.attention import soft_align
from elmokit.nn.basic import Dropout, VariationalDropout, masked_max, masked_mean
from elmokit.nn.lstm import BiLSTM
from elmokit.readers.snli import LABELS, read_snli
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
from elmokit.tasks.task import Batch, Sequences, Task
from elmokit.text.rules import RAW_ENGLISH, TextRules
from elmokit.text.tokens import tokenize

CACHED_SENTENCES = 4096  # tokenized while reading: a premise is repeated within a few lines


@dataclass(frozen=True)
class TokenPair:
    """Tokens of a premise and a hypothesis."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str | None
    """One of the reader's ``LABELS``; None if unlabeled."""


class SNLISettings(FrozenConfig):
    """Sizes of the model; the defaults are the paper's."""

    hidden_dim: PositiveInt = 300
    dropout: Share = 0.5
    """At the input of every LSTM, one mask per sentence; and at the input of the last two layers."""
    attention_dropout: Share = 0.5
    """On the compared vectors after the attention. The paper uses it with ELMo only."""


class SNLIModel(nn.Module):
    """ESIM: encodes both sentences, aligns and compares their tokens, composes and pools."""

    def __init__(self, settings: SNLISettings, labels: ClassLabels, tokens: TokenEncoder) -> None:
        super().__init__()
        hidden_dim = settings.hidden_dim
        encoded_dim = 2 * hidden_dim + tokens.output_dim
        self.tokens = tokens
        self.rnn_dropout = VariationalDropout(settings.dropout)
        self.encoder = BiLSTM(tokens.input_dim, hidden_dim)
        self.compare = nn.Sequential(
            Dropout(settings.attention_dropout), nn.Linear(4 * encoded_dim, hidden_dim), nn.ReLU()
        )
        self.composer = BiLSTM(hidden_dim, hidden_dim)
        self.classify = nn.Sequential(
            Dropout(settings.dropout),
            nn.Linear(8 * hidden_dim, hidden_dim),
            nn.ReLU(),
            Dropout(settings.dropout),
            nn.Linear(hidden_dim, len(labels.classes)),
        )

    def forward(self, batch: Batch[ClassTarget]) -> Tensor:
        """Return the scores of the classes, (B, K)."""
        # Premises and hypotheses share every layer; in one batch the LSTM takes half as many steps.
        premises, hypotheses = (self.tokens(column) for column in batch.columns)
        mask_PT = _stack(premises.mask_BT, hypotheses.mask_BT)
        inputs_PTE = _stack(premises.inputs_BTE, hypotheses.inputs_BTE)
        encoded_PTD = self.encoder(self.rnn_dropout(inputs_PTE), mask_PT)
        if premises.elmo_BTD is not None:
            encoded_PTD = torch.cat([encoded_PTD, _stack(premises.elmo_BTD, hypotheses.elmo_BTD)], dim=2)
        compared_PTH = self._compared(encoded_PTD, mask_PT)
        composed_PTH = self.composer(self.rnn_dropout(compared_PTH), mask_PT)
        pooled = torch.cat([masked_mean(composed_PTH, mask_PT), masked_max(composed_PTH, mask_PT)], dim=1)
        scores_BK: Tensor = self.classify(torch.cat(pooled.chunk(2), dim=1))
        return scores_BK

    def _compared(self, encoded_PTD: Tensor, mask_PT: Tensor) -> Tensor:
        """Return every token compared with the other sentence as attended by it, (P, T, H)."""
        (premises_BTD, hypotheses_BTD), (premise_mask_BT, hypothesis_mask_BT) = encoded_PTD.chunk(2), mask_PT.chunk(2)
        seen_PTD = torch.cat(soft_align(premises_BTD, premise_mask_BT, hypotheses_BTD, hypothesis_mask_BT))
        # By far the widest layer, so padding is left out.
        token_ND, seen_ND = encoded_PTD[mask_PT], seen_PTD[mask_PT]
        compared_NH: Tensor = self.compare(
            torch.cat([token_ND, seen_ND, token_ND - seen_ND, token_ND * seen_ND], dim=1)
        )
        padded_PTH = compared_NH.new_zeros(*mask_PT.shape, compared_NH.shape[1])
        return padded_PTH.masked_scatter(mask_PT[:, :, None], compared_NH)

    def loss(self, batch: Batch[ClassTarget]) -> Tensor:
        """Return the mean negative log-likelihood of the gold classes."""
        assert batch.target.classes_B is not None
        return functional.cross_entropy(self(batch), batch.target.classes_B)

    def outputs(self, batch: Batch[ClassTarget]) -> list[Distribution]:
        """Return the distribution over the classes of every pair."""
        return distributions(self(batch))


def _stack(premises_BTD: Tensor, hypotheses_BSD: Tensor) -> Tensor:
    """Return premises, then hypotheses, padded on the right to the longest of all."""
    longest = max(premises_BTD.shape[1], hypotheses_BSD.shape[1])
    stacked = premises_BTD.new_zeros(2 * len(premises_BTD), longest, *premises_BTD.shape[2:])
    stacked[: len(premises_BTD), : premises_BTD.shape[1]] = premises_BTD
    stacked[len(premises_BTD) :, : hypotheses_BSD.shape[1]] = hypotheses_BSD
    return stacked


class SNLITask(Classification):
    """Textual entailment in SNLI's JSON lines."""

    name = "snli"
    settings: type[FrozenConfig] = SNLISettings

    def read_training(self, path: Path) -> list[TokenPair]:
        """Read the labeled pairs of a file."""
        return self.read(path)

    def read(self, path: Path) -> list[TokenPair]:
        """Read the pairs of a file that have a gold label, as the official scores count them."""
        tokens_of = lru_cache(CACHED_SENTENCES)(lambda sentence: tuple(tokenize(sentence)))
        return [
            TokenPair(tokens_of(pair.premise), tokens_of(pair.hypothesis), pair.label)
            for pair in read_snli(path, drop_unlabelled=True)
        ]

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[TokenPair]:
        """Return a line as one pair: premise, tab, hypothesis."""
        sentences = [tuple(rules.tokens(part)) for part in text.split("\t")]
        if len(sentences) != 2 or not all(sentences):
            raise InputError(f"{text[:80]!r} is not a pair of sentences; expected a premise, a tab and a hypothesis")
        premise, hypothesis = sentences
        return [TokenPair(premise, hypothesis, label=None)]

    def sequences(self, example: TokenPair) -> Sequences:
        """Return premise and hypothesis, one column each."""
        return ([example.premise], [example.hypothesis])

    def learn_labels(self, examples: Sequence[TokenPair]) -> ClassLabels:
        """Return the relations that occur."""
        return list_classes(examples, order=LABELS)

    def build(self, settings: SNLISettings, labels: ClassLabels, tokens: TokenEncoder) -> SNLIModel:
        """Return a new model."""
        return SNLIModel(settings, labels, tokens)

    def show(self, example: TokenPair, prediction: Choice) -> str:
        """Return the relation and both sentences: ``entailment (97%): A man sleeps . | Someone sleeps .``."""
        return f"{prediction}: {' '.join(example.premise)} | {' '.join(example.hypothesis)}"

    def to_json(self, example: TokenPair, prediction: Choice) -> dict[str, Any]:
        """Return tokens, relation and probabilities."""
        return {
            "premise": list(example.premise),
            "hypothesis": list(example.hypothesis),
            "label": prediction.label,
            "probabilities": prediction.probabilities,
        }


TASK: Task[TokenPair, ClassLabels, ClassTarget, Distribution, Choice] = SNLITask()
