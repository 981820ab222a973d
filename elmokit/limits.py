"""Bounds on what an untrusted file may unpack to. Each can be raised by an environment variable."""

import os
from pathlib import Path

from elmokit.errors import ConfigError

LINE = "ELMOKIT_MAX_LINE_MB"
UNPACKED = "ELMOKIT_MAX_UNPACKED_MB"
DEFAULTS = {LINE: 16, UNPACKED: 256}
MAX_RATIO = 100  # published texts and vectors shrink to a twentieth at most


def max_line_bytes() -> int:
    """Return the most bytes of one line of text."""
    return _megabytes(LINE)


def max_unpacked_bytes(packed: str | Path) -> int:
    """Return the most bytes that a compressed file may unpack to: a hundred times its size, and 256 MB at least."""
    return max(_megabytes(UNPACKED), MAX_RATIO * Path(packed).stat().st_size)


def _megabytes(name: str) -> int:
    value = os.environ.get(name) or str(DEFAULTS[name])
    if not (value.isascii() and value.isdigit() and int(value[:10]) > 0):
        raise ConfigError(f"{name} is {value[:40]!r}; expected a whole number of megabytes, such as {DEFAULTS[name]}")
    return int(value[:10]) * 10**6
