"""Semantic roles: who did what to whom, for one predicate at a time (He et al. 2017; Peters et al. 2018, section 4).

A deep highway LSTM tags the sentence for a given predicate. A sentence with several predicates is read once for each,
and one without any is not read. In typed lines, stars mark the predicates:
``She *sold* the boat that he had *built* .`` asks for the roles of two.

Shapes: B examples, T tokens of the longest, N tokens of all of them, K tags, H hidden width.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from elmokit.config import FrozenConfig, Share
from elmokit.errors import InputError
from elmokit.metrics.srl import VERB, score_role_spans, score_roles
from elmokit.metrics.tags import OUTSIDE, Span, ViterbiRules, bio_rules, bio_to_spans
from elmokit.nn.crf import RuleScores, rule_scores, viterbi_decode
from elmokit.nn.highway_lstm import HighwayLSTM
from elmokit.tasks.coref_documents import read_documents
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.task import Batch, Sequences, Task, mean_of_logs
from elmokit.text.rules import RAW_ENGLISH, TextRules

MARKED = re.compile(r"(?<![\w*])\*([^\s*]+)\*(?![\w*])")  # not stars within a word, nor a row of them


@dataclass(frozen=True)
class RoleExample:
    """Sentence, one of its predicates, and the roles of its tokens for that predicate."""

    tokens: tuple[str, ...]
    predicate: int
    """Index of its token; of the first, if it has several."""
    tags: tuple[str, ...] | None
    """BIO, one tag per token; None if unlabeled."""

    def __post_init__(self) -> None:
        if not 0 <= self.predicate < len(self.tokens):
            raise InputError(
                f"token {self.predicate} does not exist in {self.tokens}; give the predicate's index, counted from 0"
            )
        if self.tags is not None and len(self.tags) != len(self.tokens):
            raise InputError(
                f"{len(self.tags)} tags for the {len(self.tokens)} tokens {self.tokens}; give one per token"
            )


class SRLSettings(FrozenConfig):
    """Sizes of the model; the defaults are the paper's."""

    predicate_dim: PositiveInt = 100
    """Width of the embedding that marks the predicate."""
    hidden_dim: PositiveInt = 300
    num_layers: Annotated[int, Field(ge=1, le=100)] = 8
    dropout: Share = 0.1
    """On the outputs of every layer, one mask per sentence."""


class SRLLabels(FrozenConfig):
    """Tags in BIO."""

    tags: tuple[str, ...]


@dataclass(frozen=True)
class SRLTarget:
    """Positions of the predicates, and tag indices of concatenated examples; None without labels."""

    predicates_B: Tensor
    tags_N: Tensor | None


