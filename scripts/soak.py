"""Embed, score, predict and index in turn in one process, and log its memory. `make soak` runs this.

    python scripts/soak.py [--minutes 30] [--save PAGE.md] FILE...

Memory (resident, anonymous) must stay within 5 % of its value after the first minute. The first lines of the text are
read in turn. With as many as are read in a minute, all caches of words are as full then as they will be.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from elmokit.analysis.index import CorpusIndex
from elmokit.analysis.index_building import build_index
from elmokit.embed.embedder import Embedder
from elmokit.embed.files import embed_files
from elmokit.score.scoring import Scorer
from elmokit.tasks.saved import load_task
from elmokit.text.lines import read_lines
from elmokit.weights.bundled import EN_SMALL

LINES_PER_ROUND = 20
TOLERANCE = 0.05
MAX_ROUND = 20  # seconds that count: the process may have been stopped


def resident_bytes() -> int:
    """Return the memory of this process that belongs to it alone."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon:")).split()[1])


def rounds(files: list[Path], num_lines: int) -> Iterator[list[str]]:
    """Yield the first lines of the files in turn, without end."""
    lines = cycle(list(islice((line.text[:400] for line in read_lines(files) if line.text.strip()), num_lines)))
    while True:
        yield list(islice(lines, LINES_PER_ROUND))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--lines", type=int, default=160, help="lines to read in turn")
    parser.add_argument("--save", type=Path, help="write the table to this file")
    options = parser.parse_args()
    embedder, scorer, ner = Embedder.from_pretrained(), Scorer.from_pretrained(EN_SMALL), load_task("ner")
    passed, before = 0.0, time.monotonic()
    rows, first, number, minute = ["| minute | rounds | MB |", "|---|---|---|"], 0, 0, 0
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for lines in rounds(options.files, options.lines):
            text = folder / "text.txt"
            text.write_text("\n".join(lines) + "\n", encoding="utf-8")
            embed_files(embedder, [text], folder / "out.safetensors", replace=True)
            scorer.score([line.split() for line in lines])
            ner.predict(lines)
            build_index([text], folder / "index", embedder, replace=True)
            CorpusIndex.open(folder / "index")
            number += 1
            now = time.monotonic()
            passed, before = passed + min(now - before, MAX_ROUND) / 60, now
            if passed >= minute + 1:
                minute = int(passed)
                found = resident_bytes()
                first = first or found
                worst = max(worst, abs(found / first - 1))
                rows.append(f"| {minute} | {number} | {found / 1e6:.1f} |")
                print(rows[-1], flush=True)
            if passed >= options.minutes:
                break
    print(f"largest distance from the first minute: {worst:.1%}")
    if options.save is not None:
        options.save.write_text("\n".join(rows) + "\n", encoding="utf-8")
    sys.exit(1 if worst > TOLERANCE else 0)


if __name__ == "__main__":
    main()
