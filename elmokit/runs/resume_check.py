"""Comparison of a run's settings and data with those it was started with.

A run may be resumed only if every later step stays the same as in an uninterrupted run.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError

MAX_DIFFERENCES, MAX_VALUE_CHARS = 3, 60  # in a message
ADVICE = "name another run folder, or give the recipe and the data that it was started with"
UNSET = object()


def check_unchanged(differences: Sequence[str], *, folder: Path, advice: str = ADVICE) -> None:
    """Raise ConfigError if there are any differences; ``advice`` says what to do."""
    if not differences:
        return
    shown = list(differences[:MAX_DIFFERENCES])
    if len(differences) > MAX_DIFFERENCES:
        shown.append(f"and {len(differences) - MAX_DIFFERENCES} more")
    raise ConfigError(
        f"{folder}: the run in this folder was started with different settings ({'; '.join(shown)}); {advice}"
    )


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any], *, prefix: str = "") -> Iterator[str]:
    """Yield a description of each setting that differs, with its dotted name."""
    for name in [*now, *(name for name in before if name not in now)]:
        old, new = before.get(name, UNSET), now.get(name, UNSET)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changed_settings(old, new, prefix=f"{prefix}{name}.")
        elif old != new:
            yield f"{prefix}{name} was {_shorten(old)}, now {_shorten(new)}"


def changed_data(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a description of each fingerprint of ``now`` that differs."""
    for name, fingerprint in now.items():
        if before.get(name) != fingerprint:
            yield f"different {name}"


def _shorten(value: object) -> str:
    if value is UNSET:
        return "unset"
    text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"
