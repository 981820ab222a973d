"""Data without a published split is divided by documents, always in the same way."""

from pathlib import Path

import pytest

from elmokit.analysis.datasets import choose_datasets
from elmokit.analysis.splits import Split, split_by_document
from elmokit.errors import InputError
from elmokit.tasks.names import get_task


def split(documents: list[int], held_out: int) -> Split[int]:
    return split_by_document(documents, lambda document: document, held_out=held_out, between="-DOCSTART-")


def sizes(parts: Split[int]) -> list[int]:
    return [len(part) for part in (parts.train, parts.dev, parts.test)]


def test_a_documents_examples_stay_together_and_each_is_taken_once() -> None:
    parts = split([document for document in range(10) for _ in "ab"], held_out=20)
    assert sizes(parts) == [12, 4, 4]
    assert [set(parts.dev), set(parts.test)] == [{4, 6}, {2, 7}]  # results that are written down were made with these
    assert set(parts.train) == set(range(10)) - {4, 6, 2, 7}


def test_the_order_in_which_documents_come_changes_nothing() -> None:
    documents = list(range(30))
    parts, turned = split(documents, held_out=10), split(documents[::-1], held_out=10)
    assert sizes(parts) == [24, 3, 3]
    assert (set(turned.dev), set(turned.test)) == (set(parts.dev), set(parts.test))


@pytest.mark.parametrize(
    ("num_documents", "held_out", "message"),
    [
        (4, 20, r"4 documents cannot be split 60/20/20; expected 5 or more, separated by a line -DOCSTART-"),
        (9, 10, r"9 documents cannot be split 80/10/10; expected 10 or more"),
        (0, 10, r"0 documents cannot be split"),
    ],
)
def test_too_few_documents_are_rejected(num_documents: int, held_out: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split(list(range(num_documents)), held_out)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "expected"),
    [("ner-wikigold", (946, 326, 424)), pytest.param("coref", (80, 10, 10), marks=pytest.mark.slow)],
)
def test_real_data_is_split_as_our_results_say(data_dir: Path, name: str, expected: tuple[int, int, int]) -> None:
    (dataset,) = choose_datasets([name])
    data = dataset.read(get_task(dataset.task), *dataset.find_files(data_dir))
    assert (len(data.train), len(data.dev), len(data.read_test())) == expected
    if name == "coref":
        assert [document.name for document in data.dev[:2]] == ["113_the_secret_garden_brat", "145_middlemarch_brat"]
