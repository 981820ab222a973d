"""Question answering by spans of a paragraph: bi-attention and self-attention (Clark & Gardner 2018).

Peters et al. 2018 put ELMo into that model twice, at its input and beside the output of its first GRU. The biLM reads a
paragraph as one sequence, not sentence by sentence.

Shapes: B questions, T tokens of the longest paragraph, S tokens of the longest question, E width of an input, D width
of an encoded token, H hidden width per direction. A 2 is start and end: first and last token of an answer.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import PositiveInt
from torch import Tensor, nn

from elmokit.config import FrozenConfig, Share
from elmokit.errors import InputError
from elmokit.metrics.squad import score_answers
from elmokit.nn.attention import BiAttention, SelfAttention
from elmokit.nn.basic import VariationalDropout
from elmokit.nn.gru import BiGRU
from elmokit.readers.squad import Answer, Question, read_squad
from elmokit.tasks.inputs import Column, EncodedTokens, TokenEncoder
from elmokit.tasks.squad_tokens import SquadText, tokenize_paragraph, tokenize_question
from elmokit.tasks.task import Batch, Sequences, Task, mean_of_logs
from elmokit.text.rules import RAW_ENGLISH, TextRules

MAX_ANSWER_TOKENS = 17
CACHED_PARAGRAPHS = 64  # tokenized while reading: the questions on one come together
HELD_OUT_SHARE, HELD_OUT_SEED = 0.1, 0
NO_ANSWER = "no answer"
SHOWN_AROUND = 40  # characters of the paragraph on each side of an answer

Bounds = np.ndarray[Any, Any]
"""Log-probability of every token to be the first of the answer, and to be its last, (2, T)."""


@dataclass(frozen=True, eq=False)
class AskedParagraph:
    """Question on a paragraph, in tokens."""

    id: str
    context: SquadText
    question: SquadText
    answers: tuple[Answer, ...]
    """Spans of the paragraph; none if unlabeled."""


@dataclass(frozen=True)
class FoundAnswer:
    """Span of the paragraph, and its characters there, ``end`` excluded."""

    text: str
    start: int
    end: int
    probability: float


class SquadSettings(FrozenConfig):
    """Sizes of the model; the defaults are the paper's."""

    hidden_dim: PositiveInt = 90
    dropout: Share = 0.2
    """Before and after the GRUs, one mask per text."""


class SquadLabels(FrozenConfig):
    """Empty: an answer is a place in the paragraph."""


@dataclass(frozen=True)
class SquadTarget:
    """First and last token of every answer; None without labels."""

    bounds_B2: Tensor | None


class SquadModel(nn.Module):
    """Predicts the first and the last token of the answer."""

    def __init__(self, settings: SquadSettings, labels: SquadLabels, tokens: TokenEncoder) -> None:
        super().__init__()
        del labels
        hidden_dim = settings.hidden_dim
        both_dim, encoded_dim = 2 * hidden_dim, 2 * hidden_dim + tokens.output_dim
        self.tokens = tokens
        self.dropout = VariationalDropout(settings.dropout)
        self.encoder = BiGRU(tokens.input_dim, hidden_dim)
        self.attention = BiAttention(encoded_dim, both_dim)
        self.reader = BiGRU(both_dim, hidden_dim)
        self.self_attention = SelfAttention(both_dim)
        self.self_merge = _dense(3 * both_dim, both_dim)
        self.start_reader = BiGRU(both_dim, hidden_dim)
        self.start_score = _dense(both_dim, 1)
        self.end_reader = BiGRU(2 * both_dim, hidden_dim)
        self.end_score = _dense(both_dim, 1)

    def forward(self, batch: Batch[SquadTarget]) -> Tensor:
        """Return the log-probabilities of the tokens to be first and last, (B, 2, T); -inf on padding."""
        contexts, questions = batch.columns
        read_BTH = self._read(contexts, questions)
        mask_BT = contexts.mask_BT
        start_BTH = self.start_reader(read_BTH, mask_BT)
        end_BTH = self.end_reader(torch.cat([read_BTH, start_BTH], dim=2), mask_BT)
        scores_B2T = torch.cat([self.start_score(start_BTH), self.end_score(end_BTH)], dim=2).mT
        return scores_B2T.masked_fill(~mask_BT[:, None, :], float("-inf")).log_softmax(dim=2)

    def loss(self, batch: Batch[SquadTarget]) -> Tensor:
        """Return the mean negative log-likelihood of the gold first and last tokens."""
        assert batch.target.bounds_B2 is not None
        right_B2 = self(batch).gather(2, batch.target.bounds_B2[:, :, None]).squeeze(2)
        loss: Tensor = -right_B2.sum(dim=1).mean()
        return loss

    def outputs(self, batch: Batch[SquadTarget]) -> list[Bounds]:
        """Return the log-probabilities of every question."""
        contexts, _ = batch.columns
        lengths = contexts.mask_BT.sum(dim=1).tolist()
        bounds = self(batch).cpu().numpy()
        return [bounds_2T[:, :length] for bounds_2T, length in zip(bounds, lengths, strict=True)]

    def _read(self, contexts: Column, questions: Column) -> Tensor:
        """Return the paragraphs conditioned on their questions, (B, T, 2 H)."""
        context_BTD, question_BSD = (self._encode(self.tokens(column)) for column in (contexts, questions))
        mask_BT = contexts.mask_BT
        merged_BTH = self.attention(context_BTD, mask_BT, question_BSD, questions.mask_BT).relu()
        reread_BTH = self.dropout(self.reader(self.dropout(merged_BTH), mask_BT))
        related_BTH = self.self_merge(self.self_attention(reread_BTH, mask_BT)).relu()
        read_BTH: Tensor = self.dropout(merged_BTH + related_BTH)
        return read_BTH

    def _encode(self, read: EncodedTokens) -> Tensor:
        encoded_BTD: Tensor = self.dropout(self.encoder(self.dropout(read.inputs_BTE), read.mask_BT))
        return encoded_BTD if read.elmo_BTD is None else torch.cat([encoded_BTD, read.elmo_BTD], dim=2)


