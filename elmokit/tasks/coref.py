"""Coreference: clusters of coreferent spans of a document, end to end (Lee et al. 2017).

An example is a document. A batch is usually one; the documents of a larger batch are scored one after the other.

Shapes: B sentences of all documents, S tokens of the longest, T tokens of a document, E width of the inputs, C width of
the contexts, G gold mentions, M kept spans, A antecedents of a span at most, N pairs with some probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from elmokit.config import FrozenConfig, Positive, Share
from elmokit.errors import InputError
from elmokit.extras import require
from elmokit.metrics.coref import score_coref
from elmokit.nn.basic import Dropout
from elmokit.nn.coupled_lstm import CoupledBiLSTM
from elmokit.readers.conll2012 import Document, Mention
from elmokit.tasks.coref_documents import (
    Clusters,
    CorefOutput,
    choose_window,
    genre,
    link_mentions,
    make_document,
    mean_output,
    read_documents,
)
from elmokit.tasks.coref_pairs import PairScorer
from elmokit.tasks.coref_spans import KeptSpans, SpanScorer
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.task import Batch, Sequences, Task
from elmokit.text.rules import RAW_ENGLISH, TextRules

MIN_PROBABILITY = 1e-8  # the smallest probability of a pair in an output; smaller ones go to "no antecedent"


class CorefSettings(FrozenConfig):
    """Sizes of the model; the defaults are the paper's."""

    hidden_dim: PositiveInt = 200
    """Width of the biLSTM per direction."""
    scorer_dims: tuple[PositiveInt, ...] = (150, 150)
    """Hidden layers of both scorers, of spans and of pairs."""
    feature_dim: PositiveInt = 20
    max_span_width: PositiveInt = 10
    """Tokens; longer mentions are never found."""
    spans_per_token: Positive = 0.4
    """Spans kept per token."""
    max_antecedents: PositiveInt = 250
    speakers: bool = True
    """Use speakers, if the training data has them; likewise genres."""
    genres: bool = True
    input_dropout: Share = 0.5
    dropout: Share = 0.2


class CorefLabels(FrozenConfig):
    """Properties of the training documents."""

    genres: tuple[str, ...] = ()
    """Genres of OntoNotes that occur; empty if fewer than two do, since these would be no feature."""
    has_speakers: bool = False


@dataclass(frozen=True)
class DocumentTarget:
    """Inputs of a document besides its tokens. Positions count over all its sentences."""

    num_sentences: int
    genre: int
    """Index among the labels' genres, from 1; 0: another, or none."""
    speakers_T: Tensor
    gold_G3: Tensor | None
    """First token, last token and cluster (from 1) of every mention; None without labels."""


@dataclass(frozen=True)
class CorefTarget:
    """Documents of a batch."""

    documents: tuple[DocumentTarget, ...]


@dataclass(frozen=True)
class ScoredDocument:
    """Kept spans of a document and the scores of their antecedents."""

    spans: KeptSpans
    antecedents_MA: Tensor  # scores, the nearest first; -inf where there is none
    starts_T: Tensor  # first token of each token's sentence
    sentences_T: Tensor


