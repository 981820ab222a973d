"""Scores per test instance as JSON values: two layers are compared on the same instances.

A correct answer is a bit; bits are compressed, about 2 KB for 25,000 words.
"""

import base64
import zlib

import numpy as np
from numpy.typing import NDArray


def pack_bits(is_right_N: NDArray[np.bool_]) -> str:
    """Return one bit per instance as text."""
    return base64.b64encode(zlib.compress(np.packbits(is_right_N).tobytes(), level=9)).decode("ascii")


def unpack_bits(text: str, num: int) -> NDArray[np.float64]:
    """Return the ``num`` bits of `pack_bits` as scores of 0 and 1."""
    packed = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    return np.unpackbits(packed, count=num).astype(np.float64)
