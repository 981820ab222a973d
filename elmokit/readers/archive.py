"""Text files inside a tar archive that may be hostile.

Nothing is written to disk. Sizes are checked in the header, before ``tarfile`` acts on them: a negative size sends it
into an endless loop (CVE-2025-8194), and a sparse member of a few bytes unpacks to gigabytes of zeros.
"""

import codecs
import gzip
import lzma
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Self

from elmokit.errors import InputError
from elmokit.text.lines import Line

MAX_MEMBERS = 300_000
MAX_TOTAL_BYTES = 1 << 32  # of all members together, unpacked
MAX_LINE_BYTES = 1 << 20
MAX_EXTENDED_HEADER_BYTES = 1 << 14  # long names and pax records; a path has at most 4096 bytes

_EXTENDED_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
# tarfile parses numbers and seeks to offsets of its choice: a forged header ends in any of these.
TAR_DAMAGE = (
    *(tarfile.TarError, EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error),
    *(OSError, ValueError, OverflowError, IndexError, RecursionError),
)
# The standard library parses a zip archive, numpy the headers of arrays in it. A forged file ends in one of these.
# MemoryError: a header claims a shape beyond all memory.
ZIP_DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, IndexError, OverflowError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError, SyntaxError, MemoryError),
)


def read_archive(path: str | Path, *, suffix: str) -> Iterator[tuple[str, Iterator[Line]]]:
    """Yield the name and the lines of each file whose name ends in ``suffix``, sorted by name.

    The archive is plain or compressed. Links, devices, sparse files and paths out of the archive are rejected.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file; check the path, seen from {Path.cwd()}")
    return _read_archive(path, suffix)


def _read_archive(path: str | Path, suffix: str) -> Iterator[tuple[str, Iterator[Line]]]:
    try:
        archive = tarfile.open(path, tarinfo=CheckedTarInfo)  # noqa: SIM115  (closed below)
    except (HostileMemberError, *TAR_DAMAGE) as error:
        raise _explain(path, error) from error
    with archive:
        for member in _list_files(archive, path, suffix):
            yield member.name, _read_lines(archive, member, path)


class HostileMemberError(Exception):
    """A header that no honest archive has."""


class CheckedTarInfo(tarfile.TarInfo):
    """A header whose size is checked as soon as it is parsed."""

    max_bytes = MAX_TOTAL_BYTES

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parse a header block; reject sizes and types that are unsafe to act on."""
        try:
            info = super().frombuf(buf, encoding, errors)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:  # tarfile takes a broken header for the end of the archive
            raise tarfile.ReadError(str(error)) from None
        most = MAX_EXTENDED_HEADER_BYTES if info.type in _EXTENDED_HEADERS else cls.max_bytes
        if not 0 <= info.size <= most:
            raise HostileMemberError(f"{info.name!r} has a size of {info.size} bytes; expected 0 to {most}")
        if info.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse(info.name)
        return info

    def _proc_gnusparse_00(self, *_: object) -> None:
        raise _sparse(self.name)

    _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00


def _sparse(name: str) -> HostileMemberError:
    return HostileMemberError(f"{name!r} is a sparse file")


def _list_files(archive: tarfile.TarFile, path: str | Path, suffix: str) -> list[tarfile.TarInfo]:
    members = []
    num_members = num_bytes = 0
    try:
        for member in archive:
            _check_member(member)
            num_members += 1
            num_bytes += member.size
            if num_members > MAX_MEMBERS:
                raise HostileMemberError(f"it has more than {MAX_MEMBERS} members")
            if num_bytes > MAX_TOTAL_BYTES:
                raise HostileMemberError(f"its files have more than {MAX_TOTAL_BYTES} bytes together")
            if member.isreg() and member.name.endswith(suffix):
                members.append(member)
    except (HostileMemberError, *TAR_DAMAGE) as error:
        raise _explain(path, error) from error
    if not members:
        raise InputError(
            f"{path}: no file in the archive has a name that ends in {suffix!r}; rename the files and pack them again"
        )
    return sorted(members, key=lambda member: member.name)


def _check_member(member: tarfile.TarInfo) -> None:
    name = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()) or name.is_absolute() or ".." in name.parts:
        raise HostileMemberError(f"{member.name!r} is a link, a device or a path out of the archive")
    if member.issparse():
        raise _sparse(member.name)
    if member.size < 0:  # a pax record may replace the header's size
        raise HostileMemberError(f"{member.name!r} has a size of {member.size} bytes; expected 0 or more")


def _read_lines(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str | Path) -> Iterator[Line]:
    name = f"{path}: {member.name}"
    stream = archive.extractfile(member)
    assert stream is not None, "a regular file has content"
    number = 0
    while line := _read_line(stream, path):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"{name}, line {number}: has more than {MAX_LINE_BYTES} bytes; is it text? Pack text files only"
            )
        yield _decode(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, name, number)


def _read_line(stream: IO[bytes], path: str | Path) -> bytes:
    try:
        return stream.readline(MAX_LINE_BYTES + 1)
    except TAR_DAMAGE as error:
        raise _explain(path, error) from error


def _decode(line: bytes, name: str, number: int) -> Line:
    try:
        return Line(line.decode("utf-8").removesuffix("\n").removesuffix("\r"), name, number)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}, line {number}: byte {line[error.start]:#04x} (byte {error.start + 1} of the line) is not "
            "UTF-8; re-encode the file and pack the archive again"
        ) from error


def _explain(path: str | Path, error: Exception) -> InputError:
    if isinstance(error, HostileMemberError):
        return InputError(f"{path}: {error}; only plain files are read: pack the files again")
    return InputError(f"{path}: not a tar archive, damaged or cut short ({error}); copy or download the file again")
