"""Lines from files: what ends a line, what is unpacked, and what each fault says."""

import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines


def texts(*paths: Path | str) -> list[str]:
    return [line.text for line in read_lines(paths)]


def test_lines_know_their_file_and_number(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"one\n\ntwo")
    second.write_bytes("drei ü\n".encode())
    assert list(read_lines([first, str(second)])) == [
        Line("one", str(first), 1),
        Line("", str(first), 2),
        Line("two", str(first), 3),
        Line("drei ü", str(second), 1),
    ]


def test_only_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("a\x0bb\x0cc\x1cd\x85e\u2028f\rg\r\nh\r\r\n".encode())
    assert texts(path) == ["a\x0bb\x0cc\x1cd\x85e\u2028f\rg", "h\r"]


def test_a_byte_order_mark_is_dropped_at_the_start_only(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert texts(path) == ["one", "\ufefftwo"]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".GZ", gzip.compress)])
def test_compressed_files_are_unpacked(tmp_path: Path, suffix: str, pack) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(b"one\ntwo\n"))
    assert texts(path) == ["one", "two"]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_damaged_archive_is_an_input_error(tmp_path: Path, suffix: str, pack) -> None:
    packed = pack(bytes(range(128)) * 100)
    for name, content in [("cut", packed[:-9]), ("plain", b"no archive\n"), ("wrong", packed[:15] + b"\xff" * 40)]:
        path = tmp_path / f"{name}{suffix}"
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"{name}{suffix}: damaged or cut short"):
            texts(path)


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\r\ntwo")))
    assert list(read_lines(["-"])) == [Line("one", "-", 1), Line("two", "-", 2)]


def test_a_byte_that_is_not_utf8_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")
    lines = read_lines([path])
    assert next(lines).text == "fine"
    with pytest.raises(InputError, match=r"old.txt, line 2: byte 0xe9 \(byte 4 of the line\).*iconv -f LATIN1"):
        next(lines)


def test_utf16_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "wide.txt"
    path.write_bytes("one\n".encode("utf-16"))
    with pytest.raises(InputError, match="iconv -f UTF-16"):
        texts(path)


def test_a_missing_file_is_told_before_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n")
    with pytest.raises(InputError, match=r"gone\.txt: no such file"):
        read_lines([path, tmp_path / "gone.txt"])


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        read_lines([tmp_path])


def test_a_path_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(InputError, match=r"write \['a.txt'\]"):
        read_lines("a.txt")


def test_lines_come_before_the_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\n" * 100_000)[:-4])
    assert next(read_lines([path])).text == "one"


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_line_without_end_is_rejected_before_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, pack
) -> None:
    monkeypatch.setenv("ELMOKIT_MAX_LINE_MB", "1")
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(b"short\n" + b"x" * 1_000_001))
    with pytest.raises(InputError, match=r"line 2: has more than 1,000,000 bytes; .* ELMOKIT_MAX_LINE_MB"):
        texts(path)
    monkeypatch.setenv("ELMOKIT_MAX_LINE_MB", "2")
    assert list(map(len, texts(path))) == [5, 1_000_001]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_bomb_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, pack) -> None:
    monkeypatch.setenv("ELMOKIT_MAX_UNPACKED_MB", "1")
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(b"a line\n" * 300_000))
    with pytest.raises(InputError, match=r"unpacks to more than 1,000,000 bytes, .* ELMOKIT_MAX_UNPACKED_MB"):
        texts(path)
    monkeypatch.setenv("ELMOKIT_MAX_UNPACKED_MB", "3")
    assert len(texts(path)) == 300_000
