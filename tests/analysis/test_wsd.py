"""Senses by their nearest mean vector, against brute force; and the paper's own check, WordNet's first sense."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from elmokit.analysis.wsd import SenseScores, answer_senses, join_answers, learn_senses, score_senses
from elmokit.readers.wsd import SenseInstance, SenseSentence, read_sense_index, read_wsd

TEST_SETS = ("senseval2", "senseval3", "semeval2013", "semeval2015")


class HashedEncoder:
    """Vectors that depend on the token and its left neighbor."""

    num_layers, width = 2, 4

    def iter_layers(self, sentences: Iterable[Iterable[str]], *, batch_size: int = 64) -> Iterator[np.ndarray]:
        del batch_size
        for sentence in sentences:
            tokens = ["", *sentence]
            rows = [
                np.random.default_rng([*map(ord, left), 0, *map(ord, right)]).normal(size=(2, 4))
                for left, right in pairwise(tokens)
            ]
            yield np.stack(rows, axis=1).astype(np.float32)


def sentence(text: str, *instances: tuple[int, int, str, tuple[str, ...]]) -> SenseSentence:
    tokens = tuple(text.split())
    found = tuple(
        SenseInstance(f"{start}", start, end, lemma, "NOUN", senses) for start, end, lemma, senses in instances
    )
    return SenseSentence(tokens, tokens, ("NOUN",) * len(tokens), found)


TRAIN = [
    sentence("river bank", (1, 2, "bank", ("bank%1",))),
    sentence("money bank", (1, 2, "bank", ("bank%2",))),
    sentence("old bank", (1, 2, "bank", ("bank%1", "bank%2"))),
    sentence("a primary election now", (1, 3, "primary_election", ("primary%1",))),
]
FIRST = {("bank", "NOUN"): "bank%1", ("cat", "NOUN"): "cat%1", ("primary_election", "NOUN"): "primary%9"}


def test_the_nearest_mean_by_cosine_is_the_answer() -> None:
    encoder = HashedEncoder()
    senses = learn_senses(encoder, TRAIN)
    (old,), (river,), (money,) = (
        list(encoder.iter_layers([text.split()])) for text in ("old bank", "river bank", "money bank")
    )
    means = {"bank%1": (river[:, 1] + old[:, 1]) / 2, "bank%2": (money[:, 1] + old[:, 1]) / 2}
    for text in ("wide bank", "new bank", "the bank"):
        (layers,) = encoder.iter_layers([text.split()])
        for layer, answer in enumerate(senses.nearest(("bank", "NOUN"), layers[:, 1])):
            cosines = {
                sense: float(
                    mean[layer] @ layers[layer, 1] / np.linalg.norm(mean[layer]) / np.linalg.norm(layers[layer, 1])
                )
                for sense, mean in means.items()
            }
            assert answer == max(cosines, key=cosines.__getitem__)


def test_an_unseen_word_gets_the_first_sense_and_any_gold_sense_is_right() -> None:
    encoder = HashedEncoder()
    senses = learn_senses(encoder, TRAIN)
    test = [
        sentence("one cat", (1, 2, "cat", ("cat%1",))),
        sentence("one dog", (1, 2, "dog", ("dog%1",))),
        sentence("river bank", (1, 2, "bank", ("bank%2", "bank%1"))),
    ]
    assert score_senses(encoder, senses, FIRST, test) == SenseScores(3, 2 / 3, (2 / 3, 2 / 3), 2)


def test_a_multi_word_instance_is_the_mean_of_its_tokens() -> None:
    encoder = HashedEncoder()
    senses = learn_senses(encoder, TRAIN)
    test = [TRAIN[3], sentence("money bank", (1, 2, "bank", ("bank%2",)))]
    assert score_senses(encoder, senses, FIRST, test, multi_word=True) == SenseScores(1, 0.0, (1.0, 1.0), 0)
    assert score_senses(encoder, senses, FIRST, test, multi_word=False).num_instances == 1


def test_answers_to_several_sets_are_those_to_one_in_order() -> None:
    encoder = HashedEncoder()
    senses = learn_senses(encoder, TRAIN)
    test = [*TRAIN, sentence("one cat", (1, 2, "cat", ("cat%1",))), sentence("wide bank", (1, 2, "bank", ("bank%2",)))]
    whole = answer_senses(encoder, senses, FIRST, test)
    parts = join_answers([answer_senses(encoder, senses, FIRST, some) for some in (test[:2], test[2:])])
    assert parts.scores() == whole.scores() == score_senses(encoder, senses, FIRST, test)
    for found in (whole, parts):
        assert found.first_N.tolist() == [True, False, True, False, True, False]
        assert found.unseen_N.tolist() == [False] * 4 + [True, False]
        assert found.multi_word_N.tolist() == [False] * 3 + [True] + [False] * 2
        assert found.right_LN[:, 2:5].all()
    nearest = senses.nearest(("bank", "NOUN"), next(encoder.iter_layers([["wide", "bank"]]))[:, 1])
    assert nearest is not None
    assert whole.right_LN[:, 5].tolist() == [answer == "bank%2" for answer in nearest]
    assert whole.right_LN[:, 5].tolist() == parts.right_LN[:, 5].tolist()


@pytest.mark.long
def test_the_first_sense_scores_what_the_paper_says(data_dir: Path) -> None:
    first = read_sense_index(data_dir / "wsd" / "wordnet3.0.index.sense.xz")
    total = right = 0
    for name in TEST_SETS:
        folder = data_dir / "wsd" / name
        for found in read_wsd(folder / f"{name}.data.xml", folder / f"{name}.gold.key.txt"):
            for instance in found.instances:
                total += 1
                right += first.get((instance.lemma, instance.pos)) in instance.senses
    assert total == 2282 + 1850 + 1644 + 1022
    assert round(100 * right / total, 1) == 65.9
