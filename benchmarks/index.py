"""Search over an embedded text of a million tokens: seconds by the clock, and exactness against brute force.

    python benchmarks/index.py wiki.train.0.txt.xz --save benchmarks/results/index-2026-11-30.md

The text's first distinct sentences are indexed with en-small. `neighbors` asks for the ten nearest tokens of the whole
text; `senses` clusters the occurrences of a word, `sense_map` draws them. Each call is made for ten words, after one
call that is not counted. Brute force is a float64 product with the stored vectors.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import Report, Row, gather_facts, judge, spread

from elmokit import Embedder
from elmokit.analysis.index import CorpusIndex
from elmokit.analysis.index_building import build_index
from elmokit.analysis.index_files import TOKEN_IDS, map_numbers, vectors_file
from elmokit.analysis.neighbors import DIGITS
from elmokit.analysis.occurrences import Occurrence
from elmokit.text.lines import read_lines
from elmokit.text.sentences import split_sentences

GOAL = 0.2
WORDS = ("play", "light", "bank", "right", "state", "school", "field", "work", "point", "board", "line")
K = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="raw text with enough words")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="folder in which the index stays; it is built if it is not there")
    parser.add_argument("--save", type=Path, help="also write the table as Markdown")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        index, seconds = open_index(args.text, args.keep or Path(name) / "index", args.tokens, Path(name) / "text.txt")
        size = f"{len(index):,} tokens"
        rows = [Row(size, "build the index: s", "", f"{seconds:.0f}")] if seconds else []
        rows += [measure(index, size, what, call) for what, call in CALLS.items()]
        rows += [compare(index, size, layer) for layer in range(index.info.num_layers)]
    facts = gather_facts(hidden=args.text)
    facts["words"] = ", ".join(f"{word} ({index.count(word):,})" for word in WORDS[1:])
    report = Report("Index: search over an embedded text", facts, rows)
    report.print()
    if args.save:
        args.save.write_text(report.to_markdown(), "utf-8")


def open_index(source: Path, folder: Path, num_tokens: int, text: Path) -> tuple[CorpusIndex, float]:
    """Return the index, and the seconds that it took to build; 0 if it was there."""
    start = time.perf_counter()
    if not folder.exists():
        embedder = Embedder.from_pretrained()
        write_text(source, text, num_tokens, embedder)
        start = time.perf_counter()
        build_index([text], folder, embedder)
        return CorpusIndex.open(folder), time.perf_counter() - start
    return CorpusIndex.open(folder), 0.0


def write_text(source: Path, out: Path, num_tokens: int, embedder: Embedder) -> None:
    """Write the first distinct sentences of a text, so many that they have ``num_tokens`` tokens."""
    seen: set[str] = set()
    count = 0
    with out.open("w", encoding="utf-8") as file:
        for line in read_lines([source]):
            for sentence in split_sentences(line.text, language="en"):
                if sentence not in seen:
                    seen.add(sentence)
                    count += len(embedder.tokenize(sentence))
                    file.write(f"{sentence}\n")
            if count >= num_tokens:
                return
    raise SystemExit(f"{source}: has {count:,} tokens; expected {num_tokens:,} or more")


def place_of(occurrence: Occurrence) -> tuple[int, int]:
    assert occurrence.sentence is not None
    return occurrence.sentence, occurrence.position


def first_place(index: CorpusIndex, word: str) -> tuple[int, int]:
    return place_of(index.occurrences(word, most=1)[0])


CALLS: dict[str, Callable[[CorpusIndex, str], object]] = {
    "neighbors, top layer: s": lambda index, word: index.neighbors(first_place(index, word), k=K),
    "neighbors, token layer: s": lambda index, word: index.neighbors(first_place(index, word), layer=0, k=K),
    "neighbors, mean of all layers: s": lambda index, word: index.neighbors(
        first_place(index, word), layer="mean", k=K
    ),
    "neighbors among the same word: s": lambda index, word: index.neighbors(first_place(index, word), word=word, k=K),
    "senses: s": lambda index, word: index.senses(word),
    "sense_map, all layers: s": lambda index, word: index.sense_map(word),
}


def measure(index: CorpusIndex, size: str, what: str, call: Callable[[CorpusIndex, str], object]) -> Row:
    found = []
    for word in WORDS:
        start = time.perf_counter()
        call(index, word)
        found.append(time.perf_counter() - start)
    row = Row(size, what, "", spread(found[1:], "{:.3f}"))
    return judge(row, f"< {GOAL} s each", met=max(found[1:]) < GOAL)


def compare(index: CorpusIndex, size: str, layer: int) -> Row:
    """Compare neighbors of each word's first occurrence with those of brute force, by their rounded cosines."""
    info = index.info
    ids_N = map_numbers(index.folder / TOKEN_IDS, "<i4", (info.num_tokens,))
    num_rows = info.num_tokens if layer else info.num_words
    stored = map_numbers(index.folder / vectors_file(layer), "<f2", (num_rows, info.width))
    unit = stored.astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    worst = 0.0
    for word in WORDS[1:4]:
        query = index.occurrences(word, most=1)[0]
        place = next(row for row in np.flatnonzero(ids_N == index.words.index(word)) if index.occurrence(row) == query)
        cosines = np.concatenate(
            [part.astype(np.float64) @ unit[place if layer else ids_N[place]] for part in np.array_split(unit, 100)]
        )
        cosines = cosines if layer else cosines[ids_N]
        start = place - query.position
        cosines[start : start + len(query.tokens)] = -np.inf
        expected = np.sort(cosines)[::-1][:K].round(DIGITS)
        found = [one.similarity for one in index.neighbors(place_of(query), layer=layer, k=K)]
        worst = max(worst, float(np.abs(expected - found).max()))
    row = Row(size, f"cosines of the {K} nearest, layer {layer}: largest difference", "", f"{worst:.1e}")
    return judge(row, "<= 2e-6", met=worst <= 2e-6)


if __name__ == "__main__":
    main()
