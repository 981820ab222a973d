"""Datasets of the tasks: files, splits without overlap, and their text."""

from itertools import combinations
from pathlib import Path

import pytest
from toy_datasets import write_data

from elmokit.analysis.datasets import DATASETS, DataSet, choose_datasets, find_dataset
from elmokit.errors import InputError
from elmokit.tasks.names import get_task


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def test_rows_have_the_metric_of_their_task():
    assert {one.task for one in DATASETS} == {"coref", "ner", "parse", "snli", "squad", "srl", "sst", "tag"}
    assert all(get_task(one.task).metric == one.metric for one in DATASETS)


def test_rows_are_chosen_by_their_name_or_their_task():
    assert [one.name for one in choose_datasets(["snli", "ner"])] == ["ner-wikigold", "ner-wnut17", "snli"]
    assert [one.name for one in choose_datasets(["ner-wnut17"])] == ["ner-wnut17"]
    assert choose_datasets([]) == list(DATASETS)
    with pytest.raises(InputError, match="no row 'pos'; its rows are ner-wikigold, "):
        choose_datasets(["pos"])


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda one: one.name)
def test_every_row_reads_its_files_and_no_example_is_in_two_parts(data: Path, dataset: DataSet) -> None:
    task = get_task(dataset.task)
    read = dataset.read(task, *dataset.find_files(data))
    assert read.train
    assert read.dev
    assert read.read_test()
    if dataset.split != "as published" and dataset.task != "snli":
        divided = [read.train, read.dev, *([read.read_test()] if len(dataset.files) == 1 else [])]
        parts = [{repr(task.sequences(example)[0]) for example in part} for part in divided]
        for one, other in combinations(parts, 2):
            assert one.isdisjoint(other)


def test_files_are_found_packed_or_not_and_a_missing_one_is_named(tmp_path):
    dataset = find_dataset("ner-wikigold")
    with pytest.raises(InputError, match=r"has no ner/wikigold\.conll \(or \.xz or \.gz of it\).*--only"):
        dataset.find_files(tmp_path)
    for name in ("wikigold.conll.gz", "wikigold.conll"):
        (tmp_path / "ner").mkdir(exist_ok=True)
        (tmp_path / "ner" / name).touch()
        assert [path.name for path in dataset.find_files(tmp_path)] == [name]


def test_text_has_every_sentence_once_and_neither_phrases_nor_questions(data):
    train, dev = find_dataset("sst").read_text(data)
    assert all(len(tokens) == 5 for tokens in [*train, *dev])  # phrases have fewer
    assert len(train) == len(set(map(tuple, train))) == 10
    paragraphs, _ = find_dataset("squad").read_text(data)
    assert not any("?" in tokens for tokens in paragraphs)
    pairs, _ = find_dataset("snli").read_text(data)
    assert ("Ada", "saw", "Oslo", ".") in map(tuple, pairs)
