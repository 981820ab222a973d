"""Arrays of .npz files. A file may be damaged, or claim and unpack to far more than its size."""

import math
import sys
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.limits import UNPACKED, max_unpacked_bytes
from elmokit.readers.archive import ZIP_DAMAGE

SUFFIX = ".npy"


def read_arrays(path: str | Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of these names, or all, in the order of the file. Nothing is unpickled.

    Sizes are compared before memory is allocated.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(SUFFIX): member for member in archive.infolist()}
            if missing := sorted(set(names or ()) - members.keys()):
                raise InputError(f"it has no array {missing[0]!r}, only {', '.join(list(members)[:4]) or 'nothing'}")
            chosen = {name: member for name, member in members.items() if names is None or name in names}
            most = max_unpacked_bytes(path)
            return {name: _read_array(archive, member, most) for name, member in chosen.items()}
    except InputError as error:
        raise InputError(f"{path}: {error}; expected an .npz file of plain arrays, get it again") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path, seen from {Path.cwd()}") from None
    except ZIP_DAMAGE as error:
        raise InputError(
            f"{path}: not an .npz file of plain arrays, or a damaged one ({error}); get it again"
        ) from error


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> NDArray[Any]:
    """Read an array whose header agrees with the size of its member, of at most ``most`` bytes."""
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise InputError(f"{member.filename} has the array format {version}, not 1.0 or 2.0")
        shape, _, dtype = npy.read_array_header_1_0(stream) if version == (1, 0) else npy.read_array_header_2_0(stream)
        if dtype.hasobject:
            raise InputError(f"{member.filename} holds pickled objects, which are never loaded")
        expected = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or expected > member.file_size:
            raise InputError(f"{member.filename} claims shape {shape} of {dtype} in {member.file_size:,} bytes")
        if expected > most:
            raise InputError(
                f"{member.filename} unpacks to {expected:,} bytes, far more than the file's size (if you trust it, "
                f"raise the limit by the environment variable {UNPACKED})"
            )
    with archive.open(member) as stream:
        array = np.asarray(npy.read_array(stream, allow_pickle=False))
    _check_characters(array, member.filename)
    return array


def _check_characters(array: NDArray[Any], name: str) -> None:
    """Reject strings with a number that is no character: NumPy stores them unchecked."""
    if array.dtype.kind != "U" or not array.size or not array.dtype.itemsize:
        return
    numbers = np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    if (largest := int(numbers.max())) > sys.maxunicode:
        raise InputError(f"{name} has the number {largest} in a string, and the last character is {sys.maxunicode}")
