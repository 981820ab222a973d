"""HDF5 files: plain arrays are read exactly, and hostile or damaged files are refused before their data are read."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

from elmokit.errors import WeightsError
from elmokit.weights.safe_hdf5 import Datasets, read_datasets, write_datasets

ARRAY = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
EXPECTED = {"group/deep/weights": (6, 8)}
NAME = "group/deep/weights"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.hdf5"


def read(path: Path, fill: Callable[[h5py.File], object]) -> Datasets:
    """Read a file that ``fill`` wrote."""
    with h5py.File(path, "w") as file:
        fill(file)
    return read_datasets(path, EXPECTED)


def test_what_is_written_is_read_bit_for_bit(path: Path) -> None:
    arrays = {NAME: ARRAY.copy(), "top": np.array([-0.0, 1e-45, 3.4e38], dtype=np.float32)}
    write_datasets(path, arrays)
    found = read_datasets(path, {name: array.shape for name, array in arrays.items()})
    assert {name: array.tobytes() for name, array in found.arrays.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    assert found.unknown == []


def test_the_same_arrays_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    arrays = {NAME: ARRAY, "top": ARRAY[0]}
    write_datasets(tmp_path / "a", arrays)
    write_datasets(tmp_path / "b", dict(reversed(arrays.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "storage",
    [
        {"dtype": ">f4"},
        {"chunks": (2, 3)},
        {"chunks": (6, 8), "compression": "gzip", "shuffle": True, "fletcher32": True},
    ],
)
def test_every_plain_way_of_storing_float32_is_read(path: Path, storage: dict[str, object]) -> None:
    found = read(path, lambda file: file.create_dataset(NAME, data=ARRAY, **storage))
    assert np.array_equal(found.arrays[NAME], ARRAY)
    assert found.arrays[NAME].dtype == np.float32


def test_whatever_else_is_there_is_named_and_not_followed(path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file[NAME] = ARRAY
        file["group/other"] = np.zeros(3)
        file["soft"] = h5py.SoftLink("/group")
        file["outside"] = h5py.ExternalLink("/etc/passwd", "/")
        file["group/deep/cycle"] = file["group"]  # a group that contains itself

    assert read(path, fill).unknown == ["group/other", "outside", "soft"]


def external_link(file: h5py.File) -> None:
    with h5py.File(Path(file.filename).with_name("other.hdf5"), "w") as other:
        other["weights"] = ARRAY
    file["group/deep/weights"] = h5py.ExternalLink("other.hdf5", "/weights")


def soft_link(file: h5py.File) -> None:
    file["real"] = ARRAY
    file["group/deep/weights"] = h5py.SoftLink("/real")


def linked_group(file: h5py.File) -> None:
    file["real/deep/weights"] = ARRAY
    file["group"] = h5py.SoftLink("/real")


def external_storage(file: h5py.File) -> None:
    raw = Path(file.filename).with_name("raw.bin")
    raw.write_bytes(ARRAY.tobytes())
    file.create_dataset(NAME, shape=ARRAY.shape, dtype="f4", external=[(str(raw), 0, ARRAY.nbytes)])


def virtual_dataset(file: h5py.File) -> None:
    with h5py.File(Path(file.filename).with_name("other.hdf5"), "w") as other:
        other["weights"] = ARRAY
    layout = h5py.VirtualLayout(shape=ARRAY.shape, dtype="f4")
    layout[:] = h5py.VirtualSource("other.hdf5", "weights", shape=ARRAY.shape)
    file.create_virtual_dataset(NAME, layout)


def plugin_filter(file: h5py.File) -> None:
    """A dataset that names a filter nobody has; optional, so that it can be written."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk(ARRAY.shape)
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())
    low_level(file, plist)


def low_level(file: h5py.File, plist: h5p.PropDCID) -> None:
    group = file.require_group("group/deep")
    dataset = h5d.create(group.id, b"weights", h5t.IEEE_F32LE, h5s.create_simple(ARRAY.shape), plist)
    dataset.write(h5s.ALL, h5s.ALL, ARRAY)


def odd_float(file: h5py.File) -> None:
    """Four bytes that are no IEEE float: NumPy would call them float32 all the same."""
    kind = h5t.IEEE_F32LE.copy()
    kind.set_fields(31, 23, 8, 0, 22)
    h5d.create(file.require_group("group/deep").id, b"weights", kind, h5s.create_simple(ARRAY.shape))