class CorefModel(nn.Module):
    """Scores the spans of a document, then the pairs of the spans it keeps."""

    def __init__(self, settings: CorefSettings, labels: CorefLabels, tokens: TokenEncoder) -> None:
        super().__init__()
        self.settings = settings
        self.tokens = tokens
        self.input_dropout = Dropout(settings.input_dropout)
        self.encoder = CoupledBiLSTM(tokens.input_dim, settings.hidden_dim, dropout=settings.dropout)
        self.dropout = Dropout(settings.dropout)
        sizes: dict[str, Any] = {
            "feature_dim": settings.feature_dim,
            "hidden_dims": settings.scorer_dims,
            "dropout": settings.dropout,
        }
        context_dim = 2 * settings.hidden_dim + tokens.output_dim
        self.spans = SpanScorer(tokens.input_dim, context_dim, max_width=settings.max_span_width, **sizes)
        self.pairs = PairScorer(
            self.spans.span_dim,
            max_antecedents=settings.max_antecedents,
            num_genres=len(labels.genres) + 1 if settings.genres and labels.genres else 0,
            has_speakers=settings.speakers and labels.has_speakers,
            **sizes,
        )

    def forward(self, batch: Batch[CorefTarget]) -> list[ScoredDocument]:
        """Return the scores of every document."""
        (column,) = batch.columns
        read = self.tokens(column)
        inputs_BSE = self.input_dropout(read.inputs_BTE)
        contexts_BSC = self.dropout(self.encoder(inputs_BSE, read.mask_BT))
        if read.elmo_BTD is not None:
            contexts_BSC = torch.cat([contexts_BSC, read.elmo_BTD], dim=2)
        by_document = [document.num_sentences for document in batch.target.documents]
        parts = (part.split(by_document) for part in (inputs_BSE, contexts_BSC, read.mask_BT))
        return [self._score(*of_one) for of_one in zip(batch.target.documents, *parts, strict=True)]

    def loss(self, batch: Batch[CorefTarget]) -> Tensor:
        """Return the mean over documents of the summed negative log-likelihood of the antecedents."""
        losses = []
        for scored, document in zip(self(batch), batch.target.documents, strict=True):
            assert document.gold_G3 is not None
            clusters_M = _gold_clusters(scored, document.gold_G3, self.settings.max_span_width)
            losses.append(antecedent_loss(scored.antecedents_MA, clusters_M))
        return torch.stack(losses).mean()

    def outputs(self, batch: Batch[CorefTarget]) -> list[CorefOutput]:
        """Return the pairs of every document."""
        return [_output(scored) for scored in self(batch)]

    def _score(
        self, document: DocumentTarget, inputs_BSE: Tensor, contexts_BSC: Tensor, mask_BS: Tensor
    ) -> ScoredDocument:
        lengths_B = mask_BS.sum(dim=1)
        starts_T = (lengths_B.cumsum(0) - lengths_B).repeat_interleave(lengths_B)
        left_T = starts_T + lengths_B.repeat_interleave(lengths_B) - torch.arange(len(starts_T), device=mask_BS.device)
        spans: KeptSpans = self.spans(
            inputs_BSE[mask_BS], contexts_BSC[mask_BS], left_T, per_token=self.settings.spans_per_token
        )
        antecedents_MA = self.pairs(
            spans.vectors_MD, spans.scores_M, speakers_M=document.speakers_T[spans.starts_M], genre=document.genre
        )
        sentences_T = torch.arange(len(lengths_B), device=mask_BS.device).repeat_interleave(lengths_B)
        return ScoredDocument(spans, antecedents_MA, starts_T, sentences_T)


def antecedent_loss(antecedents_MA: Tensor, clusters_M: Tensor) -> Tensor:
    """Return the summed negative log-likelihood that every span's antecedent is in its cluster.

    A span whose cluster has no earlier span, or with cluster 0 (none), has no antecedent. Column k of the scores is the
    (k + 1)th span before.
    """
    num_spans, num_columns = antecedents_MA.shape
    device = antecedents_MA.device
    places_MA = torch.arange(num_spans, device=device)[:, None] - torch.arange(1, num_columns + 1, device=device)
    right_MA = (clusters_M[places_MA.clamp(min=0)] == clusters_M[:, None]) & (clusters_M[:, None] > 0)
    right_MA &= places_MA >= 0
    scores = torch.cat([antecedents_MA.new_zeros(num_spans, 1), antecedents_MA], dim=1)
    right = torch.cat([~right_MA.any(dim=1, keepdim=True), right_MA], dim=1)
    return (scores.logsumexp(dim=1) - scores.masked_fill(~right, float("-inf")).logsumexp(dim=1)).sum()


