"""Files that old scripts name: paths, or the addresses from which AllenNLP downloaded them.

elmokit downloads nothing from these addresses. The file of the same name is looked for in the folder given to
`install`, or else in that of the environment variable ``ELMOKIT_MODELS``.
"""

import os
from pathlib import Path

from elmokit.errors import WeightsError

_ORIGINAL = (
    "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/elmo_2x4096_512_2048cnn_2xhighway"
)
DEFAULT_OPTIONS_FILE = f"{_ORIGINAL}_options.json"
DEFAULT_WEIGHT_FILE = f"{_ORIGINAL}_weights.hdf5"
ENVIRONMENT = "ELMOKIT_MODELS"

ModelFile = str | Path | None

_folder: Path | None = None


def set_models_folder(folder: str | Path | None) -> None:
    """Look for files that are named by an address in this folder from now on; None leaves the setting."""
    global _folder
    _folder = _folder if folder is None else Path(folder)


def cached_path(url_or_filename: str | Path, cache_dir: str | Path | None = None) -> str:
    """Return the path of a file, as ``allennlp.common.file_utils.cached_path`` does, without a download."""
    return str(_find(url_or_filename, "url_or_filename", None if cache_dir is None else Path(cache_dir)))


def find_model_files(options_file: ModelFile, weight_file: ModelFile) -> tuple[Path, Path]:
    """Return the paths of both files of a model."""
    if options_file is None or weight_file is None:
        missing = "options_file" if options_file is None else "weight_file"
        raise WeightsError(
            f"{missing} is missing; pass the paths of both files of a published model: options_file='options.json', "
            "weight_file='weights.hdf5'"
        )
    return _find(options_file, "options_file", None), _find(weight_file, "weight_file", None)


def _find(value: str | Path, name: str, folder: Path | None) -> Path:
    if "://" not in str(value):
        return Path(value)
    folder = folder or _folder or (Path(os.environ[ENVIRONMENT]) if ENVIRONMENT in os.environ else None)
    file = str(value).rpartition("/")[2]
    if folder is None:
        raise WeightsError(
            f"{name} is the address {str(value)!r}; elmokit downloads nothing from it. Put {file} into a folder and "
            f"name it: install(models=FOLDER), or {ENVIRONMENT}=FOLDER in the environment"
        )
    if not (folder / file).is_file():
        raise WeightsError(
            f"{folder / file}: no such file; expected the file of {str(value)!r} there, download it first"
        )
    return folder / file