def _dense(input_dim: int, output_dim: int) -> nn.Linear:
    """Return a linear layer with Glorot-uniform weights and zero biases."""
    layer = nn.Linear(input_dim, output_dim)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class SquadTask:
    """Question answering in SQuAD 1.1's JSON."""

    name = "squad"
    metric = "f1"
    settings: type[FrozenConfig] = SquadSettings
    labels: type[SquadLabels] = SquadLabels
    reads_paragraphs = False

    def read_training(self, path: Path) -> list[AskedParagraph]:
        """Read the questions of a file; each needs an answer."""
        examples = _read_questions(path)
        unanswered = [example.id for example in examples if not example.answers]
        if unanswered:
            raise InputError(
                f"{path}: {len(unanswered):,} of {len(examples):,} questions have no answer, {unanswered[0]!r} first; "
                "the model is trained to find answers: leave these out, or train on SQuAD 1.1, which has none of them"
            )
        return examples

    def read(self, path: Path) -> list[AskedParagraph]:
        """Read the questions of a file; at least one needs an answer."""
        examples = _read_questions(path)
        if not any(example.answers for example in examples):
            raise InputError(
                f"{path}: none of {len(examples):,} questions has an answer to score against; give a file with "
                "answers, or use elmokit task predict"
            )
        return examples

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[AskedParagraph]:
        """Return a line as one question: paragraph, tab, question."""
        if rules != RAW_ENGLISH:
            raise InputError(
                "questions and paragraphs are tokenized by the rules of the training data; "
                "give raw text, without --tokenized and --language"
            )
        parts = text.split("\t")
        if len(parts) != 2:
            raise InputError(f"{text[:80]!r} has {len(parts) - 1} tabs; expected a paragraph, a tab and a question")
        context, question = parts
        return [_make_example(Question("", context, question, ()), tokenize_paragraph(context))]

    def sequences(self, example: AskedParagraph) -> Sequences:
        """Return paragraph and question, one column each."""
        return ([example.context.tokens], [example.question.tokens])

    def learn_labels(self, examples: Sequence[AskedParagraph]) -> SquadLabels:
        """Return the empty label space: an answer is a place."""
        del examples
        return SquadLabels()

    def build(self, settings: SquadSettings, labels: SquadLabels, tokens: TokenEncoder) -> SquadModel:
        """Return a new model."""
        return SquadModel(settings, labels, tokens)

    def collate(self, examples: Sequence[AskedParagraph], labels: SquadLabels, *, labeled: bool) -> SquadTarget:
        """Return the first and last tokens of the first answers."""
        del labels
        if not labeled:
            return SquadTarget(None)
        for example in examples:
            if not example.answers:
                raise InputError(f"question {example.id!r} has no answer to train on; leave it out")
        return SquadTarget(torch.tensor([_find_answer(example.context, example.answers[0]) for example in examples]))

    def decode(self, output: Bounds, example: AskedParagraph, labels: SquadLabels) -> FoundAnswer:
        """Return the most probable span of at most ``MAX_ANSWER_TOKENS`` tokens; the first of equals."""
        del labels
        first, last = best_span(output)
        start, end = example.context.find_characters(first, last)
        probability = float(np.exp(output[0, first] + output[1, last]))
        return FoundAnswer(example.context.text[start:end], start, end, probability)

    def combine(self, outputs: Sequence[Bounds]) -> Bounds:
        """Return the mean distributions of start and end."""
        return mean_of_logs(outputs)

    def score(self, examples: Sequence[AskedParagraph], predictions: Sequence[FoundAnswer]) -> dict[str, float]:
        """Return F1 and exact match as SQuAD 1.1 counts them. Any answer to an unanswerable question is wrong."""
        answered = [
            ([answer.text for answer in example.answers], prediction.text)
            for example, prediction in zip(examples, predictions, strict=True)
            if example.answers
        ]
        if not answered:
            raise InputError(f"none of {len(examples):,} questions has an answer to score against; give some that do")
        found = score_answers([gold for gold, _ in answered], [text for _, text in answered])
        share = len(answered) / len(examples)
        return {"f1": share * found.f1, "exact_match": share * found.exact_match}

    def unknown_labels(self, examples: Sequence[AskedParagraph], labels: SquadLabels) -> set[str]:
        """Return ``no answer`` if a question has none: the model always answers."""
        del labels
        return set() if all(example.answers for example in examples) else {NO_ANSWER}

    def vary(self, example: AskedParagraph, rng: np.random.Generator) -> AskedParagraph:
        """Return the example with one of its answers, drawn at random."""
        if len(example.answers) <= 1:
            return example
        return replace(example, answers=(example.answers[rng.integers(len(example.answers))],))

    def show(self, example: AskedParagraph, prediction: FoundAnswer) -> str:
        """Return question, answer and its context: ``Who? Ann (93%): ... then came [Ann] , who ...``."""
        text, start, end = example.context.text, prediction.start, prediction.end
        before, after = text[max(start - SHOWN_AROUND, 0) : start], text[end : end + SHOWN_AROUND]
        around = f"{'...' if start > SHOWN_AROUND else ''}{before}[{prediction.text}]{after}"
        around += "..." if end + SHOWN_AROUND < len(text) else ""
        shown = f"{example.question.text} {prediction.text} ({prediction.probability:.0%}): {around}"
        return " ".join(shown.split())

    def to_json(self, example: AskedParagraph, prediction: FoundAnswer) -> dict[str, Any]:
        """Return the question, the answer, and its character span in the paragraph, end excluded."""
        return {
            "id": example.id,
            "question": example.question.text,
            "answer": prediction.text,
            "start": prediction.start,
            "end": prediction.end,
            "probability": prediction.probability,
        }


