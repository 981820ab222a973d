"""Documents with coreference: what is read of files, and windows of them."""

import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coref_stories import as_conll, stories, story

from elmokit.cli.task_predictions import read_examples
from elmokit.errors import InputError, MissingExtraError
from elmokit.readers.conll2012 import Document, Mention
from elmokit.tasks import coref_documents
from elmokit.tasks.coref_documents import (
    choose_window,
    genre,
    make_document,
    read_documents,
    tidy_clusters,
)
from elmokit.tasks.names import get_task
from elmokit.text.lines import Line
from elmokit.text.rules import RAW_ENGLISH

ALONE = Mention(0, 5, 6)


def write_files(folder: Path, documents: list[Document]) -> Path:
    folder.mkdir()
    for document in documents:
        (folder / f"{document.name}.conll").write_text(as_conll(document), "utf-8")
    return folder


def test_a_file_a_folder_and_an_archive_give_the_same_documents(tmp_path: Path) -> None:
    written = stories(3)
    folder = write_files(tmp_path / "folder", written)
    (folder / "README.md").write_text("no document", "utf-8")
    whole = tmp_path / "all.conll"
    whole.write_text("".join(map(as_conll, written)), "utf-8")
    archive = tmp_path / "all.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(folder, "inside")
    for source in (whole, folder, archive):
        found = read_documents(source)
        assert [document.name for document in found] == ["s0", "s1", "s2"]
        assert [document.clusters for document in found] == [document.clusters for document in written]
        assert [d.sentences[0].tokens for d in found] == [d.sentences[0].tokens for d in written]


def test_mentions_that_are_alone_are_dropped_in_reading(tmp_path: Path) -> None:
    document = story("[1 ann ] met [2 ben ] and [3 a dog ]", "[1 she ] left")
    with_alone = replace(document, clusters=(*document.clusters, (ALONE,)))
    path = tmp_path / "a.conll"
    path.write_text(as_conll(with_alone), "utf-8")
    assert "(1)" in path.read_text("utf-8")
    (found,) = read_documents(path)
    assert found.clusters == ((Mention(0, 0, 1), Mention(1, 0, 1)),)


def test_slashes_before_the_end_of_a_sentence_are_dropped_in_reading(tmp_path: Path) -> None:
    document = story("[1 Ann ] / 9/11 /.", "[1 She ] /?")
    (tmp_path / "a.conll").write_text(as_conll(document), "utf-8")
    [found] = read_documents(tmp_path / "a.conll")
    assert [sentence.tokens for sentence in found.sentences] == [("Ann", "/", "9/11", "."), ("She", "?")]
    assert found.clusters == document.clusters


def test_clusters_that_share_a_mention_become_one() -> None:
    a, b, c, d, e, f = (Mention(0, place, place + 1) for place in range(6))
    assert tidy_clusters([[e, f], [a, b], [c, d], [b, c], [f]]) == ((a, b, c, d), (e, f))
    assert tidy_clusters([[b, b], [a]]) == ()


def test_a_document_that_is_there_twice_is_rejected(tmp_path: Path) -> None:
    (document,) = stories(1)
    folder = write_files(tmp_path / "folder", [document])
    (folder / "again.auto_conll").write_text(as_conll(document), "utf-8")
    with pytest.raises(InputError, match=r"'s0', part 0, occurs twice"):
        read_documents(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("#begin document (x); part 000\n#end document\n", r"'x', part 0, has no sentences"),
        ("\n\n", "no documents"),
        ("some text\n", "expected '#begin document"),
    ],
)
def test_files_without_documents_are_rejected_in_plain_words(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.conll"
    path.write_text(content, "utf-8")
    with pytest.raises(InputError, match=message):
        read_documents(path)


def test_a_folder_without_files_and_a_missing_file_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file in the folder"):
        read_documents(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_documents(tmp_path / "gone.conll")


def test_text_is_split_into_the_sentences_of_one_document() -> None:
    found = make_document("Ann left. She ran.\nIt rained.")
    assert [sentence.tokens for sentence in found.sentences] == [
        ("Ann", "left", "."),
        ("She", "ran", "."),
        ("It", "rained", "."),
    ]
    assert found.clusters == ()
    assert make_document(" \n ") is None


def test_an_empty_line_begins_another_document() -> None:
    texts = ["Ann left. She ran.", "It rained.", "", "  ", "Ben stayed.", ""]
    lines = [Line(text, "a.txt", number) for number, text in enumerate(texts, start=1)]
    found = list(read_examples(get_task("coref"), lines, RAW_ENGLISH))
    assert [(one.line, len(one.example.sentences)) for one in found] == [(0, 3), (4, 1)]


def test_a_window_holds_what_lies_inside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coref_documents, "TRAINING_SENTENCES", 2)
    document = story("[1 a ] b [2 c ]", "d [1 e f ]", "[2 g ] [1 h ] [3 i ]", "[3 j ]", speakers=("s", "t", "u", "v"))
    seen = {}
    for seed in range(40):
        window = choose_window(document, np.random.default_rng(seed))
        assert len(window.sentences) == 2
        start = document.sentences.index(window.sentences[0])
        assert window.sentences == document.sentences[start : start + 2]
        seen[start] = window.clusters
    assert seen == {
        0: ((Mention(0, 0, 1), Mention(1, 1, 3)),),
        1: ((Mention(0, 1, 3), Mention(1, 1, 2)),),
        2: ((Mention(0, 2, 3), Mention(1, 0, 1)),),
    }


def test_a_short_document_is_its_own_window() -> None:
    (document,) = stories(1)
    assert choose_window(document, np.random.default_rng(0)) is document


def test_a_window_follows_from_its_generator_alone() -> None:
    document = story(*["[1 a ] saw [2 b ]"] * 90)
    one, again, other = (choose_window(document, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert one == again
    assert len(one.sentences) == len(other.sentences) == 50


def test_what_scores_need_is_asked_for_before_anything_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[tasks\]'"):
        get_task("coref").read(tmp_path / "none.conll")


def test_the_next_file_begins_another_document() -> None:
    lines = [Line("Ann left.", "a.txt", 1), Line("She won.", "a.txt", 2), Line("Ben ran.", "b.txt", 1)]
    asked = list(read_examples(get_task("coref"), lines, RAW_ENGLISH))
    assert [(one.line, len(one.example.sentences)) for one in asked] == [(0, 2), (2, 1)]


def test_a_genre_is_reported_by_the_names_of_ontonotes_only() -> None:
    assert genre(story("a", name="bn/cnn/00/cnn_0001")) == "bn"
    assert genre(story("a", name="1023_bleak_house_brat")) is None
    assert genre(story("a", name="nw")) is None
    assert genre(story("a", name="xx/abc")) is None


@pytest.mark.long
def test_litbank_is_read_whole(data_dir: Path) -> None:
    documents = read_documents(data_dir / "coref" / "litbank-conll.tar.xz")
    assert len(documents) == 100
    assert sum(len(sentence.tokens) for d in documents for sentence in d.sentences) == 210_532
    assert all(len(cluster) > 1 for d in documents for cluster in d.clusters)
    assert sum(len(cluster) for d in documents for cluster in d.clusters) == 23_340
