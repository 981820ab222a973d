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
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import InputError

STDIN = "-"

_DAMAGE = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Line(NamedTuple):
    """A line without its end, and where it stands."""

    text: str
    path: str
    """As it was given; "-" is standard input."""
    number: int
    """Counted from 1."""


def read_lines(paths: Iterable[Path | str], *, or_latin1: bool = False) -> Iterator[Line]:
    """Yield every line of every file in order; ``-`` is standard input, .gz and .xz are unpacked.

    All files are looked for before the first is read. No more than one line is in memory. With ``or_latin1``, a line
    that is not UTF-8 is read as Latin-1: some published files mix the two.
    """
    if isinstance(paths, str | Path):
        raise InputError(f"paths is {str(paths)!r}, but must be a list of paths; write [{str(paths)!r}]")
    names = [str(path) for path in paths]
    for name in names:
        if name != STDIN:
            _check_readable(Path(name))
    # A generator of its own, so that the checks above are made at the call.
    return (line for name in names for line in _read_file(name, or_latin1=or_latin1))


def _check_readable(path: Path) -> None:
    if not path.exists():
        raise InputError(f"{path}: no such file; check the path, seen from {Path.cwd()}")
    if path.is_dir():
        raise InputError(f"{path} is a directory, but must be a text file; name the files in it, for example {path}/*")


def _read_file(name: str, *, or_latin1: bool) -> Iterator[Line]:
    if name == STDIN:
        yield from _read_stream(sys.stdin.buffer, name, or_latin1=or_latin1)
        return
    try:
        with _open(Path(name)) as stream:
            yield from _read_stream(stream, name, or_latin1=or_latin1)
    except _DAMAGE as error:
        raise InputError(f"{name}: damaged or cut short ({error}); copy or download the file again") from error
    except PermissionError as error:
        raise InputError(f"{name}: no permission to read the file; check its owner and mode") from error


def _open(path: Path) -> BufferedIOBase:
    match path.suffix.lower():
        case ".gz":
            return gzip.open(path, "rb")
        case ".xz":
            return lzma.open(path, "rb")
        case _:
            return path.open("rb")


def _read_stream(stream: Iterable[bytes], name: str, *, or_latin1: bool) -> Iterator[Line]:
    for number, line in enumerate(stream, start=1):
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
