"""Models found by their names: those that come with elmokit, and those in installed packages.

A package announces its models in the entry-point group ``elmokit.models``: the name of a model, and the module whose
folder has it in ``model``. Finding one imports nothing of the package.
"""

import importlib.metadata
import importlib.util
from pathlib import Path

from elmokit.errors import WeightsError

BUNDLED = Path(__file__).parents[1] / "bundled"
EN_SMALL = BUNDLED / "en-small"
"""The English model, which is used where none is named."""
GROUP, MODEL = "elmokit.models", "model"
# Models that elmokit publishes as packages: the error for a missing one names the command.
PUBLISHED_PACKAGES = {"en-medium": "elmokit-en-medium"}


def find_model(source: str | Path) -> Path:
    """Return the path as it is, unless nothing is there and a bundled or installed model has this name.

    Raises:
        WeightsError: The model comes in a package that is not installed, or is broken.
    """
    path = Path(source)
    if len(path.parts) != 1 or path.exists():
        return path
    if (BUNDLED / path).is_dir():
        return BUNDLED / path
    folder = find_package(path.name)
    if folder is None and path.name in PUBLISHED_PACKAGES:
        raise WeightsError(
            f"{source}: is not installed; get it with: pip install {PUBLISHED_PACKAGES[path.name]} "
            f"(from a checkout of elmokit: pip install models/{source})"
        )
    return folder or path


def find_package(name: str) -> Path | None:
    """Return the folder of an installed model package, or None if no package has a model of this name.

    Raises:
        WeightsError: Two packages have a model of this name, or the package is broken.
    """
    entries = list(importlib.metadata.entry_points(group=GROUP, name=name))
    modules = sorted({entry.module for entry in entries})
    if not modules:
        return None
    if len(modules) > 1:
        raise WeightsError(f"model {name!r} is in several packages: {', '.join(modules)}; uninstall all but one")
    spec = importlib.util.find_spec(modules[0].partition(".")[0])
    locations = [] if spec is None else list(spec.submodule_search_locations or [])
    for location in locations:
        folder = Path(location, *modules[0].split(".")[1:]) / MODEL
        if folder.is_dir():
            return folder
    raise WeightsError(f"model {name!r}: package {modules[0]} has no folder {MODEL!r}; install the package again")


def list_packages() -> list[str]:
    """Return the names of the models in installed packages."""
    return sorted({entry.name for entry in importlib.metadata.entry_points(group=GROUP)})