def missing_chunks(file: h5py.File) -> None:
    dataset = file.create_dataset(NAME, shape=ARRAY.shape, dtype="f4", chunks=(2, 8), fillvalue=1.0)
    dataset[:4] = ARRAY[:4]


def huge_chunk(file: h5py.File) -> None:
    storage = {"chunks": (600, 800), "maxshape": (None, None), "compression": "gzip"}
    file.create_dataset(NAME, data=ARRAY, **storage)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (external_link, "is behind a link"),
        (soft_link, "is behind a link"),
        (linked_group, "is behind a link"),
        (external_storage, "in another file"),
        (virtual_dataset, "in another file"),
        (plugin_filter, "filter 32015, a plug-in"),
        (odd_float, "expected float32"),
        (lambda file: file.create_dataset(NAME, data=ARRAY, dtype="f8"), "has type float64; expected float32"),
        (lambda file: file.create_dataset(NAME, data=ARRAY, dtype="f2"), "has type float16; expected float32"),
        (lambda file: file.create_dataset(NAME, data=ARRAY.astype("i4")), "has type int32; expected float32"),
        (lambda file: file.create_dataset(NAME, data="text"), "has type object; expected float32"),
        (lambda file: file.create_dataset(NAME, data=ARRAY.T), r"shape \(8, 6\); the options say \(6, 8\)"),
        (lambda file: file.create_dataset(NAME, data=h5py.Empty("f4")), r"shape None; the options say \(6, 8\)"),
        (lambda file: file.create_dataset(NAME, shape=ARRAY.shape, dtype="f4"), "the file does not hold so much"),
        (missing_chunks, "the file does not hold so much"),
        (huge_chunk, "the file does not hold so much"),
        (lambda file: file.create_dataset("group/deep", data=ARRAY), "no dataset group/deep/weights"),
        (lambda file: file.create_group("group/deep"), "no dataset group/deep/weights"),
        (lambda file: file.create_group(NAME), "is a group; expected a dataset"),
        (lambda file: file.create_dataset(NAME, data=np.where(ARRAY > 1, np.nan, ARRAY)), "NaN or infinite"),
        (lambda file: file.create_dataset(NAME, data=np.where(ARRAY > 1, -np.inf, ARRAY)), "NaN or infinite"),
    ],
)
def test_an_unsafe_or_wrong_dataset_is_refused_by_name(
    path: Path, fill: Callable[[h5py.File], object], message: str
) -> None:
    with pytest.raises(WeightsError, match=rf"weights\.hdf5: .*{message}"):
        read(path, fill)


def test_one_place_under_many_names_cannot_claim_more_than_the_file_holds(path: Path) -> None:
    names = [f"copy_{number}" for number in range(5)]
    with h5py.File(path, "w") as file:
        file["copy_0"] = np.ones(2000, dtype=np.float32)
        for name in names[1:]:
            file[name] = file["copy_0"]
    with pytest.raises(WeightsError, match="claims 40,000 bytes of weights in a file of"):
        read_datasets(path, dict.fromkeys(names, (2000,)))


def test_a_compressed_bomb_is_refused_before_it_is_unpacked(path: Path) -> None:
    shape = (4000, 1000)
    with h5py.File(path, "w") as file:
        file.create_dataset(NAME, data=np.zeros(shape, dtype=np.float32), compression="gzip", chunks=(400, 1000))
    with pytest.raises(WeightsError, match="claims 16,000,000 bytes of weights in a file of"):
        read_datasets(path, {NAME: shape})


def test_a_file_that_is_no_hdf5_is_refused(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"<html>404</html>" * 100)
    with pytest.raises(WeightsError, match="not an HDF5 file, or a damaged one"):
        read_datasets(path, EXPECTED)
    with pytest.raises(WeightsError, match="does not exist"):
        read_datasets(tmp_path / "none.hdf5", EXPECTED)
    with pytest.raises(WeightsError, match="is not a file"):
        read_datasets(tmp_path, EXPECTED)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(WeightsError, match="is not a file"):
        read_datasets(path, EXPECTED)


def test_a_truncated_file_is_refused_wherever_it_ends(path: Path) -> None:
    write_datasets(path, {NAME: ARRAY})
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(WeightsError, match=r"weights\.hdf5"):
            read_datasets(path, EXPECTED)


def test_a_damaged_header_is_an_error_of_ours_or_no_error(path: Path) -> None:
    write_datasets(path, {NAME: ARRAY})
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with suppress(WeightsError):
            assert read_datasets(path, EXPECTED).arrays[NAME].shape == ARRAY.shape
