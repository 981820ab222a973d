"""Measure in a new process; print one number per line.

    python benchmarks/one_process.py load SOURCE...                        seconds to load a model
    python benchmarks/one_process.py first SOURCE...                       seconds to load it and embed one word
    python benchmarks/one_process.py memory SOURCE TOKENS PRECISION N...   peak bytes after embedding N tokens, N rising

SOURCE is a folder of elmokit, or options and weights. TOKENS has one sentence per line, tokens separated by spaces.
"""

import resource
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from elmokit.embed.embedder import Embedder


def main() -> None:
    match sys.argv[1:]:
        case ["load", *paths]:
            print(load_seconds([Path(path) for path in paths]))
        case ["first", *paths]:
            print(load_seconds([Path(path) for path in paths], embed=[["word"]]))
        case ["memory", folder, tokens, precision, *lengths]:
            embedder = Embedder.from_pretrained(folder, precision=precision)  # type: ignore[arg-type]
            waiting, done = [int(length) for length in lengths], 0
            for layers in embedder.iter_layers(stream(Path(tokens), waiting[-1])):
                done += layers.shape[1]
                if done >= waiting[0]:
                    print(peak_bytes(), flush=True)
                    del waiting[0]
        case _:
            raise SystemExit(__doc__)


def load_seconds(paths: list[Path], *, embed: Sequence[list[str]] = ()) -> float:
    start = time.perf_counter()
    embedder = Embedder.from_pretrained(paths[0] if len(paths) == 1 else (paths[0], paths[1]))
    embedder.embed_layers(embed)
    return time.perf_counter() - start


def stream(path: Path, num_tokens: int) -> Iterator[list[str]]:
    """Yield sentences until they have ``num_tokens``.

    A text that is too short is repeated with its words respelled, so an unbounded cache would show.
    """
    left = num_tokens
    for turn in count():
        with path.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                tokens = [f"{token}{turn}" if turn else token for token in line.split()][:left]
                left -= len(tokens)
                yield tokens
                if not left:
                    return


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the parent had when it started this process
        line = next(line for line in status.read_text("utf-8").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
