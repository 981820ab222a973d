"""Named entities: a character CNN, two biLSTMs and a CRF (Peters et al. 2018, supplement A.5).

Shapes: B sentences, T tokens, K tags, H width of the upper biLSTM.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from elmokit.config import FrozenConfig
from elmokit.errors import InputError
from elmokit.metrics.spans import score_spans
from elmokit.metrics.tags import bio_to_bioul, bio_to_spans, bioul_rules, bioul_to_bio
from elmokit.nn.basic import BiLSTM, VariationalDropout
from elmokit.nn.crf import LinearChainCRF, RuleScores, rule_scores, viterbi_decode
from elmokit.readers.conll2003 import TaggedSentence, read_conll2003
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.recipe import Share
from elmokit.tasks.task import Batch, Sequences, Task
from elmokit.text.tokens import RAW_ENGLISH, TextRules


class NERSettings(FrozenConfig):
    """The sizes of the model; the defaults are the paper's."""

    hidden_dims: tuple[PositiveInt, PositiveInt] = (200, 100)
    dropout: Share = 0.5


class NERLabels(FrozenConfig):
    """The tags, in BIOUL."""

    tags: tuple[str, ...]


@dataclass(frozen=True)
class NERTarget:
    """The tags' numbers, zero where there is no token; None where they are not asked for."""

    tags_BT: Tensor | None


@dataclass(frozen=True)
class ChainBelief:
    """The scores of every tag at every token, and of every pair of neighbours."""

    emissions_TK: np.ndarray[Any, Any]
    transitions_KK: np.ndarray[Any, Any]


class NERModel(nn.Module):
    """Tags a sentence."""

    def __init__(self, settings: NERSettings, labels: NERLabels, tokens: TokenEncoder) -> None:
        super().__init__()
        lower_dim, upper_dim = settings.hidden_dims
        self.tokens = tokens
        self.dropout = VariationalDropout(settings.dropout)
        self.lower = BiLSTM(tokens.input_dim, lower_dim)
        self.upper = BiLSTM(2 * lower_dim + tokens.output_dim, upper_dim)
        self.emit = nn.Linear(2 * upper_dim, len(labels.tags))
        self.crf = LinearChainCRF(len(labels.tags))

    def forward(self, batch: Batch[NERTarget]) -> Tensor:
        """The scores of the tags, (B, T, K)."""
        (column,) = batch.columns
        read = self.tokens(column)
        lower_BTH = self.lower(self.dropout(read.inputs_BTE), read.mask_BT)
        if read.elmo_BTD is not None:
            lower_BTH = torch.cat([lower_BTH, read.elmo_BTD], dim=2)
        upper_BTH = self.upper(self.dropout(lower_BTH), read.mask_BT)
        emissions_BTK: Tensor = self.emit(upper_BTH)
        return emissions_BTK

    def loss(self, batch: Batch[NERTarget]) -> Tensor:
        """The right tags' negative log-likelihoods, summed as in AllenNLP: lambda and the clip are set for that."""
        assert batch.target.tags_BT is not None
        (column,) = batch.columns
        return -self.crf.log_likelihood(self(batch), batch.target.tags_BT, column.mask_BT).sum()

    def believe(self, batch: Batch[NERTarget]) -> list[ChainBelief]:
        """Every sentence's scores."""
        (column,) = batch.columns
        transitions_KK = self.crf.transitions.detach().cpu().numpy().copy()  # training goes on with the parameter
        emissions = self(batch).cpu().numpy()
        lengths = column.mask_BT.sum(dim=1).tolist()
        return [
            ChainBelief(emissions_TK[:length], transitions_KK)
            for emissions_TK, length in zip(emissions, lengths, strict=True)
        ]


def read(path: Path, to_train_on: bool) -> list[TaggedSentence]:  # noqa: FBT001  every task's `read` is called so
    """The sentences of a file in CoNLL-2003's columns."""
    del to_train_on
    found = list(read_conll2003(path))
    if not found:
        raise InputError(f"{path}: no sentence is in it; expected a token and its tag a line")
    return found


def read_text(lines: Sequence[str], rules: TextRules = RAW_ENGLISH) -> list[TaggedSentence]:
    """A sentence a line."""
    found = [TaggedSentence(tuple(rules.tokens(line)), (), 0) for line in lines]
    for number, example in enumerate(found, start=1):
        if not example.tokens:
            raise InputError(f"line {number} has no words; give a sentence a line, without empty lines")
    return found


