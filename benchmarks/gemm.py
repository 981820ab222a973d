"""The GEMM rate of torch on this machine, and the operations of an LSTM."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from elmokit.config import LSTMConfig

NUM_ROWS, NUM_CALLS = 1280, 6
NUM_DIRECTIONS = 2


def lstm_flops(config: LSTMConfig) -> int:
    """Return the operations per position: all layers of both directions."""
    gates = 2 * 2 * config.proj_dim * 4 * config.cell_dim  # from the input and from the state
    projection = 2 * config.cell_dim * config.proj_dim if config.has_projection else 0
    return NUM_DIRECTIONS * config.num_layers * (gates + projection)


def gemm_rate(config: LSTMConfig) -> float:
    """Return the operations per second that two threads reach together, on the product of a layer's inputs."""
    shape = NUM_ROWS, config.proj_dim, 4 * config.cell_dim
    num_threads = torch.get_num_threads()
    threads_each = max(1, num_threads // NUM_DIRECTIONS)
    together = threading.Barrier(NUM_DIRECTIONS)

    def time_products(_: int) -> list[float]:
        torch.set_num_threads(threads_each)
        left, right, out = torch.randn(shape[:2]), torch.randn(shape[1:]), torch.empty(shape[0], shape[2])
        seconds = []
        for _ in range(NUM_CALLS):
            together.wait()
            start = time.perf_counter()
            torch.mm(left, right, out=out)
            seconds.append(time.perf_counter() - start)
        return seconds

    with ThreadPoolExecutor(NUM_DIRECTIONS) as threads:
        seconds_of_each = list(threads.map(time_products, range(NUM_DIRECTIONS)))
    torch.set_num_threads(num_threads)  # a thread's setting is also the default of new threads
    best = min(max(pair) for pair in zip(*seconds_of_each, strict=True))
    return NUM_DIRECTIONS * 2.0 * shape[0] * shape[1] * shape[2] / best
