"""Tagging with tags of one's own: files, tags, Viterbi without rules, and a few sentences memorized."""

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from task_models import predict
from toy_inputs import batch_of, make_columns, make_model, overfit

from elmokit.errors import InputError
from elmokit.readers.conll2003 import TaggedSentence
from elmokit.tasks.ner import ChainScores, NERLabels
from elmokit.tasks.tag import TASK

LINES = "She\tPRON\nruns\tVERB\n.\tPUNCT\n\n\nDogs NOUN\nrun VERB\n"


def read(tmp_path: Path, text: str) -> list[TaggedSentence]:
    (tmp_path / "tags.tsv").write_text(text, "utf-8")
    return TASK.read(tmp_path / "tags.tsv")


def test_sentences_are_separated_by_blank_lines(tmp_path: Path) -> None:
    sentences = read(tmp_path, LINES)
    assert [one.tokens for one in sentences] == [("She", "runs", "."), ("Dogs", "run")]
    assert [one.tags for one in sentences] == [("PRON", "VERB", "PUNCT"), ("NOUN", "VERB")]
    assert TASK.learn_labels(sentences).tags == ("NOUN", "PRON", "PUNCT", "VERB")


def test_other_columns_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tags.tsv, line 2: 'runs' has 1 columns; expected a token and its tag"):
        read(tmp_path, "She\tPRON\nruns\n")


def test_decoding_equals_brute_force() -> None:
    rng = np.random.default_rng(0)
    labels = NERLabels(tags=("A", "B", "C"))
    for _ in range(10):
        scores = ChainScores(rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(3, 3)).astype(np.float32))

        def score(path: tuple[int, ...], scores: ChainScores = scores) -> float:
            pairs = pairwise(path)
            emitted = sum(scores.emissions_TK[place, tag] for place, tag in enumerate(path))
            return float(emitted + sum(scores.transitions_KK[pair] for pair in pairs))

        best = max(product(range(3), repeat=4), key=score)
        found = TASK.decode(scores, TaggedSentence(("a",) * 4, (), 0), labels)
        assert found == tuple(labels.tags[tag] for tag in best)


def test_a_few_sentences_are_memorized(tmp_path: Path) -> None:
    sentences = read(tmp_path, LINES)
    labels, columns = TASK.learn_labels(sentences), make_columns(TASK, sentences, place="input")
    model = make_model(TASK, columns, labels, hidden_dims=(6, 5), dropout=0.0)
    overfit(model, batch_of(TASK, sentences, labels, columns), steps=60, learning_rate=0.05)
    found = predict(TASK, model, columns, labels, sentences, batch_size=2)
    assert found == [one.tags for one in sentences]
    assert TASK.score(sentences, [found[0], ("NOUN", "NOUN")]) == {"accuracy": 4 / 5, "sentence_accuracy": 0.5}
    assert TASK.show(sentences[0], found[0]) == "She/PRON runs/VERB ./PUNCT"
    assert TASK.unknown_labels([TaggedSentence(("a",), ("X",), 0)], labels) == {"X"}
