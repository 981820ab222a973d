r"""Lines of text files, one at a time, plain or compressed.

Only ``\n`` and ``\r\n`` end a line. Python's own text mode and ``splitlines`` know more line ends, which would
shift every line number after a stray form feed or U+2028.
"""

import codecs
import glob
import gzip
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from elmokit.errors import InputError
from elmokit.limits import LINE, UNPACKED, max_line_bytes, max_unpacked_bytes

STDIN = "-"

_PACKED = (".gz", ".xz")
_DAMAGE = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Line(NamedTuple):
    """A line without its end, and where it stands."""

    text: str
    path: str
    """As it was given; "-" is standard input."""
    number: int
    """Counted from 1."""


def read_lines(
    paths: Iterable[Path | str], *, or_latin1: bool = False, line_bytes: int | None = None
) -> Iterator[Line]:
    """Yield every line of every file in order; ``-`` is standard input, .gz and .xz are unpacked.

    All files are looked for before the first is read. No more than one line is in memory. With ``or_latin1``, a line
    that is not UTF-8 is read as Latin-1: some published files mix the two. A line may have ``line_bytes``, by default
    16 MB. Longer ones and compressed files that unpack to far more than their size are rejected
    (`elmokit.limits`).
    """
    if isinstance(paths, str | Path):
        raise InputError(f"paths is {str(paths)!r}, but must be a list of paths; write [{str(paths)!r}]")
    names = [str(path) for path in paths]
    for name in names:
        if name != STDIN:
            _check_readable(Path(name))
    # A generator of its own, so that the checks above are made at the call.
    most = max_line_bytes() if line_bytes is None else line_bytes
    return (line for name in names for line in _read_file(name, most, or_latin1=or_latin1))


def _check_readable(path: Path) -> None:
    if not path.exists():
        raise InputError(f"{path}: no such file; check the path, seen from {Path.cwd()}")
    if path.is_dir():
        raise InputError(f"{path} is a directory, but must be a text file; name the files in it, for example {path}/*")


def _read_file(name: str, line_bytes: int, *, or_latin1: bool) -> Iterator[Line]:
    if name == STDIN:
        yield from decode_lines(_split(sys.stdin.buffer, name, line_bytes), name, or_latin1=or_latin1)
        return
    try:
        with _open(Path(name)) as stream:
            if Path(name).suffix.lower() in _PACKED:
                lines = split_unpacked(stream, name, line_bytes)
            else:
                lines = _split(stream, name, line_bytes)
            yield from decode_lines(lines, name, or_latin1=or_latin1)
    except _DAMAGE as error:
        raise InputError(f"{name}: damaged or cut short ({error}); copy or download the file again") from error
    except PermissionError as error:
        raise InputError(f"{name}: no permission to read the file; check its owner and mode") from error


def _open(path: Path) -> BinaryIO:
    match path.suffix.lower():
        case ".gz":
            return cast(BinaryIO, gzip.open(path, "rb"))
        case ".xz":
            return cast(BinaryIO, lzma.open(path, "rb"))
        case _:
            return path.open("rb")


def _split(stream: BinaryIO, name: str, line_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a stream with their ends; reject one that is too long before it is in memory."""
    number = 0
    while line := stream.readline(line_bytes + 1):
        number += 1
        if len(line) > line_bytes:
            raise InputError(
                f"{name}, line {number}: has more than {line_bytes:,} bytes; is it text? Split the line, or if it is "
                f"meant, raise the limit by the environment variable {LINE}"
            )
        yield line


def split_unpacked(stream: BinaryIO, name: str, line_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a compressed file, until it has unpacked to far more than its size."""
    left = most = max_unpacked_bytes(name)
    for line in _split(stream, name, min(line_bytes, most)):
        left -= len(line)
        if left < 0:
            raise InputError(
                f"{name}: unpacks to more than {most:,} bytes, far more than its size; unpack it yourself, or if you "
                f"trust it, raise the limit by the environment variable {UNPACKED}"
            )
        yield line


def decode_lines(lines: Iterable[bytes], name: str, *, or_latin1: bool = False) -> Iterator[Line]:
    """Yield lines as text, without their ends and the byte-order mark."""
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        ending = b"\r\n" if line.endswith(b"\r\n") else b"\n"
        yield Line(_decode(line.removesuffix(ending), name, number, or_latin1=or_latin1), name, number)


def _decode(line: bytes, name: str, number: int, *, or_latin1: bool) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if or_latin1:
            return line.decode("latin-1")
        encoding = "UTF-16" if number == 1 and line.startswith(_UTF16_MARKS) else "LATIN1"
        raise InputError(
            f"{name}, line {number}: byte {line[error.start]:#04x} (byte {error.start + 1} of the line) is not UTF-8; "
            f"re-encode the file, for example: iconv -f {encoding} -t UTF-8 {name} > new.txt"
        ) from error


def find_inputs(inputs: Sequence[str | Path]) -> list[str]:
    """Return the paths that inputs name, with patterns expanded and sorted, in the order given."""
    if isinstance(inputs, str | Path):
        raise InputError(f"inputs is {str(inputs)!r}, but must be a list of paths; write [{str(inputs)!r}]")
    paths: list[str] = []
    for name in map(str, inputs):
        if name == STDIN or Path(name).exists() or not glob.has_magic(name):
            paths.append(name)
            continue
        found = sorted(glob.glob(name, recursive=True))
        if not found:
            raise InputError(f"{name}: no file has such a name; check the pattern, seen from {Path.cwd()}")
        files = [path for path in found if Path(path).is_file()]
        if not files:
            raise InputError(
                f"{name}: no file has such a name, only directories such as {found[0]}; "
                f"name the files in them, for example {name.rstrip('/')}/*"
            )
        paths += files
    if not paths:
        raise InputError("no inputs; give at least one text file")
    return paths
