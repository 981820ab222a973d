"""The models that come with the package: found by their names, wherever it is installed."""

from pathlib import Path

BUNDLED = Path(__file__).parents[1] / "bundled"
EN_SMALL = BUNDLED / "en-small"
"""The English model, which is used where none is named."""


def find_model(source: str | Path) -> Path:
    """The path as it is, unless nothing is there and a bundled model has this name."""
    path = Path(source)
    return BUNDLED / path if len(path.parts) == 1 and not path.exists() and (BUNDLED / path).is_dir() else path
