"""Constituency parsing: a chart parser over spans of a biLSTM, trained by max margin (Stern et al. 2017).

A span (i, j) has the vector [f_j - f_i; b_i - b_j], where f_i and b_i are the forward and the backward output at the
place before token i. One hidden layer scores its labels. A chain of unary constituents is one
label, such as ``S::VP``; a span that is no constituent has the empty label, whose score is 0. The whole sentence may
not be empty.

The loss of a sentence is max over trees of [score(tree) + number of its wrongly labeled spans] - score(gold tree).

Shapes: B sentences, T tokens, P = T + 1 places between tokens, S spans, K labels that are not empty, H hidden width per
direction, D width of the label scorer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import FrozenConfig, Share
from elmokit.errors import InputError
from elmokit.metrics.brackets import score_brackets
from elmokit.nn.basic import Dropout, VariationalDropout
from elmokit.nn.chart import best_trees
from elmokit.nn.lstm import BiLSTM
from elmokit.readers.ptb import Constituent, ParsedSentence, draw_tree, join_brackets, read_ptb
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.task import Batch, Sequences, Task, mean_arrays, read_words
from elmokit.text.rules import RAW_ENGLISH, TextRules

CHAIN = "::"
EMPTY = 0  # of the gold labels; label k of the label space is k + 1

SpanScores = np.ndarray[Any, Any]
"""Scores of the labels of every span, (P, P, K)."""


class ParseSettings(FrozenConfig):
    """Sizes of the model; the defaults are those of Stern et al. 2017."""

    hidden_dim: PositiveInt = 250
    label_dim: PositiveInt = 250
    dropout: Share = 0.4
    """Between the LSTMs, with one mask per sentence."""
    label_dropout: Share = 0.0


class ParseLabels(FrozenConfig):
    """Labels of spans; a unary chain is one label."""

    labels: tuple[str, ...]


@dataclass(frozen=True)
class ParseTarget:
    """Gold label of every span, `EMPTY` where there is none, (B, P, P); None without labels."""

    labels_BPP: Tensor | None


class ParseModel(nn.Module):
    """Scores the labels of every span."""

    def __init__(self, settings: ParseSettings, labels: ParseLabels, tokens: TokenEncoder) -> None:
        super().__init__()
        hidden_dim = settings.hidden_dim
        self.tokens = tokens
        self.dropout = VariationalDropout(settings.dropout)
        self.lower = BiLSTM(tokens.input_dim, hidden_dim)
        self.upper = BiLSTM(2 * hidden_dim + tokens.output_dim, hidden_dim)
        self.span = nn.Linear(2 * hidden_dim, settings.label_dim)
        self.label_dropout = Dropout(settings.label_dropout)
        self.label = nn.Linear(settings.label_dim, len(labels.labels))

    def forward(self, batch: Batch[ParseTarget]) -> Tensor:
        """Return the scores of the labels of all spans, (B, S, K), in the order of `spans_of`."""
        (column,) = batch.columns
        read = self.tokens(column)
        lower_BTH = self.lower(self.dropout(read.inputs_BTE), read.mask_BT)
        if read.elmo_BTD is not None:
            lower_BTH = torch.cat([lower_BTH, read.elmo_BTD], dim=2)
        upper_BTH = self.upper(self.dropout(lower_BTH), read.mask_BT)
        # The layer is linear, so that it is applied to places and not to their differences.
        places_BPD = functional.linear(_places(upper_BTH), self.span.weight)
        starts, ends = spans_of(upper_BTH.shape[1])
        hidden_BSD = (places_BPD[:, ends] - places_BPD[:, starts] + self.span.bias).relu()
        scores_BSK: Tensor = self.label(self.label_dropout(hidden_BSD))
        return scores_BSK

    def loss(self, batch: Batch[ParseTarget]) -> Tensor:
        """Return the mean margin loss of a sentence."""
        assert batch.target.labels_BPP is not None
        (column,) = batch.columns
        scores_BSK = self(batch)
        lengths = column.mask_BT.sum(dim=1).tolist()
        starts, ends = spans_of(column.mask_BT.shape[1])
        gold_BS = batch.target.labels_BPP[:, starts, ends]
        # Column 0 is the empty label, with score 0; a label other than the gold one gains 1.
        full_BSL = functional.pad(scores_BSK, (1, 0))
        with torch.no_grad():
            raised_BSL = full_BSL + 1
            raised_BSL.scatter_add_(2, gold_BS[:, :, None], full_BSL.new_full((*gold_BS.shape, 1), -1.0))
            found_BS, best_BS = _best_labels(raised_BSL, starts, ends, lengths)
            is_in_tree_BS = _tree_mask(found_BS, starts, ends, lengths)
        predicted_BS = full_BSL.gather(2, best_BS[:, :, None]).squeeze(2)
        margins_BS = (best_BS != gold_BS).to(full_BSL)
        right_BS = full_BSL.gather(2, gold_BS[:, :, None]).squeeze(2)  # 0 where there is no constituent
        loss: Tensor = ((predicted_BS + margins_BS) * is_in_tree_BS - right_BS).sum() / len(lengths)
        return loss

    def outputs(self, batch: Batch[ParseTarget]) -> list[SpanScores]:
        """Return the scores of every sentence's spans."""
        (column,) = batch.columns
        num_places = column.mask_BT.shape[1] + 1
        starts, ends = spans_of(num_places - 1)
        scores_BSK = self(batch)
        table_BPPK = scores_BSK.new_zeros(len(scores_BSK), num_places, num_places, scores_BSK.shape[2])
        table_BPPK[:, starts, ends] = scores_BSK
        sizes = (column.mask_BT.sum(dim=1) + 1).tolist()
        return [table_PPK[:size, :size].cpu().numpy().copy() for table_PPK, size in zip(table_BPPK, sizes, strict=True)]


