"""A saved biLM from one format to the other."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from elmokit.atomic import atomic_folder
from elmokit.errors import InputError, OutputError
from elmokit.weights.bilm_tf import write_bilm_tf
from elmokit.weights.bundled import find_model
from elmokit.weights.card import read_description
from elmokit.weights.folder import save_folder
from elmokit.weights.source import Source, build_bilm, has_softmax, load_saved, load_softmax
from elmokit.weights.start_state import to_tensors, warm_state

PUBLISHED_FOLDERS = ({"options.json", "weights.hdf5"}, {"options.json", "weights.hdf5", "vocab.txt"})
Target = Literal["elmokit", "hdf5"]


def convert_model(source: Source, folder: str | Path, *, to: Target, half: bool, overwrite: bool) -> None:
    """Save ``source`` as a folder of ours, or as a folder with the published ``options.json`` and ``weights.hdf5``.

    An output layer is kept in our folder; the published format has no place for it. Our folder also has the state in
    which ``warm`` sentences begin, which is computed here if it was not there. ``half`` stores float16, which the
    published format does not have.
    """
    if to == "hdf5" and half:
        raise InputError("the published format holds float32 only; leave out --dtype float16")
    folder = Path(folder)
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise OutputError(
            f"{folder}: is a folder with files in it; name a new one, or replace the model in it (--force)"
        )
    saved = load_saved(source)
    if to == "hdf5":
        with atomic_folder(folder, replace=_holds_only_published(folder)) as new:
            write_bilm_tf(saved, new / "options.json", new / "weights.hdf5")
        return
    if saved.start_state is None:
        saved = replace(saved, start_state=to_tensors(warm_state(build_bilm(saved), saved.dictionary)))
    softmax = load_softmax(source) if has_softmax(source) else None
    about = None if isinstance(source, tuple) else read_description(find_model(source))
    save_folder(saved, folder, softmax=softmax, description=about, half=half)


def _holds_only_published(folder: Path) -> bool:
    return folder.is_dir() and {path.name for path in folder.iterdir()} in PUBLISHED_FOLDERS