def sequences(example: TaggedSentence) -> Sequences:
    """The sentence."""
    return ([example.tokens],)


def learn_labels(examples: Sequence[TaggedSentence]) -> NERLabels:
    """All four BIOUL tags of every type that occurs: one of them may be rare enough to be missing."""
    types = sorted({tag[2:] for example in examples for tag in example.tags if tag != "O"})
    return NERLabels(tags=("O", *(f"{kind}-{name}" for name in types for kind in "BILU")))


def collate(examples: Sequence[TaggedSentence], labels: NERLabels, labelled: bool) -> NERTarget:  # noqa: FBT001
    """The tags' numbers."""
    if not labelled:
        return NERTarget(None)
    number = {tag: index for index, tag in enumerate(labels.tags)}
    tags_BT = torch.zeros(len(examples), max(len(example.tokens) for example in examples), dtype=torch.int64)
    for row, example in enumerate(examples):
        if not example.tags:
            raise InputError(f"{' '.join(example.tokens)[:60]!r} has no tags, and the model is to learn from it")
        bioul = bio_to_bioul(example.tags)
        unknown = sorted({tag for tag in bioul if tag not in number})
        if unknown:
            raise InputError(f"the tag {unknown[0]!r} is not one that the model learns; it knows {', '.join(number)}")
        tags_BT[row, : len(bioul)] = torch.tensor([number[tag] for tag in bioul])
    return NERTarget(tags_BT)


@lru_cache(maxsize=8)
def _rules(tags: tuple[str, ...]) -> RuleScores:
    return rule_scores(bioul_rules(tags), torch.zeros(()))


def decode(belief: ChainBelief, example: TaggedSentence, labels: NERLabels) -> tuple[str, ...]:
    """The best tags that BIOUL allows, in BIO."""
    del example
    emissions_TK = torch.from_numpy(belief.emissions_TK)
    rules = _rules(labels.tags)
    transitions_KK = torch.from_numpy(belief.transitions_KK) + rules.transitions_KK
    best = viterbi_decode(emissions_TK, transitions_KK, rules.start_K, rules.end_K)
    return tuple(bioul_to_bio([labels.tags[index] for index in best]))


def combine(beliefs: Sequence[ChainBelief]) -> ChainBelief:
    """The mean of all scores: the chain of the models' geometric mean.

    The mean of the distributions is itself no chain: to find its best tags, one would have to try all of them.
    """
    return ChainBelief(
        np.mean([belief.emissions_TK for belief in beliefs], axis=0),
        np.mean([belief.transitions_KK for belief in beliefs], axis=0),
    )


def score(examples: Sequence[TaggedSentence], predictions: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Precision, recall and F1 of exact spans, as conlleval counts them."""
    found = score_spans([example.tags for example in examples], predictions)
    return {"f1": found.f1, "precision": found.precision, "recall": found.recall}


def unknown_labels(examples: Sequence[TaggedSentence], labels: NERLabels) -> set[str]:
    """Types of entities that no tag of the model names."""
    known = {tag[2:] for tag in labels.tags}
    return {tag[2:] for example in examples for tag in example.tags if tag != "O" and tag[2:] not in known}


def show(example: TaggedSentence, prediction: tuple[str, ...]) -> str:
    """The sentence, entities in brackets: ``[PER Ada Lovelace] wrote to [PER Babbage] .`` is one."""
    words = list(example.tokens)
    for span in bio_to_spans(prediction):
        words[span.start] = f"[{span.label} {words[span.start]}"
        words[span.end - 1] += "]"
    return " ".join(words)


def to_json(example: TaggedSentence, prediction: tuple[str, ...]) -> dict[str, Any]:
    """Tokens, tags and entities."""
    entities = [
        {
            "type": span.label,
            "start": span.start,
            "end": span.end,
            "tokens": list(example.tokens[span.start : span.end]),
        }
        for span in bio_to_spans(prediction)
    ]
    return {"tokens": list(example.tokens), "tags": list(prediction), "entities": entities}


TASK = Task(
    name="ner",
    metric="f1",
    settings=NERSettings,
    labels=NERLabels,
    read=read,
    read_text=read_text,
    sequences=sequences,
    learn_labels=learn_labels,
    build=NERModel,
    collate=collate,
    decode=decode,
    combine=combine,
    score=score,
    unknown_labels=unknown_labels,
    show=show,
    to_json=to_json,
)