def _gold_clusters(scored: ScoredDocument, gold_G3: Tensor, max_width: int) -> Tensor:
    """Return the gold clusters of the kept spans, (M,); 0 for spans that are not gold mentions."""
    clusters_TW = gold_G3.new_zeros(len(scored.starts_T), max_width)
    starts_G, lasts_G, clusters_G = gold_G3[gold_G3[:, 1] - gold_G3[:, 0] < max_width].unbind(dim=1)
    clusters_TW[starts_G, lasts_G - starts_G] = clusters_G
    return clusters_TW[scored.spans.starts_M, scored.spans.lasts_M - scored.spans.starts_M]


def _output(scored: ScoredDocument) -> CorefOutput:
    scores_MA = scored.antecedents_MA.double()
    none_M1 = scores_MA.new_zeros(len(scores_MA), 1)
    probabilities_MA = torch.cat([none_M1, scores_MA], dim=1).softmax(dim=1)[:, 1:]
    mentions_N, columns_N = (probabilities_MA >= MIN_PROBABILITY).nonzero().unbind(dim=1)
    starts_M, lasts_M = scored.spans.starts_M, scored.spans.lasts_M
    first_M = scored.starts_T[starts_M]
    mentions_M3 = torch.stack([scored.sentences_T[starts_M], starts_M - first_M, lasts_M + 1 - first_M], dim=1)
    pairs_N2 = torch.stack([mentions_N, mentions_N - columns_N - 1], dim=1)
    parts = (mentions_M3, pairs_N2, probabilities_MA[mentions_N, columns_N])
    return CorefOutput(*(part.cpu().numpy() for part in parts))


class CorefTask:
    """Coreference in CoNLL-2012's columns."""

    name = "coref"
    metric = "f1"
    settings: type[FrozenConfig] = CorefSettings
    labels: type[CorefLabels] = CorefLabels
    reads_paragraphs = True

    def read_training(self, path: Path) -> list[Document]:
        """Read the documents of a file, of all files in a folder, or of a tar archive."""
        return self.read(path)

    def read(self, path: Path) -> list[Document]:
        """Read the documents of a file, of all files in a folder, or of a tar archive; singletons are dropped."""
        require("scipy", extra="tasks")  # for the scores: better to fail now than after an epoch
        documents = read_documents(path)
        if not any(document.clusters for document in documents):
            raise InputError(
                f"{path}: no coreferent mentions in {len(documents)} documents; expected coreference in the "
                "last column, as in CoNLL-2012"
            )
        return documents

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[Document]:
        """Return a paragraph as one document."""
        document = make_document(text, rules)
        return [] if document is None else [document]

    def sequences(self, example: Document) -> Sequences:
        """Return all sentences of the document in one column."""
        return ([sentence.tokens for sentence in example.sentences],)

    def learn_labels(self, examples: Sequence[Document]) -> CorefLabels:
        """Return whether there are speakers, and the genres that occur."""
        if not any(example.clusters for example in examples):
            raise InputError(
                f"no coreferent mentions in {len(examples)} documents; check that the last column of the file has "
                "coreference"
            )
        genres = sorted({found for example in examples if (found := genre(example)) is not None})
        return CorefLabels(
            genres=tuple(genres) if len(genres) > 1 else (),
            has_speakers=any(any(sentence.speakers) for example in examples for sentence in example.sentences),
        )

    def build(self, settings: CorefSettings, labels: CorefLabels, tokens: TokenEncoder) -> CorefModel:
        """Return a new model."""
        return CorefModel(settings, labels, tokens)

    def collate(self, examples: Sequence[Document], labels: CorefLabels, *, labeled: bool) -> CorefTarget:
        """Return sizes, speakers and genres of the documents, and the positions of their mentions."""
        return CorefTarget(tuple(_collate_one(example, labels, labeled=labeled) for example in examples))

    def decode(self, output: CorefOutput, example: Document, labels: CorefLabels) -> Clusters:
        """Return the clusters of linked mentions."""
        del example, labels
        return link_mentions(output)

    def combine(self, outputs: Sequence[CorefOutput]) -> CorefOutput:
        """Return the mean probability of every pair."""
        return mean_output(outputs)

    def score(self, examples: Sequence[Document], predictions: Sequence[Clusters]) -> dict[str, float]:
        """Return the mean F1 of MUC, B-cubed and CEAF_e, and each of them. Neither side has singletons."""
        found = score_coref([example.clusters for example in examples], predictions, keep_singletons=True)
        parts = {"muc": found.muc, "b_cubed": found.b_cubed, "ceaf_e": found.ceaf_e}
        return {"f1": found.mean_f1} | {
            f"{metric}_{name}": value
            for metric, part in parts.items()
            for name, value in (("f1", part.f1), ("precision", part.precision), ("recall", part.recall))
        }

    def unknown_labels(self, examples: Sequence[Document], labels: CorefLabels) -> set[str]:
        """Return the empty set: clusters have no names, and a document of an unknown genre is read as without one."""
        del examples, labels
        return set()

    def vary(self, example: Document, rng: np.random.Generator) -> Document:
        """Return a random window of a long document."""
        return choose_window(example, rng)

    def show(self, example: Document, prediction: Clusters) -> str:
        """Return one line per sentence, mentions in brackets with their cluster: ``[1 Ada] lost [2 [1 her] hat]``."""
        words = [list(sentence.tokens) for sentence in example.sentences]
        numbered = [(mention, number) for number, cluster in enumerate(prediction, start=1) for mention in cluster]
        for mention, number in sorted(numbered, key=lambda one: one[0].end - one[0].start):  # inner brackets first
            sentence = words[mention.sentence]
            sentence[mention.start] = f"[{number} {sentence[mention.start]}"
            sentence[mention.end - 1] += "]"
        return "\n".join(map(" ".join, words))

    def to_json(self, example: Document, prediction: Clusters) -> dict[str, Any]:
        """Return the tokens of the document, and the mentions of every cluster."""
        clusters = [
            [
                {
                    "sentence": mention.sentence,
                    "start": mention.start,
                    "end": mention.end,
                    "tokens": list(example.sentences[mention.sentence].tokens[mention.start : mention.end]),
                }
                for mention in cluster
            ]
            for cluster in prediction
        ]
        sentences = [list(sentence.tokens) for sentence in example.sentences]
        return {"document": example.name, "part": example.part, "sentences": sentences, "clusters": clusters}


