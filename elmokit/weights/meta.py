"""meta.json of the NLPL word-vector repository: language, creators, and whether the model was trained on lemmas.

No schema of the file was at hand. So keys are found at any depth, and every key that speaks of lemmas counts.
"""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, ElmokitWarning
from elmokit.weights.options import read_json_object

MAX_NESTING = 8
LEMMAS = re.compile(r"lemmati[sz](ed|ation)|lemmas", re.IGNORECASE)
LEMMAS_IN_NAME = re.compile(r"(?<![^\W_])lemmas(?![^\W_])", re.IGNORECASE)
NAMES = ("handle", "identifier", "name")
NOT_SET = ("", "false", "no", "none", "0")


def read_meta(path: Path) -> dict[str, str]:
    """Return facts for the model card; warn if the model expects lemmas, or if the file cannot be read."""
    try:
        values = read_json_object(path)
    except ConfigError as error:
        warnings.warn(f"{error}; the model is loaded without it", ElmokitWarning, stacklevel=4)
        return {}
    facts = {
        "Language": _join(_find(values, "language")),
        "Creators": _join(name for part in _find(values, "creators") for name in _find(part, "name")),
        "Corpus": _join(_find(values.get("corpus"), "description")),
    }
    if _wants_lemmas(values):
        facts["Input"] = "lemmas, not word forms"
        warnings.warn(
            f"{path.parent.name}: the model was trained on lemmas (meta.json); lemmatize the text before embedding it, "
            "or use a model trained on word forms",
            ElmokitWarning,
            stacklevel=4,
        )
    return {name: fact for name, fact in facts.items() if fact}


def _wants_lemmas(value: Any, depth: int = 0) -> bool:
    """Return True if a key such as ``lemmatized`` is set, or a name such as ``ruscorpora_lemmas_elmo`` has the word."""
    if depth > MAX_NESTING:
        return False
    if isinstance(value, list):
        return any(_wants_lemmas(part, depth + 1) for part in value)
    if not isinstance(value, dict):
        return False
    for key, part in value.items():
        if LEMMAS.search(key) and not (isinstance(part, str) and part.strip().lower() in NOT_SET) and part:
            return True
        if key in NAMES and isinstance(part, str) and LEMMAS_IN_NAME.search(part):
            return True
    return any(_wants_lemmas(part, depth + 1) for part in value.values())


def _find(value: Any, key: str, depth: int = 0) -> Iterator[Any]:
    """Yield the values of a key, at any depth."""
    if depth > MAX_NESTING:
        return
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        if name == key:
            yield part
        else:
            yield from _find(part, key, depth + 1)


def _join(values: Iterator[Any]) -> str:
    # A line break or a bar would end the row of the card's table.
    texts = dict.fromkeys(" ".join(value.replace("|", " ").split()) for value in values if isinstance(value, str))
    return ", ".join(text for text in texts if text)
