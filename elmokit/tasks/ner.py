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

from elmokit.config import FrozenConfig, Share
from elmokit.errors import InputError
from elmokit.metrics.spans import score_spans
from elmokit.metrics.tags import bio_to_bioul, bio_to_spans, bioul_rules, bioul_to_bio
from elmokit.nn.basic import VariationalDropout
from elmokit.nn.crf import LinearChainCRF, RuleScores, rule_scores, viterbi_decode
from elmokit.nn.lstm import BiLSTM
from elmokit.readers.conll2003 import TaggedSentence, read_conll2003
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.task import Batch, Sequences, Task, read_words
from elmokit.text.rules import RAW_ENGLISH, TextRules


class NERSettings(FrozenConfig):
    """Sizes of the model; the defaults are the paper's."""

    hidden_dims: tuple[PositiveInt, PositiveInt] = (200, 100)
    dropout: Share = 0.5


class NERLabels(FrozenConfig):
    """Tags in BIOUL."""

    tags: tuple[str, ...]


@dataclass(frozen=True)
class NERTarget:
    """Tag indices, zero on padding; None without labels."""

    tags_BT: Tensor | None


@dataclass(frozen=True)
class ChainScores:
    """Score of every tag at every token, and of every pair of adjacent tags."""

    emissions_TK: np.ndarray[Any, Any]
    transitions_KK: np.ndarray[Any, Any]


class NERModel(nn.Module):
    """Two biLSTMs and a CRF that tag a sentence."""

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
        """Return the scores of the tags, (B, T, K)."""
        (column,) = batch.columns
        read = self.tokens(column)
        lower_BTH = self.lower(self.dropout(read.inputs_BTE), read.mask_BT)
        if read.elmo_BTD is not None:
            lower_BTH = torch.cat([lower_BTH, read.elmo_BTD], dim=2)
        upper_BTH = self.upper(self.dropout(lower_BTH), read.mask_BT)
        emissions_BTK: Tensor = self.emit(upper_BTH)
        return emissions_BTK

    def loss(self, batch: Batch[NERTarget]) -> Tensor:
        """Return the summed negative log-likelihood of the gold tags; lambda and the clip are tuned for a sum."""
        assert batch.target.tags_BT is not None
        (column,) = batch.columns
        return -self.crf.log_likelihood(self(batch), batch.target.tags_BT, column.mask_BT).sum()

    def outputs(self, batch: Batch[NERTarget]) -> list[ChainScores]:
        """Return the scores of every sentence."""
        (column,) = batch.columns
        transitions_KK = self.crf.transitions.detach().cpu().numpy().copy()  # training changes the parameter
        emissions = self(batch).cpu().numpy()
        lengths = column.mask_BT.sum(dim=1).tolist()
        return [
            ChainScores(emissions_TK[:length], transitions_KK)
            for emissions_TK, length in zip(emissions, lengths, strict=True)
        ]