TASK: Task[Document, CorefLabels, CorefTarget, CorefOutput, Clusters] = CorefTask()


def _collate_one(example: Document, labels: CorefLabels, *, labeled: bool) -> DocumentTarget:
    speakers = [speaker for sentence in example.sentences for speaker in sentence.speakers]
    number = {speaker: index for index, speaker in enumerate(dict.fromkeys(speakers))}
    kind = genre(example)
    return DocumentTarget(
        num_sentences=len(example.sentences),
        genre=labels.genres.index(kind) + 1 if kind in labels.genres else 0,
        speakers_T=torch.tensor([number[speaker] for speaker in speakers]),
        gold_G3=_place_mentions(example) if labeled else None,
    )


def _place_mentions(example: Document) -> Tensor:
    lengths = [len(sentence.tokens) for sentence in example.sentences]
    starts = np.cumsum([0, *lengths]).tolist()
    placed: dict[Mention, list[int]] = {}
    for number, cluster in enumerate(example.clusters, start=1):
        for mention in cluster:
            if mention.sentence >= len(lengths) or not 0 <= mention.start < mention.end <= lengths[mention.sentence]:
                raise InputError(f"document {example.name!r}: {mention} is not inside a sentence; correct the mention")
            if mention in placed:
                raise InputError(f"document {example.name!r}: {mention} is in two clusters; make one of them")
            start = starts[mention.sentence]
            placed[mention] = [start + mention.start, start + mention.end - 1, number]
    return torch.tensor(list(placed.values()), dtype=torch.int64).view(-1, 3)
