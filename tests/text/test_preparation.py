"""Text to a prepared corpus: the same for any number of workers, whole or not at all."""

import gzip
import hashlib
import json
import lzma
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from elmokit.errors import ElmokitWarning, InputError, OutputError
from elmokit.text import chunks, preparation
from elmokit.text.corpus import Corpus
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import RAW_ENGLISH, RAW_LINES, TextRules

TOKENIZED = TextRules(tokenized=True)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def sentences(corpus: Corpus) -> list[str]:
    return [" ".join(map(corpus.word, corpus.sentence(i).tolist())) for i in range(corpus.num_sentences)]


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_raw_lines_are_tokenised_sentences(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "Don't go. He left.\n\n  \nIt\u2019s late!\n")
    corpus = prepare_corpus([path], tmp_path / "corpus")
    assert sentences(corpus) == ["Don 't go . He left .", "It 's late !"]


def test_paragraphs_are_split_if_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "It rained. He left.\nDr. No came.\n")
    corpus = prepare_corpus([path], tmp_path / "corpus", rules=RAW_ENGLISH)
    assert sentences(corpus) == ["It rained .", "He left .", "Dr. No came ."]


def test_another_language_has_its_own_rules(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "L'homme est là.\n")
    assert sentences(prepare_corpus([path], tmp_path / "corpus", rules=TextRules(language="fr"))) == [
        "L' homme est là ."
    ]


def test_tokenised_text_is_split_on_white_space_and_not_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", " Don't\tgo. \u3000 now\u00a0then “x”\u200b\n\n\u2003\na\x0bb\r\n")
    corpus = prepare_corpus([path], tmp_path / "corpus", rules=TOKENIZED)
    assert sentences(corpus) == ["Don't go. now then “x”\u200b", "a b"]


def test_files_are_read_in_order_packed_or_not(tmp_path: Path) -> None:
    plain = write(tmp_path / "b.txt", "one\ntwo")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"three\n"))
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(b"four\n"))
    files = [plain, tmp_path / "a.txt.gz", str(tmp_path / "c.txt.xz")]
    assert sentences(prepare_corpus(files, tmp_path / "corpus", rules=TOKENIZED)) == ["one", "two", "three", "four"]


def test_one_word_is_a_corpus(tmp_path: Path) -> None:
    corpus = prepare_corpus([write(tmp_path / "a.txt", "word")], tmp_path / "corpus", rules=TOKENIZED)
    assert sentences(corpus) == ["word"]
    assert corpus.counts.tolist() == [1]


def test_cut_words_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "WORDS_AT_ONCE", 2)
    path = write(tmp_path / "a.txt", "abc abcd éé abcde abcde\n")
    assert prepare_corpus([path], tmp_path / "corpus", rules=TOKENIZED, max_chars=5).num_cut_words == 3


@pytest.mark.long
def test_blocks_and_workers_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (f"Line {i} has w{i % 7}, w{i % 11} and “w{i * i % 100}”." for i in range(500))
    path = write(tmp_path / "a.txt", "\n".join(lines))
    prepare_corpus([path], tmp_path / "whole")
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 500)
    for name, size in [("TOKENS_AT_ONCE", 100), ("WORDS_AT_ONCE", 7)]:
        monkeypatch.setattr(preparation, name, size)
    prepare_corpus([path], tmp_path / "blocks")
    prepare_corpus([path], tmp_path / "workers", num_workers=2)
    assert digests(tmp_path / "blocks") == digests(tmp_path / "whole")
    assert digests(tmp_path / "workers") == digests(tmp_path / "whole")


def test_progress_counts_the_characters_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 5)
    done: list[int] = []
    prepare_corpus([write(tmp_path / "a.txt", "a é\nbcd\ne\n")], tmp_path / "corpus", progress=done.append)
    assert done == [8, 10]


def test_the_same_text_is_not_prepared_again(tmp_path: Path) -> None:
    first = prepare_corpus([write(tmp_path / "a.txt", "a b\n")], tmp_path / "corpus", rules=TOKENIZED)
    inode = (tmp_path / "corpus").stat().st_ino
    same_text = write(tmp_path / "renamed.txt", "a b\n")
    again = prepare_corpus([same_text], tmp_path / "corpus", rules=TextRules(tokenized=True, language="de"))
    assert (tmp_path / "corpus").stat().st_ino == inode
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("text", "options"), [("a c\n", {}), ("a b\n", {"max_chars": 9}), ("a b\n", {"rules": RAW_LINES})]
)
def test_another_text_or_setting_replaces_the_corpus(tmp_path: Path, text: str, options: dict) -> None:
    old = prepare_corpus([write(tmp_path / "a.txt", "a b\n")], tmp_path / "corpus", rules=TOKENIZED)
    new = prepare_corpus([write(tmp_path / "b.txt", text)], tmp_path / "corpus", **{"rules": TOKENIZED, **options})
    assert new.fingerprint != old.fingerprint
    assert Corpus.open(tmp_path / "corpus").fingerprint == new.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "corpus"]


def test_a_damaged_corpus_is_prepared_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a b\n")
    prepare_corpus([path], tmp_path / "corpus", rules=TOKENIZED)
    (tmp_path / "corpus" / "tokens.bin").write_bytes(b"")
    assert sentences(prepare_corpus([path], tmp_path / "corpus", rules=TOKENIZED)) == ["a b"]