class NERTask:
    """Named entities in CoNLL-2003's columns."""

    name = "ner"
    metric = "f1"
    settings: type[FrozenConfig] = NERSettings
    labels: type[NERLabels] = NERLabels
    reads_paragraphs = False

    def read_training(self, path: Path) -> list[TaggedSentence]:
        """Read the sentences of a file."""
        return self.read(path)

    def read(self, path: Path) -> list[TaggedSentence]:
        """Read the sentences of a file."""
        sentences = list(read_conll2003(path))
        if not sentences:
            raise InputError(f"{path}: no sentences; expected one token and its tag per line")
        return sentences

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[TaggedSentence]:
        """Return a line as one sentence."""
        return [TaggedSentence(read_words(text, rules), (), 0)]

    def sequences(self, example: TaggedSentence) -> Sequences:
        """Return the sentence in one column."""
        return ([example.tokens],)

    def learn_labels(self, examples: Sequence[TaggedSentence]) -> NERLabels:
        """Return all four BIOUL tags of every type; some of them may be too rare to occur."""
        types = sorted({tag[2:] for example in examples for tag in example.tags if tag != "O"})
        return NERLabels(tags=("O", *(f"{kind}-{name}" for name in types for kind in "BILU")))

    def build(self, settings: NERSettings, labels: NERLabels, tokens: TokenEncoder) -> NERModel:
        """Return a new model."""
        return NERModel(settings, labels, tokens)

    def collate(self, examples: Sequence[TaggedSentence], labels: NERLabels, *, labeled: bool) -> NERTarget:
        """Return the tag indices."""
        bioul = [tuple(bio_to_bioul(example.tags)) for example in examples]
        return NERTarget(number_tags(examples, bioul, labels) if labeled else None)

    def decode(self, output: ChainScores, example: TaggedSentence, labels: NERLabels) -> tuple[str, ...]:
        """Return the best tags that BIOUL allows, in BIO."""
        del example
        emissions_TK = torch.from_numpy(output.emissions_TK)
        rules = _rules(labels.tags)
        transitions_KK = torch.from_numpy(output.transitions_KK) + rules.transitions_KK
        best = viterbi_decode(emissions_TK, transitions_KK, rules.start_K, rules.end_K)
        return tuple(bioul_to_bio([labels.tags[index] for index in best]))

    def combine(self, outputs: Sequence[ChainScores]) -> ChainScores:
        """Return the mean scores: the chain of the models' geometric mean.

        The mean of the distributions is not a chain, so its best tags cannot be found by Viterbi search.
        """
        return ChainScores(
            np.mean([output.emissions_TK for output in outputs], axis=0),
            np.mean([output.transitions_KK for output in outputs], axis=0),
        )

    def score(self, examples: Sequence[TaggedSentence], predictions: Sequence[tuple[str, ...]]) -> dict[str, float]:
        """Return precision, recall and F1 of exact spans, counted like conlleval."""
        found = score_spans([example.tags for example in examples], predictions)
        return {"f1": found.f1, "precision": found.precision, "recall": found.recall}

    def unknown_labels(self, examples: Sequence[TaggedSentence], labels: NERLabels) -> set[str]:
        """Return entity types that no tag of the label space names."""
        known = {tag[2:] for tag in labels.tags}
        return {tag[2:] for example in examples for tag in example.tags if tag != "O" and tag[2:] not in known}

    def vary(self, example: TaggedSentence, rng: np.random.Generator) -> TaggedSentence:
        """Return the same sentence in every epoch."""
        del rng
        return example

    def show(self, example: TaggedSentence, prediction: tuple[str, ...]) -> str:
        """Return the sentence with entities in brackets: ``[PER Ada Lovelace] wrote to [PER Babbage] .``."""
        words = list(example.tokens)
        for span in bio_to_spans(prediction):
            words[span.start] = f"[{span.label} {words[span.start]}"
            words[span.end - 1] += "]"
        return " ".join(words)

    def to_json(self, example: TaggedSentence, prediction: tuple[str, ...]) -> dict[str, Any]:
        """Return tokens, tags and entities."""
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


TASK: Task[TaggedSentence, NERLabels, NERTarget, ChainScores, tuple[str, ...]] = NERTask()


def number_tags(examples: Sequence[TaggedSentence], tags: Sequence[Sequence[str]], labels: NERLabels) -> Tensor:
    """Return the indices of the gold tags, (B, T), zero on padding."""
    number = {tag: index for index, tag in enumerate(labels.tags)}
    tags_BT = torch.zeros(len(examples), max(len(example.tokens) for example in examples), dtype=torch.int64)
    for row, (example, gold) in enumerate(zip(examples, tags, strict=True)):
        if not gold:
            raise InputError(f"{' '.join(example.tokens)[:60]!r} has no tags to train on; leave the sentence out")
        unknown = sorted(set(gold) - set(number))
        if unknown:
            raise InputError(f"the tag {unknown[0]!r} is not in the training data; known: {', '.join(number)}")
        tags_BT[row, : len(gold)] = torch.tensor([number[tag] for tag in gold])
    return tags_BT


@lru_cache(maxsize=8)
def _rules(tags: tuple[str, ...]) -> RuleScores:
    return rule_scores(bioul_rules(tags), torch.zeros(()))
