"""Measure how much exact character offsets add to the time of tokenizing.

python benchmarks/offsets.py TEXT...
"""

import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice

from elmokit.text.grouping import windows
from elmokit.text.lines import read_lines
from elmokit.text.tokens import tokenize, tokenize_with_offsets

LINES_PER_FILE, LINES_PER_CHUNK, NUM_ROUNDS = 500, 10, 40


def best_seconds(run: Callable[[str], object], lines: Sequence[str]) -> float:
    """Return the CPU time of the fastest of several passes over a few lines; other processes disturb the rest."""
    seconds = []
    for _ in range(NUM_ROUNDS):
        start = time.process_time()
        for line in lines:
            run(line)
        seconds.append(time.process_time() - start)
    return min(seconds)


def main() -> None:
    """Print the time per token of both functions, and their ratio."""
    lines = [line.text for path in sys.argv[1:] for line in islice(read_lines([path]), LINES_PER_FILE)]
    num_tokens = sum(len(tokenize(line)) for line in lines)
    chunks = list(windows(lines, LINES_PER_CHUNK))
    timed = [(best_seconds(tokenize, chunk), best_seconds(tokenize_with_offsets, chunk)) for chunk in chunks]
    plain, located = (sum(seconds) for seconds in zip(*timed, strict=True))
    print(f"{len(lines):,} lines, {num_tokens:,} tokens, best of {NUM_ROUNDS} for every {LINES_PER_CHUNK} lines")
    print(f"tokenize {plain / num_tokens * 1e6:.2f} µs per token, with offsets {located / num_tokens * 1e6:.2f}")
    print(f"offsets add {100 * (located / plain - 1):.1f} %")


if __name__ == "__main__":
    main()