TASK: Task[AskedParagraph, SquadLabels, SquadTarget, Bounds, FoundAnswer] = SquadTask()


def _read_questions(path: Path) -> list[AskedParagraph]:
    tokens_of = lru_cache(CACHED_PARAGRAPHS)(tokenize_paragraph)
    examples = [
        _make_example(found, tokens_of(found.context), place=f"{path}: question {found.id!r}: ")
        for found in read_squad(path)
    ]
    if not examples:
        raise InputError(f"{path}: no questions; check that this is the right file")
    return examples


def _make_example(asked: Question, context: SquadText, *, place: str = "") -> AskedParagraph:
    example = AskedParagraph(asked.id, context, tokenize_question(asked.question), asked.answers)
    for part, name in ((example.context, "paragraph"), (example.question, "question")):
        if not part.tokens:
            raise InputError(f"{place}the {name} {part.text[:80]!r} has no tokens; leave it out")
    for answer in asked.answers:
        if _find_answer(context, answer) is None:
            raise InputError(f"{place}the answer {answer.text[:80]!r} has no tokens; take it out")
    return example


def _find_answer(context: SquadText, answer: Answer) -> tuple[int, int] | None:
    return context.find_tokens(answer.start, answer.start + len(answer.text))


def hold_out_contexts(examples: Sequence[AskedParagraph]) -> tuple[list[AskedParagraph], list[AskedParagraph]]:
    """Split into training and dev examples; dev has all questions on a tenth of the paragraphs.

    The split depends on the set of paragraphs alone, not on their order or the number of questions.
    """
    texts = {example.context.text for example in examples}
    if len(texts) < 2:
        raise InputError(f"questions on {len(texts)} paragraphs cannot be split; give questions on two or more")
    order = sorted(
        texts, key=lambda text: hashlib.sha256(f"{HELD_OUT_SEED} {text}".encode("utf-8", "surrogatepass")).digest()
    )
    held_out = set(order[: max(1, round(HELD_OUT_SHARE * len(texts)))])
    train = [example for example in examples if example.context.text not in held_out]
    dev = [example for example in examples if example.context.text in held_out]
    return train, dev


def best_span(bounds_2T: Bounds) -> tuple[int, int]:
    """Return the first and last token of the most probable answer; of equals the first, then the shortest."""
    start_T, end_T = bounds_2T
    beyond = np.full(MAX_ANSWER_TOKENS - 1, -np.inf, dtype=end_T.dtype)
    scores_TM = start_T[:, None] + sliding_window_view(np.concatenate([end_T, beyond]), MAX_ANSWER_TOKENS)
    first, num_more = divmod(int(scores_TM.argmax()), MAX_ANSWER_TOKENS)
    return first, first + num_more