class SRLModel(nn.Module):
    """Deep highway LSTM that tags a sentence for one of its predicates."""

    def __init__(self, settings: SRLSettings, labels: SRLLabels, tokens: TokenEncoder) -> None:
        super().__init__()
        self.tokens = tokens
        self.mark = nn.Embedding(2, settings.predicate_dim)
        self.encoder = HighwayLSTM(
            tokens.input_dim + settings.predicate_dim,
            settings.hidden_dim,
            num_layers=settings.num_layers,
            dropout=settings.dropout,
        )
        # ELMo at the output is concatenated with that of the whole stack, the only RNN here.
        self.emit = nn.Linear(settings.hidden_dim + tokens.output_dim, len(labels.tags))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the last layer orthogonally, and marks about as large as word vectors."""
        nn.init.xavier_uniform_(self.mark.weight)
        nn.init.orthogonal_(self.emit.weight)
        nn.init.zeros_(self.emit.bias)

    def forward(self, batch: Batch[SRLTarget]) -> Tensor:
        """Return the scores of the tags of concatenated examples, (N, K)."""
        (column,) = batch.columns
        read = self.tokens(column)
        places_T = torch.arange(read.mask_BT.shape[1], device=read.mask_BT.device)
        marks_BT = (places_T == batch.target.predicates_B[:, None]).long()
        outputs_BTH = self.encoder(torch.cat([read.inputs_BTE, self.mark(marks_BT)], dim=2), read.mask_BT)
        if read.elmo_BTD is not None:
            outputs_BTH = torch.cat([outputs_BTH, read.elmo_BTD], dim=2)
        scores_NK: Tensor = self.emit(outputs_BTH[read.mask_BT])
        return scores_NK

    def loss(self, batch: Batch[SRLTarget]) -> Tensor:
        """Return the mean over tokens of the negative log-probability of the gold tag."""
        assert batch.target.tags_N is not None
        return functional.cross_entropy(self(batch), batch.target.tags_N)

    def outputs(self, batch: Batch[SRLTarget]) -> list[NDArray[np.float32]]:
        """Return the log-probabilities of the tags of every example, (T, K)."""
        (column,) = batch.columns
        lengths = column.mask_BT.sum(dim=1).tolist()
        return [output_TK.cpu().numpy() for output_TK in self(batch).log_softmax(dim=1).split(lengths)]


class SRLTask:
    """Semantic roles in CoNLL-2012's columns."""

    name = "srl"
    metric = "f1"
    settings: type[FrozenConfig] = SRLSettings
    labels: type[SRLLabels] = SRLLabels
    reads_paragraphs = False

    def read_training(self, path: Path) -> list[RoleExample]:
        """Read the predicates of a file, of all files in a folder, or of a tar archive."""
        return self.read(path)

    def read(self, path: Path) -> list[RoleExample]:
        """Read the predicates of a file, of all files in a folder, or of a tar archive."""
        examples = [
            RoleExample(sentence.tokens, predicate.index, predicate.tags)
            for document in read_documents(path, roles=True)
            for sentence in document.sentences
            for predicate in sentence.predicates
        ]
        if not examples:
            raise InputError(
                f"{path}: no sentence has a predicate with roles; expected CoNLL-2012's columns, "
                "one per predicate between the entities (column 11) and the last"
            )
        return examples

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[RoleExample]:
        """Return one example per predicate marked with stars, as in ``She *sold* it .``.

        If the tokenizer splits a marked word, the predicate is its first part that is not punctuation.
        """
        tokens, predicates = _read_marks(text, rules)
        if not predicates:
            raise InputError(
                f"no predicate is marked in {text[:80]!r}; put stars around each verb whose roles you want, "
                "as in 'She *sold* it .'"
            )
        return [RoleExample(tokens, predicate, None) for predicate in predicates]

    def sequences(self, example: RoleExample) -> Sequences:
        """Return the sentence in one column."""
        return ([example.tokens],)

    def learn_labels(self, examples: Sequence[RoleExample]) -> SRLLabels:
        """Return both BIO tags of every role; a rare role may have no long span."""
        return SRLLabels(tags=(OUTSIDE, *(f"{kind}-{role}" for role in sorted(_roles(examples)) for kind in "BI")))

    def build(self, settings: SRLSettings, labels: SRLLabels, tokens: TokenEncoder) -> SRLModel:
        """Return a new model."""
        return SRLModel(settings, labels, tokens)

    def collate(self, examples: Sequence[RoleExample], labels: SRLLabels, *, labeled: bool) -> SRLTarget:
        """Return the positions of the predicates and the tag indices."""
        predicates_B = torch.tensor([example.predicate for example in examples])
        if not labeled:
            return SRLTarget(predicates_B, None)
        if any(example.tags is None for example in examples):
            raise InputError("an example has no tags to train on; leave it out")
        if unknown := sorted(self.unknown_labels(examples, labels)):
            known = sorted({tag[2:] for tag in labels.tags if tag != OUTSIDE})
            raise InputError(f"the role {unknown[0]!r} is not in the training data; known: {', '.join(known)}")
        number = {tag: index for index, tag in enumerate(labels.tags)}
        tags = [number[tag] for example in examples for tag in example.tags or ()]
        return SRLTarget(predicates_B, torch.tensor(tags))

    def decode(self, output: NDArray[np.float32], example: RoleExample, labels: SRLLabels) -> tuple[str, ...]:
        """Return the most probable tags that BIO allows."""
        del example
        rules = _rules(labels.tags)
        # Rules only forbid. If the best tag of every token is allowed there, as in most sentences, no search is needed.
        best = output.argmax(axis=1)
        if not (rules.start_K[best[0]] and rules.transitions_KK[best[:-1], best[1:]].all()):
            forbidden = _forbidden(labels.tags)
            scores_TK = torch.from_numpy(output)
            best = viterbi_decode(scores_TK, forbidden.transitions_KK, forbidden.start_K, forbidden.end_K)
        return tuple(labels.tags[index] for index in best)

    def combine(self, outputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the mean distribution of every token."""
        return mean_of_logs(outputs)

    def score(self, examples: Sequence[RoleExample], predictions: Sequence[tuple[str, ...]]) -> dict[str, float]:
        """Return scores of whole arguments as CoNLL-2005 counts them; ``span_f1`` counts every phrase by itself."""
        gold = [example.tags or () for example in examples]
        found = score_roles(gold, predictions)
        span_f1 = score_role_spans(gold, predictions).f1
        return {"f1": found.f1, "precision": found.precision, "recall": found.recall, "span_f1": span_f1}

    def unknown_labels(self, examples: Sequence[RoleExample], labels: SRLLabels) -> set[str]:
        """Return roles that no tag of the label space names."""
        return _roles(examples) - {tag[2:] for tag in labels.tags}

    def vary(self, example: RoleExample, rng: np.random.Generator) -> RoleExample:
        """Return the same example in every epoch."""
        del rng
        return example

    def show(self, example: RoleExample, prediction: tuple[str, ...]) -> str:
        """Return the sentence with arguments in brackets: ``[ARG0 She] *sold* [ARG1 the boat] .``."""
        words = list(example.tokens)
        words[example.predicate] = f"*{words[example.predicate]}*"
        for span in _arguments(example, prediction):
            words[span.start] = f"[{span.label} {words[span.start]}"
            words[span.end - 1] += "]"
        return " ".join(words)

    def to_json(self, example: RoleExample, prediction: tuple[str, ...]) -> dict[str, Any]:
        """Return tokens, predicate, tags and arguments."""
        arguments = [
            {
                "role": span.label,
                "start": span.start,
                "end": span.end,
                "tokens": list(example.tokens[span.start : span.end]),
            }
            for span in _arguments(example, prediction)
        ]
        return {
            "tokens": list(example.tokens),
            "predicate": {"index": example.predicate, "token": example.tokens[example.predicate]},
            "tags": list(prediction),
            "arguments": arguments,
        }


TASK: Task[RoleExample, SRLLabels, SRLTarget, NDArray[np.float32], tuple[str, ...]] = SRLTask()


def _read_marks(line: str, rules: TextRules) -> tuple[tuple[str, ...], list[int]]:
    """Return the tokens of a line without its stars, and the indices of the marked ones."""
    plain = MARKED.sub(r"\1", line)
    tokens = rules.tokens(plain)
    # The tokenizer only splits, so the number of characters before a word does not depend on what follows.
    bounds = list(pairwise(accumulate(map(len, tokens), initial=0)))
    predicates = []
    for number, mark in enumerate(MARKED.finditer(line)):
        start = mark.start() - 2 * number  # without the stars of earlier marks
        first = _count_chars(plain[:start], rules)
        last = first + _count_chars(mark[1], rules)
        touched = [index for index, (begin, end) in enumerate(bounds) if begin < last and end > first]
        predicates += [index for index in touched if any(map(str.isalnum, tokens[index]))][:1] or touched[:1]
    return tuple(tokens), predicates


def _count_chars(text: str, rules: TextRules) -> int:
    return sum(map(len, rules.tokens(text)))


def _roles(examples: Sequence[RoleExample]) -> set[str]:
    return {tag[2:] for example in examples for tag in example.tags or () if tag != OUTSIDE}


@lru_cache(maxsize=8)  # with some hundred tags the rules take longer than tagging a sentence
def _rules(tags: tuple[str, ...]) -> ViterbiRules:
    return bio_rules(tags)


@lru_cache(maxsize=8)
def _forbidden(tags: tuple[str, ...]) -> RuleScores:
    return rule_scores(_rules(tags), torch.zeros(()))


def _arguments(example: RoleExample, prediction: Sequence[str]) -> list[Span]:
    """Return the predicted spans without the predicate itself."""
    spans = bio_to_spans(prediction)
    return [span for span in spans if not (span.label == VERB and span.start <= example.predicate < span.end)]
