"""Measure size and throughput of a model: words per second of sentences whose words are known.

    python scripts/embedding_speed.py MODEL TEXT [--sentences 2000] [--json]

TEXT has one raw sentence per line. The best of three passes counts, after one that is not timed.
"""

import argparse
import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Literal

from elmokit.embed.embedder import Embedder
from elmokit.errors import ElmokitError
from elmokit.text.lines import read_lines
from elmokit.text.tokens import tokenize
from elmokit.weights.bundled import find_model

NUM_PASSES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder or name of a model")
    parser.add_argument("text", help="one sentence per line, also .gz and .xz")
    parser.add_argument("--sentences", type=int, default=2000, help="how many of them (2000)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    try:
        sentences = [
            tokens for line in islice(read_lines([args.text]), args.sentences) if (tokens := tokenize(line.text))
        ]
        found = measure(args.model, sentences)
    except ElmokitError as error:
        sys.exit(f"embedding_speed: {error}")
    print(json.dumps(found) if args.json else "\n".join(f"{name}: {value:,.0f}" for name, value in found.items()))


def measure(model: str, sentences: list[list[str]]) -> dict[str, float]:
    """Return bytes, parameters, and words per second in fp32 and int8."""
    folder, num_words = find_model(model), sum(map(len, sentences))
    found: dict[str, float] = {"num_bytes": count_bytes(folder), "num_words": num_words}
    precisions: tuple[Literal["fp32", "int8"], ...] = ("fp32", "int8")
    for precision in precisions:
        embedder = Embedder.from_pretrained(folder, precision=precision)
        found["num_parameters"] = sum(tensor.numel() for tensor in embedder.bilm.parameters())
        found[precision] = num_words / best_seconds(embedder, sentences)
    return found


def best_seconds(embedder: Embedder, sentences: list[list[str]]) -> float:
    """Return the shortest time of a pass."""
    seconds = []
    for _ in range(NUM_PASSES + 1):
        start = time.monotonic()
        for _layers in embedder.iter_layers(sentences):
            pass
        seconds.append(time.monotonic() - start)
    return min(seconds[1:])


def count_bytes(folder: Path) -> int:
    """Return the size of a model's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
