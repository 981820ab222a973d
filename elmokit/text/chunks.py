"""Chunks of text as numbers, encoded by worker processes in the order of the text."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import OutputError
from elmokit.text.exclusion import ExclusionIndex, LeftOutSentence
from elmokit.text.grouping import group_by_size
from elmokit.text.lines import Line
from elmokit.text.rules import TextRules

CHUNK_CHARS = 1 << 18  # of text, tokenized together
CHUNKS_AHEAD = 3  # per worker, read before they are needed


@dataclass(frozen=True)
class EncodedChunk:
    """Sentences as indices into the chunk's own list of words; small to send between processes."""

    words: list[str]
    tokens: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    left_out: list[LeftOutSentence]


def read_chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines in lists of about ``CHUNK_CHARS`` characters."""
    return group_by_size(lines, size_of=lambda line: len(line.text) + 1, enough=CHUNK_CHARS)


def _encode(texts: list[str], rules: TextRules, index: ExclusionIndex | None) -> EncodedChunk:
    ids: dict[str, int] = {}
    tokens: list[int] = []
    lengths: list[int] = []
    sentences = [sentence for text in texts for sentence in rules.sentences(text)]
    left_out: list[LeftOutSentence] = []
    if index is not None:
        sentences, left_out = index.divide(sentences)
    for sentence in sentences:
        if words := rules.tokens(sentence):
            lengths.append(len(words))
            tokens.extend([ids.setdefault(word, len(ids)) for word in words])
    return EncodedChunk(list(ids), np.array(tokens, dtype=np.uint32), np.array(lengths, dtype=np.uint32), left_out)


def encode_in_order(
    chunks: Iterable[list[Line]], rules: TextRules, index: ExclusionIndex | None, num_workers: int
) -> Iterator[tuple[list[Line], EncodedChunk]]:
    """Yield every chunk and its encoding, without the sentences that ``index`` finds."""
    chunks = iter(chunks)
    first = list(islice(chunks, 2))
    if num_workers == 1 or len(first) < 2:  # for one chunk, processes are not worth their start
        for chunk in chain(first, chunks):
            yield chunk, _encode([line.text for line in chunk], rules, index)
        return
    # Spawned, not forked: the caller may have threads (torch has), and a fork can hang on them.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(num_workers, mp_context=context, initializer=_start_worker, initargs=(index,))
    pending: deque[tuple[list[Line], Future[EncodedChunk]]] = deque()
    try:
        for chunk in chain(first, chunks):
            pending.append((chunk, pool.submit(_encode_in_worker, [line.text for line in chunk], rules)))
            if len(pending) > num_workers * CHUNKS_AHEAD:  # a bound on what is in memory
                oldest, result = pending.popleft()
                yield oldest, result.result()
        for waiting, result in pending:
            yield waiting, result.result()
    except BrokenProcessPool:
        raise OutputError(
            f"one of {num_workers} worker processes was ended, perhaps for want of memory; take fewer workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_worker_index: ExclusionIndex | None = None  # sent once per worker, not once per chunk


def _encode_in_worker(texts: list[str], rules: TextRules) -> EncodedChunk:
    return _encode(texts, rules, _worker_index)


def _start_worker(index: ExclusionIndex | None) -> None:
    """Leave Ctrl-C to the parent, and end when the parent ends, even if it is killed."""
    global _worker_index
    _worker_index = index
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
