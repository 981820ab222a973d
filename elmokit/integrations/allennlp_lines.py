"""Lines of an input file for AllenNLP's ``embed_file``, and their keys in HDF5."""

from collections.abc import Iterable
from pathlib import Path

from elmokit.errors import InputError

LINES_IN_MESSAGE = 5


def read_lines(input_file: Iterable[str]) -> list[str]:
    """Return the lines of an open file; reject blank ones, as AllenNLP does."""
    if isinstance(input_file, str | Path):
        raise InputError(f"input_file is the path {str(input_file)!r}; expected an open file, such as open(path)")
    lines = [line.strip() for line in input_file]
    if blank := [str(number) for number, line in enumerate(lines, start=1) if not line]:
        more = ", …" if len(blank) > LINES_IN_MESSAGE else ""
        raise InputError(
            f"the input has {len(blank)} blank lines (line {', '.join(blank[:LINES_IN_MESSAGE])}{more}); remove them"
        )
    return lines


def sentence_keys(lines: list[str]) -> list[str]:
    """Return the lines as keys; reject repeated ones, and those that HDF5 reads as paths."""
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        problem = None
        if line in seen:
            problem = "occurs before"
        elif "/" in line or "\0" in line or line == ".":
            problem = "is not a valid key in HDF5, which reads '/' and '.' as paths"
        if problem:
            raise InputError(f"line {number}, {line[:40]!r}, {problem}; use line numbers (use_sentence_keys=False)")
        seen.add(line)
    return lines