class ParseTask:
    """Constituency trees in Penn Treebank brackets."""

    name = "parse"
    metric = "f1"
    settings: type[FrozenConfig] = ParseSettings
    labels: type[ParseLabels] = ParseLabels
    reads_paragraphs = False

    def read_training(self, path: Path) -> list[ParsedSentence]:
        """Read the trees of a file."""
        return self.read(path)

    def read(self, path: Path) -> list[ParsedSentence]:
        """Read the trees of a file."""
        sentences = list(read_ptb(path))
        if not sentences:
            raise InputError(f"{path}: no trees; expected one per line in Penn Treebank brackets")
        return sentences

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[ParsedSentence]:
        """Return a line as one sentence."""
        tokens = read_words(text, rules)
        return [ParsedSentence(tokens, ("",) * len(tokens), ())]

    def sequences(self, example: ParsedSentence) -> Sequences:
        """Return the sentence in one column."""
        return ([example.tokens],)

    def learn_labels(self, examples: Sequence[ParsedSentence]) -> ParseLabels:
        """Return all labels of the training trees."""
        return ParseLabels(labels=tuple(sorted({label for one in examples for label in chains_of(one).values()})))

    def build(self, settings: ParseSettings, labels: ParseLabels, tokens: TokenEncoder) -> ParseModel:
        """Return a new model."""
        return ParseModel(settings, labels, tokens)

    def collate(self, examples: Sequence[ParsedSentence], labels: ParseLabels, *, labeled: bool) -> ParseTarget:
        """Return the gold labels of all spans."""
        return ParseTarget(_number_labels(examples, labels) if labeled else None)

    def decode(self, output: SpanScores, example: ParsedSentence, labels: ParseLabels) -> ParsedSentence:
        """Return the tree with the highest score."""
        num_tokens = len(example.tokens)
        starts, ends = spans_of(num_tokens)
        full_1SL = functional.pad(torch.from_numpy(output)[starts, ends][None], (1, 0))
        found_1S, best_1S = _best_labels(full_1SL, starts, ends, [num_tokens])
        label_of = dict(zip(zip(starts.tolist(), ends.tolist(), strict=True), best_1S[0].tolist(), strict=True))
        (tree,) = best_trees(_as_chart(found_1S, starts, ends, num_tokens), [num_tokens])
        constituents = [
            Constituent(label, start, end)
            for start, end in tree
            if label_of[start, end] != EMPTY
            for label in labels.labels[label_of[start, end] - 1].split(CHAIN)
        ]
        return ParsedSentence(example.tokens, example.tags, tuple(constituents))

    def combine(self, outputs: Sequence[SpanScores]) -> SpanScores:
        """Return the mean scores."""
        return mean_arrays(outputs)

    def score(self, examples: Sequence[ParsedSentence], predictions: Sequence[ParsedSentence]) -> dict[str, float]:
        """Return labeled-bracket scores, counted like EVALB."""
        found = score_brackets(examples, predictions)
        return {
            "f1": found.f1,
            "precision": found.precision,
            "recall": found.recall,
            "exact_match": found.exact_match,
            "f1_up_to_40": found.short_f1,
        }

    def unknown_labels(self, examples: Sequence[ParsedSentence], labels: ParseLabels) -> set[str]:
        """Return the labels and unary chains that the label space lacks."""
        return {label for one in examples for label in chains_of(one).values()} - set(labels.labels)

    def vary(self, example: ParsedSentence, rng: np.random.Generator) -> ParsedSentence:
        """Return the same sentence in every epoch."""
        del rng
        return example

    def show(self, example: ParsedSentence, prediction: ParsedSentence) -> str:
        """Return the tree in brackets."""
        del example
        return join_brackets(prediction)

    def to_json(self, example: ParsedSentence, prediction: ParsedSentence) -> dict[str, Any]:
        """Return the tokens, the tree in brackets and as a drawing, and its constituents."""
        del example
        constituents = [{"label": one.label, "start": one.start, "end": one.end} for one in prediction.constituents]
        return {
            "tokens": list(prediction.tokens),
            "tree": join_brackets(prediction),
            "drawing": draw_tree(prediction),
            "constituents": constituents,
        }


