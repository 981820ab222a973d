"""Models on a hub: ``org/name`` through huggingface_hub, an extra.

A name is looked for on the hub only if it has that form, no folder has that path, and the extra is installed. A model
that is in the cache is used without a connection; a download is announced by a warning.
"""

import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from elmokit.errors import ElmokitWarning, OutputError, WeightsError
from elmokit.extras import require
from elmokit.weights.bundled import find_model
from elmokit.weights.folder import save_folder
from elmokit.weights.locating import find_files, is_hub_name
from elmokit.weights.saved import SavedBiLM, Source

EXTRA = "hub"
COMMIT = re.compile(r"[0-9a-f]{40}")
# The files of every format that is read; a repository may hold much more.
PATTERNS = (
    *("config.json", "*.safetensors", "dictionary.json", "vocab*.txt*", "SHA256SUMS", "model.sig", "README.md"),
    *("meta.json", "*options*.json", "*.hdf5", "*.index", "*.data-*", "*.dic", "encoder.pkl", "token_embedder.pkl"),
)


def find_on_hub(path: Path, *, revision: str | None = None) -> Path:
    """Return the path as it is, unless nothing is there and it has the form of a hub's name: then its cached files.

    Args:
        path: A path, or ``org/name``.
        revision: Branch, tag or commit. None takes what is in the cache, or else the newest; a branch or a tag is
            compared with the hub's if there is a connection.

    Raises:
        WeightsError: The hub has no such model, cannot be reached, or sent a damaged file.
        MissingExtraError: A revision is given, but huggingface_hub is not installed.
    """
    name = path.as_posix()
    # A folder called org makes org/name a path in it.
    if path.is_absolute() or path.exists() or not is_hub_name(name) or path.parent.is_dir():
        if revision is not None:
            raise WeightsError(f"{path}: revision {revision!r} is given, but this is no model on a hub (org/name)")
        return path
    if find_spec("huggingface_hub") is None and revision is None:
        raise WeightsError(
            f"{name}: does not exist here. If it is a model on a hub, install elmokit's extra to download it: "
            f"pip install 'elmokit[{EXTRA}]'"
        )
    hub = _require_hub()
    cached = _cached(hub, name, revision)
    if cached is not None and (revision is None or COMMIT.fullmatch(revision)):
        return cached
    try:
        return _download(hub, name, revision)  # a branch or a tag may have moved
    except WeightsError as error:
        if cached is None:
            raise
        warnings.warn(f"{error}. The copy in the cache is used", ElmokitWarning, stacklevel=3)
        return cached


def _require_hub() -> ModuleType:
    hub = require("huggingface_hub", extra=EXTRA)
    for part in ("constants", "utils"):
        import_module(f"huggingface_hub.{part}")
    return hub


def _cached(hub: ModuleType, name: str, revision: str | None) -> Path | None:
    """Return the model's folder in the cache, if it is there and whole enough to be looked at."""
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=PATTERNS, local_files_only=True))
    except (OSError, ValueError):
        return None
    return folder if _is_whole(folder) else None


def _is_whole(folder: Path) -> bool:
    names = [path.name for path in folder.iterdir() if path.is_file()]
    try:
        files = find_files(names, where=str(folder))
    except WeightsError:
        return False
    # Of elmokit's own format the weights may be missing, if a download was interrupted.
    return files is not None and (files.format != "elmokit" or {"model.safetensors", "SHA256SUMS"} <= set(names))


def _download(hub: ModuleType, name: str, revision: str | None) -> Path:
    endpoint = hub.constants.ENDPOINT
    with _explained(hub, f"{name} cannot be downloaded from {endpoint}"):
        info = hub.HfApi().model_info(name, revision=revision, files_metadata=True)
        wanted = list(hub.utils.filter_repo_objects(info.siblings, allow_patterns=PATTERNS, key=lambda f: f.rfilename))
        total = sum(file.size or 0 for file in wanted)
        warnings.warn(
            f"downloading {name} at {info.sha[:12]} from {endpoint}: {len(wanted)} files, {total:,} bytes, into "
            f"{hub.constants.HF_HUB_CACHE}",
            ElmokitWarning,
            stacklevel=2,
        )
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=PATTERNS))


def fetch(source: Source, *, revision: str | None) -> Source:
    """Return a source that is on this disk: one of a hub is downloaded, unless it is in the cache."""
    if isinstance(source, tuple):
        if revision is not None:
            raise WeightsError(f"revision {revision!r} is given with two files; expected the name of a model, org/name")
        return source
    return find_on_hub(find_model(source), revision=revision)


def push_saved(saved: SavedBiLM, name: str, *, private: bool, description: str | None) -> str:
    """Upload a model to ``org/name`` on a hub as one commit; return the commit's URL."""
    if not is_hub_name(name):
        raise OutputError(f"{name!r} is no name on a hub; expected org/name")
    hub = _require_hub()
    with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
        folder = Path(temporary) / name.rpartition("/")[2]
        save_folder(saved, folder, description=description)
        with _explained(hub, f"{name} cannot be uploaded to {hub.constants.ENDPOINT}", error_type=OutputError):
            api = hub.HfApi()
            api.create_repo(name, private=private, exist_ok=True)
            message = "Upload a biLM of elmokit"
            return str(api.upload_folder(repo_id=name, folder_path=folder, commit_message=message).commit_url)


@contextmanager
def _explained(
    hub: ModuleType, what: str, *, error_type: type[WeightsError] | type[OutputError] = WeightsError
) -> Iterator[None]:
    failures: tuple[type[Exception], ...] = (OSError, ValueError, KeyError, RuntimeError, *_connection_errors(hub))
    try:
        yield
    except failures as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise error_type(f"{what} ({reason}); check the name, the connection and your access to it") from error


def _connection_errors(hub: ModuleType) -> tuple[type[Exception], ...]:
    """Return the errors of the HTTP library that huggingface_hub uses; they are not OSErrors."""
    client = hub.utils.get_session()
    library = require(type(client).__module__.partition(".")[0], extra=EXTRA)
    kinds = (getattr(library, name, None) for name in ("HTTPError", "TransportError", "RequestException"))
    return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception))
