"""Limits of this machine: the GEMM rate of torch at a model's shapes, memory bandwidth, and the operations of an LSTM.

    python benchmarks/gemm.py [--save FILE]

Two threads, one per direction, multiply at the same time, as the LSTMs of both directions do. Rates are the best of a
few calls. bfloat16 is measured on CPUs with AVX512_BF16; elsewhere torch takes minutes for it. torch has no public
product of eight-bit matrices on a CPU, so there is no row for int8.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from elmokit.config import LSTMConfig
from elmokit.kernels.library import load

NUM_ROWS, NUM_CALLS = 1280, 6
NUM_DIRECTIONS = 2
SHAPES = {"en-small": LSTMConfig(cell_dim=1024, proj_dim=128), "paper": LSTMConfig()}
STEP_ROWS = 64  # of a batch, in one step of the recurrence
COPIED_VALUES = 32 * 2**20  # far more than a cache holds


def lstm_flops(config: LSTMConfig) -> int:
    """Return the operations per position: all layers of both directions."""
    gates = 2 * 2 * config.proj_dim * 4 * config.cell_dim  # from the input and from the state
    projection = 2 * config.cell_dim * config.proj_dim if config.has_projection else 0
    return NUM_DIRECTIONS * config.num_layers * (gates + projection)


def gemm_rate(config: LSTMConfig, *, num_rows: int = NUM_ROWS, dtype: torch.dtype = torch.float32) -> float:
    """Return the operations per second that two threads reach together, on the product of a layer's inputs."""
    depth, width = config.proj_dim, 4 * config.cell_dim

    def prepare() -> Callable[[], Tensor]:
        left, right = torch.randn(num_rows, depth, dtype=dtype), torch.randn(depth, width, dtype=dtype)
        out = torch.empty(num_rows, width, dtype=dtype)
        return lambda: torch.mm(left, right, out=out)

    return NUM_DIRECTIONS * 2.0 * num_rows * depth * width / best_seconds(prepare)


def bandwidth() -> float:
    """Return the bytes per second that two threads read and write together when they copy."""

    def prepare() -> Callable[[], Tensor]:
        source, target = torch.zeros(COPIED_VALUES), torch.empty(COPIED_VALUES)
        return lambda: target.copy_(source)

    return NUM_DIRECTIONS * 2.0 * 4 * COPIED_VALUES / best_seconds(prepare)


def best_seconds(prepare: Callable[[], Callable[[], Tensor]]) -> float:
    """Return the shortest time in which both threads, which start together, finish a call."""
    num_threads = torch.get_num_threads()
    threads_each = max(1, num_threads // NUM_DIRECTIONS)
    together = threading.Barrier(NUM_DIRECTIONS)

    def time_calls(_: int) -> list[float]:
        torch.set_num_threads(threads_each)
        call, seconds = prepare(), []
        for _ in range(NUM_CALLS):
            together.wait()
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return seconds

    with ThreadPoolExecutor(NUM_DIRECTIONS) as threads:
        seconds_of_each = list(threads.map(time_calls, range(NUM_DIRECTIONS)))
    torch.set_num_threads(num_threads)  # a thread's setting is also the default of new threads
    return min(max(pair) for pair in zip(*seconds_of_each, strict=True))


def main() -> None:
    from report import Report, Row, gather_facts

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    kernels = load()
    dtypes = [torch.float32, torch.bfloat16] if kernels is not None and kernels.has_bf16 else [torch.float32]
    rows = [Row("", "memory bandwidth, copying, GB/s", elmokit=f"{bandwidth() / 1e9:.1f}")]
    for name, config in SHAPES.items():
        for dtype in dtypes:
            for num_rows in (STEP_ROWS, NUM_ROWS):
                rate = gemm_rate(config, num_rows=num_rows, dtype=dtype)
                what = (
                    f"{num_rows} x {config.proj_dim} x {4 * config.cell_dim}, {str(dtype).removeprefix('torch.')}, GF/s"
                )
                rows.append(Row(name, what, elmokit=f"{rate / 1e9:.1f}"))
    report = Report("Limits: products by torch and memory", gather_facts(hidden=Path(sys.argv[0])), rows)
    report.print()
    if arguments.save:
        arguments.save.write_text(report.to_markdown(), "utf-8")


if __name__ == "__main__":
    main()