TASK: Task[ParsedSentence, ParseLabels, ParseTarget, SpanScores, ParsedSentence] = ParseTask()


def chains_of(sentence: ParsedSentence) -> dict[tuple[int, int], str]:
    """Return the label of every constituent's span; constituents of one span are one chain, the highest first."""
    chains: dict[tuple[int, int], str] = {}
    for one in sentence.constituents:
        span = one.start, one.end
        chains[span] = f"{chains[span]}{CHAIN}{one.label}" if span in chains else one.label
    return chains


def spans_of(num_tokens: int) -> tuple[Tensor, Tensor]:
    """Return starts and ends of all spans, (S,) each."""
    starts, ends = torch.triu_indices(num_tokens + 1, num_tokens + 1, offset=1)
    return starts, ends


def _places(outputs_BTH: Tensor) -> Tensor:
    """Return [f; -b] at every place between tokens, (B, P, 2 H), where p_j - p_i is the vector of a span."""
    forward_BTH, backward_BTH = outputs_BTH.chunk(2, dim=2)
    return torch.cat([functional.pad(forward_BTH, (0, 0, 1, 0)), functional.pad(-backward_BTH, (0, 0, 0, 1))], dim=2)


def _best_labels(scores_BSL: Tensor, starts: Tensor, ends: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the highest score of every span and its label; the empty one is not allowed for whole sentences."""
    is_whole_BS = (starts == 0) & (ends == torch.tensor(lengths)[:, None])
    allowed_BSL = scores_BSL.clone()
    allowed_BSL[:, :, EMPTY].masked_fill_(is_whole_BS, float("-inf"))
    found_BS, best_BS = allowed_BSL.max(dim=2)
    return found_BS, best_BS


def _as_chart(values_BS: Tensor, starts: Tensor, ends: Tensor, num_tokens: int) -> Tensor:
    chart_BPP = values_BS.new_zeros(len(values_BS), num_tokens + 1, num_tokens + 1)
    chart_BPP[:, starts, ends] = values_BS
    return chart_BPP


def _tree_mask(values_BS: Tensor, starts: Tensor, ends: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return 1 for the spans of the best tree, 0 for all others, (B, S)."""
    num_tokens = int(ends.max())
    chart_BPP = values_BS.new_zeros(len(values_BS), num_tokens + 1, num_tokens + 1)
    for row, tree in enumerate(best_trees(_as_chart(values_BS, starts, ends, num_tokens), lengths)):
        tree_starts, tree_ends = zip(*tree, strict=True)
        chart_BPP[row, tree_starts, tree_ends] = 1.0
    return chart_BPP[:, starts, ends]


def _number_labels(examples: Sequence[ParsedSentence], labels: ParseLabels) -> Tensor:
    numbers = {label: number for number, label in enumerate(labels.labels, start=EMPTY + 1)}
    num_places = max(len(one.tokens) for one in examples) + 1
    labels_BPP = torch.full((len(examples), num_places, num_places), EMPTY)
    for row, one in enumerate(examples):
        for (start, end), label in chains_of(one).items():
            if label not in numbers:
                raise InputError(f"label {label!r} is not in the training trees; train on trees that have it")
            labels_BPP[row, start, end] = numbers[label]
    return labels_BPP
