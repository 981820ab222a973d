"""Worker processes that share the batches of one embedder.

The calling process tokenizes and makes the batches, the same as without workers, so the vectors are the same bits.

Shapes: T tokens, D width.
"""

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import torch

from elmokit.embed.picking import Layer, Vectors, pick_layers
from elmokit.embed.pickling import PickledEmbedder
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder

_embedder: "Embedder | None" = None  # of a worker process


class EmbedderPool:
    """Processes that each hold a copy of an embedder; a context manager that ends them.

    Args:
        embedder: the embedder to copy. A model from disk is loaded by every process from there.
        target_devices: the torch device of each process, such as ``["cpu", "cpu"]``; by default one process per GPU
            if the embedder is on a GPU, else one per core.
    """

    def __init__(self, embedder: "Embedder", target_devices: Sequence[str] | None = None) -> None:
        if embedder.state == "carry":
            raise InputError("state 'carry' needs sentences in order; use 'reset' or 'warm' with several processes")
        devices = _default_devices(embedder.device) if target_devices is None else list(target_devices)
        if not devices or isinstance(target_devices, str):
            raise InputError(f"target_devices {target_devices!r}; expected a list such as ['cpu', 'cpu']")
        self.num_processes = len(devices)
        context = multiprocessing.get_context("spawn")
        waiting = context.SimpleQueue()
        for device in devices:
            waiting.put(device)
        self._executor: Executor = ProcessPoolExecutor(
            self.num_processes,
            context,
            initializer=_start_worker,
            initargs=(embedder.pack(with_start=True), waiting),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown()

    def map_batches(self, batches: Iterable[list[Sequence[str]]], layer: Layer) -> Iterator[list[Vectors]]:
        """Yield the vectors, (T, D) per sentence, of every batch, in the order given."""
        futures = [self._executor.submit(_embed_batch, batch, layer) for batch in batches]
        return (future.result() for future in futures)


def _default_devices(device: torch.device) -> list[str]:
    if device.type == "cuda":
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(device)] * (os.cpu_count() or 1)


def _start_worker(pickled: PickledEmbedder, waiting: Any) -> None:
    global _embedder
    from elmokit.embed.embedder import Embedder

    torch.set_num_threads(1)  # the processes share the cores
    _embedder = Embedder.unpack(pickled, device=waiting.get())


def _embed_batch(batch: list[Sequence[str]], layer: Layer) -> list[Vectors]:
    assert _embedder is not None
    return [pick_layers(layers_LTD, layer) for layers_LTD in _embedder.run_batch(batch)]