def test_text_that_is_gone_is_taken_as_it_was_prepared_if_asked_for(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.txt", "a b\n"), write(tmp_path / "b.txt", "c\n")]
    prepare = partial(prepare_corpus, files, tmp_path / "corpus", rules=TOKENIZED)
    first = prepare()
    files[1].unlink()
    with pytest.raises(InputError, match=r"b\.txt: no such file"):
        prepare()
    with pytest.warns(
        ElmokitWarning, match=r"b\.txt is not there any more; the text that was prepared before is used \(.*corpus\)"
    ):
        assert (
            prepare(may_be_gone=True, rules=TextRules(tokenized=True, language="de")).fingerprint == first.fingerprint
        )
    with pytest.raises(InputError, match=r"b\.txt: no such file"):
        prepare(may_be_gone=True, max_chars=9)
    with pytest.raises(InputError, match=r"b\.txt: no such file"):
        prepare_corpus(files, tmp_path / "other", rules=TOKENIZED, may_be_gone=True)
    write(files[0], "another\n")
    with pytest.raises(InputError, match=r"b\.txt: no such file"):
        prepare(may_be_gone=True)
    files[0].unlink()
    with pytest.warns(ElmokitWarning, match=r"a\.txt and 1 other file are not there any more"):
        prepare(may_be_gone=True)


def test_the_description_says_what_was_prepared(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a b\n")
    prepare_corpus([path], tmp_path / "corpus", rules=TOKENIZED)
    description = json.loads((tmp_path / "corpus" / "corpus.json").read_bytes())
    digest = hashlib.sha256(b"a b\n").hexdigest()
    assert description["sources"] == [{"name": str(path), "num_bytes": 4, "sha256": digest}]


def test_a_failure_leaves_nothing_and_keeps_the_old_corpus(tmp_path: Path) -> None:
    old = prepare_corpus([write(tmp_path / "a.txt", "a b\n")], tmp_path / "corpus", rules=TOKENIZED)
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    for folder in ("corpus", "other"):
        with pytest.raises(InputError, match=r"bad.txt, line 2"):
            prepare_corpus([tmp_path / "bad.txt"], tmp_path / folder, rules=TOKENIZED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "bad.txt", "corpus"]
    assert Corpus.open(tmp_path / "corpus").fingerprint == old.fingerprint


@pytest.mark.long
def test_a_full_disk_is_an_output_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a b c d e f g\n" * 1000)
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000));"
        "from elmokit.text.preparation import prepare_corpus; prepare_corpus([sys.argv[1]], sys.argv[2])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, path, tmp_path / "corpus"], capture_output=True, text=True, check=False
    )
    assert "OutputError" in result.stderr
    assert "corpus: cannot be written: File too large;" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\n")
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine" / "thesis.txt", "dear")
    for folder in (tmp_path / "mine", path):
        with pytest.raises(OutputError, match=r"is a (folder with files in it; name a new folder|file; name a folder)"):
            prepare_corpus([path], folder)
    with pytest.raises(OutputError, match="cannot be written"):
        prepare_corpus([path], path / "below")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "dear"


@pytest.mark.parametrize("word", ["<S>", "</S>"])
def test_boundaries_in_the_text_are_told_with_their_line(tmp_path: Path, word: str) -> None:
    path = write(tmp_path / "a.txt", f"a b\nc {word} d\n")
    with pytest.raises(InputError, match=rf"a.txt, line 2: has the word {word}"):
        prepare_corpus([path], tmp_path / "corpus", rules=TOKENIZED)
    assert "< S >" in sentences(prepare_corpus([write(tmp_path / "raw.txt", "<S>")], tmp_path / "corpus"))


@pytest.mark.parametrize("text", ["", "\n \n\t\n"])
def test_a_text_without_sentences_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"no sentence in .*a\.txt"):
        prepare_corpus([write(tmp_path / "a.txt", text)], tmp_path / "corpus")


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ([], {}, "no text file is given"),
        ("a.txt", {}, r"write \['a.txt'\]"),
        (["gone.txt"], {}, r"gone\.txt: no such file"),
        (["-"], {}, "standard input cannot be prepared"),
        (["a.txt"], {"max_chars": 2}, "max_chars is 2; it must be 3 or more"),
        (["a.txt"], {"num_workers": 0}, "num_workers is 0; it must be 1 or more"),
    ],
)
def test_impossible_requests_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], options: dict, message: str
) -> None:
    write(tmp_path / "a.txt", "a\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        prepare_corpus(files, "corpus", **options)
    assert not (tmp_path / "corpus").exists()


def test_a_pipe_is_refused_because_text_is_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: is not a plain file, and text is read twice"):
        prepare_corpus([tmp_path / "pipe"], tmp_path / "corpus")


def test_a_short_text_is_prepared_without_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a short text\n")
    monkeypatch.setattr(chunks, "ProcessPoolExecutor", None)
    assert prepare_corpus([tmp_path / "a.txt"], tmp_path / "out", num_workers=8).num_tokens == 3


def test_what_is_not_accepted_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text\n")
    first = prepare_corpus([tmp_path / "a.txt"], tmp_path / "out")

    def accept(fingerprint: str) -> None:
        if fingerprint != first.fingerprint:
            raise InputError("another text")

    prepare_corpus([tmp_path / "a.txt"], tmp_path / "out", accept=accept)
    (tmp_path / "a.txt").write_text("another one\n")
    with pytest.raises(InputError, match="another text"):
        prepare_corpus([tmp_path / "a.txt"], tmp_path / "out", accept=accept)
    assert Corpus.open(tmp_path / "out").fingerprint == first.fingerprint
