"""Find a saved model, whichever of the formats it has, and make a module of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from elmokit.errors import WeightsError
from elmokit.model.bilm import BiLM
from elmokit.weights.bilm_tf import read_bilm_tf
from elmokit.weights.bundled import BUNDLED, find_model, list_packages
from elmokit.weights.folder import CONFIG, SOFTMAX, TENSORS, VOCAB, load_folder
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.sums import sha256

Source = str | Path | tuple[str | Path, str | Path]
"""Our folder, the name of a bundled model, a folder with published options and weights, or the pair of these files."""


@dataclass(frozen=True)
class PublishedPair:
    """The two files of a published model."""

    options_path: Path
    weights_path: Path


@dataclass(frozen=True)
class PublishedFile:
    """A weights file that was published, known by its hash."""

    name: str
    num_bytes: int
    sha256: str


PUBLISHED_FILES = (
    PublishedFile(
        name="elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5",
        num_bytes=54_402_456,
        sha256="747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229",
    ),
)


def load_saved(source: Source) -> SavedBiLM:
    """Load a saved biLM of any format."""
    found = _locate(source)
    if isinstance(found, PublishedPair):
        return read_bilm_tf(found.options_path, found.weights_path)
    return load_folder(found)


def build_bilm(saved: SavedBiLM) -> BiLM:
    """Make the module that holds the saved tensors themselves, not copies; it is in evaluation mode."""
    with _NoDraws(), torch.device("meta"):
        bilm = BiLM(saved.config)
    bilm.load_state_dict(saved.tensors, assign=True)
    return bilm.eval()


def file_hashes(source: Source) -> dict[str, str]:
    """Return the SHA-256 of each file of a saved model, by file name."""
    found = _locate(source)
    if isinstance(found, PublishedPair):
        paths = [found.options_path, found.weights_path]
    else:
        paths = [found / CONFIG, found / TENSORS]
        paths += [path for name in (SOFTMAX, VOCAB) if (path := found / name).is_file()]
    try:
        return {path.name: sha256(path) for path in paths}
    except OSError as error:
        raise WeightsError(f"{error.filename}: cannot be read: {error.strerror}") from error


def published_name(sha256: str, num_bytes: int) -> str | None:
    """Return the name under which a file was published; None if it is unknown."""
    for known in PUBLISHED_FILES:
        if (known.sha256, known.num_bytes) == (sha256.lower(), num_bytes):
            return known.name
    return None


class _NoDraws(TorchFunctionMode):
    """Skip the random start of weights that have no data yet: the first draw would import torch's compiler, for 1 s."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func``, unless it is one of ``torch.nn.init``; these take and return the tensor to fill."""
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _locate(source: Source) -> Path | PublishedPair:
    """Say which files make up a model: our folder, or a published pair."""
    if isinstance(source, tuple):
        pair = PublishedPair(*map(Path, source))
        for path in (pair.options_path, pair.weights_path):
            if not path.is_file():
                raise WeightsError(
                    f"{path}: no such file; expected the pair (options.json, weights.hdf5) of a published model"
                )
        return pair
    folder = find_model(source)
    if not folder.is_dir():
        if folder.parent == BUNDLED:
            raise WeightsError(f"{folder}: does not exist; it should come with elmokit, install it again")
        state = "is a file" if folder.exists() else "does not exist"
        raise WeightsError(
            f"{folder}: {state}; expected a folder saved by elmokit, a folder with options.json and one .hdf5 file, "
            f"the pair of these two files, or the name of a model ({', '.join(_known_names())}){_hub_hint(folder)}"
        )
    return folder if (folder / CONFIG).exists() else _locate_published(folder)


def _known_names() -> list[str]:
    bundled = [folder.name for folder in BUNDLED.iterdir() if folder.is_dir()] if BUNDLED.is_dir() else []
    return sorted({*bundled, *list_packages()})


def _hub_hint(path: Path) -> str:
    """Return a hint if a missing path looks like the id of a model on a hub: org/name."""
    if path.is_absolute() or len(path.parts) != 2 or path.parent.exists() or ".." in path.parts:
        return ""
    return f". elmokit downloads nothing: if {path.as_posix()} is on a hub, download its files and name their folder"


def _locate_published(folder: Path) -> PublishedPair:
    options = (
        [folder / "options.json"] if (folder / "options.json").is_file() else sorted(folder.glob("*options*.json"))
    )
    weights = sorted(folder.glob("*.hdf5"))
    if not options and not weights:
        raise WeightsError(
            f"{folder}: no model in this folder; looked for {CONFIG} (saved by elmokit), "
            "or options.json (*options*.json) with one *.hdf5 (published)"
        )
    return PublishedPair(
        _only_one(options, folder, "options.json or *options*.json"), _only_one(weights, folder, "*.hdf5")
    )


def _only_one(paths: list[Path], folder: Path, pattern: str) -> Path:
    if len(paths) != 1:
        found = ", ".join(path.name for path in paths) or "none"
        raise WeightsError(
            f"{folder}: expected one {pattern}, found {found}; give the pair of files (options, weights) instead"
        )
    return paths[0]
