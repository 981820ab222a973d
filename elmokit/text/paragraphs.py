"""Running text whose lines were broken at a width: from lines to paragraphs."""

import re
from collections.abc import Iterable, Iterator

from elmokit.text.lines import Line
from elmokit.text.sentences import may_end_sentence

LONG = 1 << 12  # characters, after which a line that may end a sentence ends a paragraph too
TOO_LONG = 1 << 16  # characters, after which any line does

_HYPHEN_AT_LINE_END = re.compile(r"(?<=\w)-[ \t]*\n[ \t]*(?=\w)")


def join_wrapped(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield paragraphs, which end at a blank line or with their file.

    A paragraph has the number of its first line, and keeps its line ends. Text without blank lines comes in parts, so
    that memory has a bound.
    """
    part: list[Line] = []
    num_chars = 0
    for line in lines:
        is_blank = not line.text.strip()
        if part and (is_blank or line.number == 1 or _is_enough(part[-1], num_chars)):
            yield _joined(part)
            part, num_chars = [], 0
        if not is_blank:
            part.append(line)
            num_chars += len(line.text) + 1
    if part:
        yield _joined(part)


def unwrap(paragraph: str) -> str:
    """Put words together that a line end divides after their hyphen; all other line ends stay."""
    return _HYPHEN_AT_LINE_END.sub("-", paragraph)


def _is_enough(last: Line, num_chars: int) -> bool:
    return num_chars >= TOO_LONG or (num_chars >= LONG and may_end_sentence(last.text))


def _joined(part: list[Line]) -> Line:
    return part[0]._replace(text="\n".join(line.text for line in part))
