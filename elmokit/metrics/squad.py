"""Exact match and F1 of answers, as the official script of SQuAD 1.1 scores them."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.errors import InputError

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII alone: a typographic quote stays


@dataclass(frozen=True)
class AnswerScores:
    """Means over questions, from 0 to 1."""

    exact_match: float
    f1: float


def score_answers(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> AnswerScores:
    """Score one predicted answer for each question against all gold ones; the best gold answer counts.

    Answers are compared as ``normalize_answer`` gives them. Exact match and F1 may take different gold answers. An
    answer that is empty after normalizing has F1 0 even where the gold one is empty too, as in the official script.
    A question without a prediction is given ``""``.
    """
    _check(gold, predicted)
    exact = overlap = 0.0
    for answers, answer in zip(gold, predicted, strict=True):
        words = normalize_answer(answer).split()
        gold_words = [normalize_answer(gold_answer).split() for gold_answer in answers]
        exact += words in gold_words
        overlap += max(_word_f1(words, one) for one in gold_words)
    return AnswerScores(exact_match=exact / len(gold), f1=overlap / len(gold))


def normalize_answer(text: str) -> str:
    """Lower the case, drop ASCII punctuation, then the words a, an and the, then extra white space."""
    # The order matters: "A.N." becomes the article "an".
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _word_f1(words: list[str], gold_words: list[str]) -> float:
    """Return the F1 of two bags of words."""
    num_same = (Counter(words) & Counter(gold_words)).total()
    return 2 * num_same / (len(words) + len(gold_words)) if num_same else 0.0


def _check(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> None:
    if len(gold) != len(predicted):
        raise InputError(
            f"gold answers of {len(gold)} questions but {len(predicted)} predicted answers; "
            "give one prediction for each question"
        )
    if not gold:
        raise InputError("no question is given, and a mean needs one or more")
    for index, answers in enumerate(gold):
        if isinstance(answers, str):  # its letters would be read as answers
            raise InputError(f"question {index}: the gold answers are the string {answers!r}, but must be a list")
        if not answers:
            raise InputError(
                f"question {index} has no gold answer, and SQuAD 1.1 scores against one or more; leave it out"
            )
