"""Tar archives, honest and hostile: every forged header is an InputError, in bounded time and memory."""

import io
import lzma
import random
import struct
import tarfile
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers import archive as archive_module
from elmokit.readers.archive import read_archive

SIZE, TYPE, CHECKSUM = slice(124, 136), slice(156, 157), slice(148, 156)


def read_all(path: Path) -> dict[str, list[str]]:
    return {name: [line.text for line in lines] for name, lines in read_archive(path, suffix="txt")}


def pack(*members: tuple[str, bytes], records: dict[str, str] | None = None) -> bytearray:
    """Return an archive; ``records`` are pax records of the last member."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if name == members[-1][0]:
                info.pax_headers = records or {}
            archive.addfile(info, io.BytesIO(content))
    return bytearray(buffer.getvalue())


def forge(packed: bytearray, header: int, field: slice, value: bytes) -> bytearray:
    """Change one field of the header that begins at byte ``header``, and make its checksum right."""
    block = packed[header : header + 512]
    block[field] = value
    block[CHECKSUM] = b" " * 8
    block[CHECKSUM] = b"%06o\0 " % sum(block)
    packed[header : header + 512] = block
    return packed


def base256(number: int) -> bytes:
    return b"\xff" * 4 + struct.pack(">q", number) if number < 0 else b"\x80" + bytes(3) + struct.pack(">q", number)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "a.tar"
    path.write_bytes(content)
    return path


def test_files_are_read_by_name(tmp_path: Path) -> None:
    packed = pack(("b.txt", b"\xef\xbb\xbfone\r\ntwo"), ("README", b"no"), ("a.txt", b"three\n"))
    for content in (packed, lzma.compress(packed)):
        assert read_all(write(tmp_path, content)) == {"a.txt": ["three"], "b.txt": ["one", "two"]}


@pytest.mark.parametrize("size", [-512, -1, -(1 << 40), (1 << 32) + 1, (1 << 63) - 1])
@pytest.mark.parametrize("header", [0, 1024])
def test_an_impossible_size_is_rejected(tmp_path: Path, header: int, size: int) -> None:
    """-512 in the second header: tarfile would read that header again and again (CVE-2025-8194)."""
    packed = forge(pack(("a.txt", b"x"), ("b.txt", b"y")), header, SIZE, base256(size))
    with pytest.raises(InputError, match=rf"'[ab]\.txt' has a size of {size} bytes; expected 0 to 4294967296"):
        read_all(write(tmp_path, packed))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [-512, 1 << 30])
def test_an_impossible_size_of_an_extended_header_is_rejected(tmp_path: Path, kind: bytes, size: int) -> None:
    packed = forge(pack(("a.txt", b"x"), ("b.txt", b"y")), 1024, TYPE, kind)
    packed = forge(packed, 1024, SIZE, base256(size))
    with pytest.raises(InputError, match=rf"has a size of {size} bytes; expected 0 to 16384"):
        read_all(write(tmp_path, packed))


def test_a_negative_size_in_a_pax_record_is_rejected(tmp_path: Path) -> None:
    packed = pack(("a.txt", b"x"), ("b.txt", b"y"), records={"size": "-2048"})
    with pytest.raises(InputError, match=r"'b\.txt' has a size of -2048 bytes"):
        read_all(write(tmp_path, packed))


def test_sparse_files_are_rejected(tmp_path: Path) -> None:
    """One of 2 kB would unpack to 20 GB of zeros."""
    packed = forge(pack(("a.txt", b"x")), 0, TYPE, tarfile.GNUTYPE_SPARSE)
    packed = forge(packed, 0, slice(483, 495), base256(20 << 30))
    with pytest.raises(InputError, match=r"'a\.txt' is a sparse file; only plain files are read"):
        read_all(write(tmp_path, packed))


@pytest.mark.parametrize(
    "records",
    [
        {"GNU.sparse.map": "0,1", "GNU.sparse.size": "21474836480"},
        {"GNU.sparse.size": "21474836480", "GNU.sparse.numblocks": "0"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "21474836480"},
    ],
)
def test_sparse_files_of_every_pax_version_are_rejected(tmp_path: Path, records: dict[str, str]) -> None:
    with pytest.raises(InputError, match="is a sparse file"):
        read_all(write(tmp_path, pack(("a.txt", b"0\n" + bytes(510)), records=records)))


def test_a_broken_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    packed = pack(("a.txt", b"x"), ("b.txt", b"y"))
    packed[1024] ^= 1
    with pytest.raises(InputError, match="not a tar archive, damaged or cut short"):
        read_all(write(tmp_path, packed))


def test_thousands_of_nested_extended_headers_are_rejected(tmp_path: Path) -> None:
    packed = forge(pack(("a.txt", b"x")), 0, TYPE, tarfile.XHDTYPE)
    with pytest.raises(InputError, match="not a tar archive, damaged or cut short"):
        read_all(write(tmp_path, packed[:1024] * 5000))


def test_lines_members_and_bytes_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, pack(("a.txt", b"12345678\n1234"), ("b.txt", b"123")))
    monkeypatch.setattr(archive_module, "MAX_LINE_BYTES", 8)
    with pytest.raises(InputError, match=r"a\.tar: a\.txt, line 1: has more than 8 bytes"):
        read_all(path)
    monkeypatch.setattr(archive_module, "MAX_TOTAL_BYTES", 15)
    with pytest.raises(InputError, match="its files have more than 15 bytes together"):
        read_all(path)
    monkeypatch.setattr(archive_module, "MAX_MEMBERS", 1)
    with pytest.raises(InputError, match="it has more than 1 members"):
        read_all(path)


def test_random_headers_give_lines_or_an_input_error(tmp_path: Path) -> None:
    """Fields of any bytes, with a right checksum; a bare OSError, ValueError or OverflowError came through once."""
    chance = random.Random(18)
    fields = [SIZE, TYPE, slice(0, 100), slice(100, 108), slice(136, 148), slice(345, 500), slice(257, 265)]
    original = pack(("a.txt", b"x\n" * 300), ("b.txt", b"y"), records={"comment": "z"})
    headers = [0, 1536, 2560, 3584]
    outcomes = set()
    for _ in range(400):
        packed = bytearray(original)
        field = chance.choice(fields)
        value = chance.randbytes(field.stop - field.start)
        if field == SIZE and chance.random() < 0.5:
            value = base256(chance.choice([-1, 1]) * chance.getrandbits(chance.randrange(1, 63)))
        path = write(tmp_path, forge(packed, chance.choice(headers), field, value))
        try:
            read_all(path)
            outcomes.add("read")
        except InputError:
            outcomes.add("rejected")
    assert outcomes == {"read", "rejected"}
