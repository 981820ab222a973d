"""Arrays of .npz files that are damaged or forged."""

from pathlib import Path

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.weights.npz import read_arrays


@pytest.mark.parametrize("dtype", ["<U3", ">U3"])
def test_strings_of_either_byte_order_are_read(tmp_path: Path, dtype: str) -> None:
    words = np.array(["a", "bé", "\U0010ffff"], dtype=dtype)
    np.savez(tmp_path / "a.npz", words=words, empty=np.array([], dtype=dtype), nothing=np.array(""))
    assert read_arrays(tmp_path / "a.npz")["words"].tolist() == words.tolist()


@pytest.mark.parametrize("number", [0x110000, 0xFFFFFFFF])
def test_a_number_that_is_no_character_is_rejected(tmp_path: Path, number: int) -> None:
    words = np.array([ord("a"), number], dtype="<u4").view("<U2")
    np.savez(tmp_path / "a.npz", words=words)
    with pytest.raises(InputError, match=rf"a\.npz: words\.npy has the number {number} in a string"):
        read_arrays(tmp_path / "a.npz")
