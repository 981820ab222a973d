"""meta.json of the NLPL word-vector repository: language, creators, and whether the model was trained on lemmas."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, ElmokitWarning
from elmokit.weights.options import read_json_object

MAX_NESTING = 8


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
    if any(value is True for key in ("lemmatized", "lemmatised") for value in _find(values, key)):
        facts["Input"] = "lemmas, not word forms"
        warnings.warn(
            f"{path.parent.name}: the model was trained on lemmas (meta.json); lemmatize the text before embedding it, "
            "or use a model trained on word forms",
            ElmokitWarning,
            stacklevel=4,
        )
    return {name: fact for name, fact in facts.items() if fact}


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
