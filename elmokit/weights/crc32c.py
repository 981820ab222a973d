"""CRC-32C (Castagnoli) of large arrays, as TensorFlow and LevelDB store it.

The bytes are cut into lanes of equal length, whose checksums advance together, two bytes per step. The lanes' results
are then joined in pairs: the checksum of A followed by B is that of A, moved on by as many zero bytes as B has, xor
that of B.
"""

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78  # bit-reversed
MASK_DELTA = 0xA282EAD8
NUM_LANES = 4096
SHORT = 1 << 15  # bytes; below this, lanes do not pay

Words = NDArray[np.uint32]


def _byte_table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


TABLE = _byte_table()
_LIST = TABLE.tolist()
# Two bytes at once: entry i is the register i after two steps.
_PAIRS = np.arange(1 << 16, dtype=np.uint32)
for _ in range(2):
    _PAIRS = (TABLE[_PAIRS & 0xFF] ^ (_PAIRS >> 8)).astype(np.uint32)


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """Return the checksum of some bytes."""
    array = np.frombuffer(data, dtype=np.uint8)
    register = 0xFFFFFFFF
    lane_bytes = len(array) // NUM_LANES // 2 * 2
    if len(array) >= SHORT and lane_bytes:
        body = lane_bytes * NUM_LANES
        register = _join(_run_lanes(array[:body].view("<u2").reshape(NUM_LANES, -1)), lane_bytes)
        array = array[body:]
    for byte in array.tolist():
        register = _LIST[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def unmask(stored: int) -> int:
    """Return the checksum that was stored masked, as LevelDB does it."""
    rotated = (stored - MASK_DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def _run_lanes(pairs: NDArray[np.uint16]) -> Words:
    """Return the register of every lane; the first starts with all ones, as a whole text does, the others with zero."""
    registers = np.zeros(len(pairs), dtype=np.uint32)
    registers[0] = 0xFFFFFFFF
    for column in range(pairs.shape[1]):
        registers = _PAIRS[(registers ^ pairs[:, column]) & 0xFFFF] ^ (registers >> 16)
    return registers


def _join(registers: Words, lane_bytes: int) -> int:
    """Join neighboring lanes until one is left."""
    while len(registers) > 1:
        registers = _move_on(registers[::2], lane_bytes) ^ registers[1::2]
        lane_bytes *= 2
    return int(registers[0])


def _move_on(registers: Words, num_zeros: int) -> Words:
    """Return the registers after so many zero bytes. A step is linear, so its powers are found by squaring."""
    columns = np.uint32(1) << np.arange(32, dtype=np.uint32)
    step = TABLE[columns & 0xFF] ^ (columns >> 8)  # what one zero byte makes of every single bit
    while num_zeros:
        if num_zeros & 1:
            registers = _apply(step, registers)
        step = _apply(step, step)
        num_zeros >>= 1
    return registers


def _apply(step: Words, registers: Words) -> Words:
    moved = np.zeros_like(registers)
    for bit in range(32):
        moved ^= np.where((registers >> np.uint32(bit)) & 1, step[bit], np.uint32(0)).astype(np.uint32)
    return moved
