"""SQuAD 1.1: questions on paragraphs, answered by spans of characters.

The file is one JSON document, so it is read whole. Questions without answers (SQuAD 2.0 has some) are given too.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

MAX_BYTES = 1 << 30  # the document is one line; that of SQuAD 2.0 has 42 MB

T = TypeVar("T")

_KINDS = {str: "a string", int: "a whole number", list: "a list", dict: "an object"}


@dataclass(frozen=True)
class Answer:
    """``text`` stands in the context from character ``start`` on; this was checked."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question, its paragraph, and every annotator's answer."""

    id: str
    context: str
    """One string object for all questions on a paragraph."""
    question: str
    answers: tuple[Answer, ...]


def read_squad(path: str | Path) -> Iterator[Question]:
    """Yield the questions of a file; .gz and .xz are unpacked."""
    return _read_questions(path, read_lines([path], line_bytes=MAX_BYTES))


def _read_questions(path: str | Path, lines: Iterable[Line]) -> Iterator[Question]:
    root = _parse(path, lines)
    ids: set[str] = set()
    for article_index, article in enumerate(_get(root, "data", list, f"{path}: the document")):
        article_place = f"{path}: data[{article_index}]"
        for paragraph_index, paragraph in enumerate(_get(article, "paragraphs", list, article_place)):
            place = f"{article_place}.paragraphs[{paragraph_index}]"
            context = _get(paragraph, "context", str, place)
            for index, entry in enumerate(_get(paragraph, "qas", list, place)):
                question = _read_question(entry, context, f"{place}.qas[{index}]")
                if question.id in ids:
                    raise InputError(
                        f"{place}.qas[{index}]: id {question.id!r} is there already, but predictions go by id; "
                        "give each question its own"
                    )
                ids.add(question.id)
                yield question


def _parse(path: str | Path, lines: Iterable[Line]) -> object:
    try:
        return json.loads("\n".join(line.text for line in lines))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}: no JSON ({error.msg}, character {error.colno}); SQuAD is one JSON document: "
            "download the file again"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: JSON that cannot be read ({error}); download the file again") from error


def _read_question(entry: object, context: str, place: str) -> Question:
    question_id = _get(entry, "id", str, place)
    place = f"{place} (question {question_id!r})"
    answers = [
        _read_answer(answer, context, f"{place}, answer {number}")
        for number, answer in enumerate(_get(entry, "answers", list, place), start=1)
    ]
    return Question(question_id, context, _get(entry, "question", str, place), tuple(answers))


def _read_answer(entry: object, context: str, place: str) -> Answer:
    text, start = _get(entry, "text", str, place), _get(entry, "answer_start", int, place)
    if not text:
        raise InputError(f"{place}: the text is empty, but must be a part of the context; take the answer out")
    if start < 0 or not context.startswith(text, start):
        elsewhere = context.find(text)
        raise InputError(
            f"{place}: {text!r} is not at character {start} of the context, where there is "
            f"{context[max(start, 0) :][: len(text)]!r}; "
            + (
                f"it first comes at {elsewhere}: correct answer_start"
                if elsewhere >= 0
                else "it is nowhere: correct it"
            )
        )
    return Answer(text, start)


def _get(value: object, key: str, kind: type[T], place: str) -> T:
    if not isinstance(value, dict):
        raise InputError(
            f"{place} is {str(value)[:80]!r}, but must be an object with {key!r}; check that this is SQuAD"
        )
    if key not in value:
        raise InputError(f"{place} has no {key!r}, only {', '.join(value) or 'nothing'}; check that this is SQuAD")
    member = value[key]
    if not isinstance(member, kind) or isinstance(member, bool):
        raise InputError(
            f"{place}: {key} is {str(member)[:80]!r}, but must be {_KINDS[kind]}; check that this is SQuAD"
        )
    return member
