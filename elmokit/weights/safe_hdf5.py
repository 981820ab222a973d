"""Read and write plain float32 arrays as HDF5. A file that is read may be damaged or hostile.

HDF5 can name other files (external links, external storage, virtual datasets), load code (filter plug-ins) and claim
sizes that it does not hold. All of that is rejected from the headers, before any data is read: links are never
followed, other files never opened, memory never asked for beyond a small multiple of the file's size. What is left
is the HDF5 library itself: a header forged for it can make it loop without end, though not read or run anything.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5l, h5o, h5t, h5z
from numpy.typing import NDArray

from elmokit.errors import WeightsError
from elmokit.weights.saved import Shape, all_finite

FLOAT_BYTES = 4
MAX_LISTED = 1000  # unknown names that are looked at; a hostile file can have millions
MAX_COMPRESSION = 20  # trained weights shrink by a tenth; what unpacks to far more than the file is no model

# Filters that are part of HDF5. Any other is a plug-in: a shared library that reading would load.
BUILT_IN_FILTERS = {h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32}

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Datasets:
    """Content of a file: the arrays that were asked for, and the names of all others."""

    arrays: dict[str, Array]
    unknown: list[str]


def read_datasets(path: str | Path, expected: Mapping[str, Shape], *, given_by: str = "options") -> Datasets:
    """Read the float32 datasets that ``expected`` names, of exactly these shapes and finite.

    Args:
        path: an HDF5 file.
        expected: shapes by name.
        given_by: the files that the shapes follow from, for error messages.
    """
    path = Path(path)
    if not path.is_file():  # a pipe would be waited for without end
        raise WeightsError(f"{path}: {'is not a file' if path.exists() else 'does not exist'}; expected an HDF5 file")
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            datasets = {name: _find(file, name, path) for name in expected}
            for name, dataset in datasets.items():
                _check(dataset, expected[name], f"{path}: {name}", given_by)
            _check_total(datasets, path)
            arrays = {name: _read(dataset, f"{path}: {name}") for name, dataset in datasets.items()}
            return Datasets(arrays, sorted(_unknown_names(file, expected)))
    except WeightsError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        # What h5py raises depends on where in the file the damage is.
        raise WeightsError(
            f"{path}: not an HDF5 file, or a damaged one ({error}); copy or download it again"
        ) from error


def write_datasets(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as plain contiguous float32 datasets. The same arrays give the same bytes."""
    # Through Python's file a full disk is an OSError; HDF5's own driver notices late, and then crashes.
    with Path(path).open("wb+") as stream, h5py.File(stream, "w") as file:
        for name, array in sorted(arrays.items()):
            file.create_dataset(name, data=array, dtype="<f4", track_times=False)


def _find(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    """Go down to a dataset through hard links alone."""
    place: h5py.Group | h5py.Dataset = file
    for part in name.split("/"):
        if not isinstance(place, h5py.Group) or not place.id.links.exists(part.encode()):
            raise WeightsError(f"{path}: no dataset {name}; is this file of another model than its options?")
        if place.id.links.get_info(part.encode()).type != h5l.TYPE_HARD:
            raise WeightsError(
                f"{path}: {name} is behind a link, which elmokit does not follow; use a file without links"
            )
        place = place[part]
    if not isinstance(place, h5py.Dataset):
        raise WeightsError(f"{path}: {name} is a group; expected a dataset")
    return place


def _check(dataset: h5py.Dataset, shape: Shape, where: str, given_by: str) -> None:
    """Reject a dataset that is unsafe to read or not what was expected, from its header alone."""
    plist = dataset.id.get_create_plist()
    if plist.get_layout() == h5d.VIRTUAL or plist.get_external_count():
        raise WeightsError(
            f"{where}: its data are in another file, which elmokit does not open; use a self-contained file"
        )
    kind = dataset.id.get_type()
    if not (kind.equal(h5t.IEEE_F32LE) or kind.equal(h5t.IEEE_F32BE)):
        raise WeightsError(f"{where}: has type {dataset.dtype}; expected float32, convert it first")
    if dataset.shape != shape:
        raise WeightsError(f"{where}: has shape {dataset.shape}; the {given_by} say {shape}, are they of one model?")
    filters = [plist.get_filter(index) for index in range(plist.get_nfilters())]
    if foreign := [code for code, *_ in filters if code not in BUILT_IN_FILTERS]:
        raise WeightsError(
            f"{where}: is stored with HDF5 filter {foreign[0]}, a plug-in; "
            "elmokit loads none, rewrite the file without it (h5repack -f NONE)"
        )
    if not _is_whole(dataset):
        raise WeightsError(
            f"{where}: claims shape {shape}, but the file does not hold so much; copy or download it again"
        )


def _is_whole(dataset: h5py.Dataset) -> bool:
    """Return True if every value is in the file; HDF5 fills in missing ones."""
    if dataset.chunks is None:
        return bool(dataset.id.get_storage_size() >= _num_bytes(dataset))
    # A chunk may be larger than its dataset, and is unpacked whole.
    fits = all(chunk <= size for chunk, size in zip(dataset.chunks, dataset.shape, strict=True))
    num_chunks = prod(ceil(size / chunk) for chunk, size in zip(dataset.chunks, dataset.shape, strict=True))
    return fits and bool(dataset.id.get_num_chunks() >= num_chunks)


def _check_total(datasets: Mapping[str, h5py.Dataset], path: Path) -> None:
    """Reject a file that claims more data than its size can hold, for example by storing one place under many names."""
    size = os.path.getsize(path)
    plain = sum(_num_bytes(dataset) for dataset in datasets.values() if not _is_compressed(dataset))
    total = sum(_num_bytes(dataset) for dataset in datasets.values())
    if plain > size or total > MAX_COMPRESSION * size:
        raise WeightsError(
            f"{path}: claims {total:,} bytes of weights in a file of {size:,} bytes; it is damaged or hostile"
        )


def _num_bytes(dataset: h5py.Dataset) -> int:
    return int(FLOAT_BYTES * prod(dataset.shape))


def _is_compressed(dataset: h5py.Dataset) -> bool:
    return dataset.compression is not None


def _read(dataset: h5py.Dataset, where: str) -> Array:
    array = np.empty(dataset.shape, dtype=np.float32)
    dataset.read_direct(array)
    if not all_finite(array):
        raise WeightsError(f"{where}: holds NaN or infinite values; the model was damaged in training or in copying")
    return array


def _unknown_names(file: h5py.File, expected: Mapping[str, Shape]) -> Iterator[str]:
    """Names of what was not asked for: datasets, links (not followed), types. Groups may contain each other."""
    parents = {name.rsplit("/", 1)[0] for name in expected}
    seen = {h5o.get_info(file.id).addr}
    waiting: list[tuple[str, h5py.h5g.GroupID]] = [("", file.id)]
    looked_at = 0
    while waiting:
        prefix, group = waiting.pop()
        for part in group:
            name = prefix + part.decode("utf-8", "replace")
            looked_at += name not in expected and name not in parents
            if looked_at > MAX_LISTED:
                return
            if group.links.get_info(part).type != h5l.TYPE_HARD:
                yield name
                continue
            info = h5o.get_info(group, part)
            if info.type != h5o.TYPE_GROUP:
                if name not in expected:
                    yield name
            elif info.addr not in seen:
                seen.add(info.addr)
                waiting.append((f"{name}/", h5o.open(group, part)))
