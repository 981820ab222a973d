"""Measure the bundled model beside busy processes, its Scorer, raw strings, and the time to a first vector.

    python benchmarks/en_small.py TEXT [--only PART]... [--rounds 5] [--save FILE]

| part | rows |
|---|---|
| busy | a corpus of cached words beside two processes that never wait, against one thread there, and against quiet |
| scorer | `Scorer` with the full softmax over the vocabulary: share of the GEMM rate |
| strings | `encode` of raw strings, against the same sentences as tokens |
| first | a first vector of a raw string in a new Python, against `import torch` in a new Python |

Sides alternate within each round. Ratios are medians over rounds (minimum-maximum).
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

from gemm import gemm_rate, lstm_flops
from other_commit import Worker
from report import Report, Row, gather_facts, judge, spread
from workload import Sentence, read_sentences

from elmokit.embed.embedder import Embedder
from elmokit.score.scoring import Scorer
from elmokit.text.lines import read_lines
from elmokit.text.sentences import split_sentences

SIZE, NUM_SENTENCES = "en-small", 400
NUM_BUSY = 2
GOAL_ONE_THREAD, GOAL_QUIET, GOAL_SCORER, GOAL_STRINGS, GOAL_FIRST = 0.9, 0.4, 0.5, 1.15, 1.3
FIRST = 'from elmokit import Embedder; Embedder.from_pretrained().encode("The bank by the river was closed.")'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="raw text; also .gz, .xz")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part to run; repeat for more (all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    rows = [row for part in arguments.only or PARTS for row in PARTS[part](arguments.text, arguments.rounds)]
    report = Report("The bundled model", gather_facts(hidden=arguments.text), rows)
    report.print()
    if arguments.save:
        arguments.save.write_text(report.to_markdown(), "utf-8")


def run_busy(text: Path, rounds: int) -> Iterator[Row]:
    sentences = list(islice(read_sentences(text), NUM_SENTENCES))
    request, num_words = json.dumps(sentences), sum(map(len, sentences))
    workers = {threads: Worker("embed_worker.py", "fp32", num_threads=threads) for threads in (0, 1)}
    for worker in workers.values():
        worker.ask(request)  # fills the cache

    def speed(threads: int) -> float:
        return num_words / workers[threads].ask(request)["wall"]

    quiet = [speed(0) for _ in range(rounds)]
    with busy_processes(NUM_BUSY):
        pairs = [(speed(1), speed(0)) for _ in range(rounds)]
    for worker in workers.values():
        worker.close()
    one, both = zip(*pairs, strict=True)
    ratios = [ours / theirs for theirs, ours in pairs]
    what = f"words/s beside {NUM_BUSY} busy processes"
    row = Row(SIZE, f"{what} (reference: one thread)", spread(one, "{:.0f}"), spread(both, "{:.0f}"))
    row = Row(row.size, row.what, row.reference, row.elmokit, spread(ratios, "{:.2f}x"))
    yield judge(row, f">= {GOAL_ONE_THREAD}x", met=median(ratios) >= GOAL_ONE_THREAD)
    shares = [ours / median(quiet) for ours in both]
    row = Row(SIZE, f"{what} (reference: quiet)", spread(quiet, "{:.0f}"), spread(both, "{:.0f}"))
    row = Row(row.size, row.what, row.reference, row.elmokit, spread(shares, "{:.2f}x"))
    yield judge(row, f">= {GOAL_QUIET}x", met=median(shares) >= GOAL_QUIET)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    processes = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def spin() -> None:
    while True:
        pass


def run_scorer(text: Path, rounds: int) -> Iterator[Row]:
    sentences = list(islice(read_sentences(text), NUM_SENTENCES))
    scorer = Scorer.from_pretrained()
    config, num_words = scorer.model.bilm.config, sum(map(len, sentences))
    # Each direction predicts every word and one boundary, from a position each; boundaries are read, too.
    softmax = 2 * (2 * config.lstm.proj_dim * len(scorer.vocab)) * (num_words + len(sentences))
    flops = softmax + lstm_flops(config.lstm) * (num_words + 2 * len(sentences))
    scorer.score(sentences[:8])
    rates, shares = [], []
    for _ in range(rounds):
        rates.append(gemm_rate(config.lstm))
        shares.append(flops / seconds(lambda: scorer.score(sentences)))
    fractions = [ours / best for ours, best in zip(shares, rates, strict=True)]
    sides = f"{median(rates) / 1e9:.0f} GF/s", f"{median(shares) / 1e9:.0f} GF/s"
    what = f"Scorer, softmax over {len(scorer.vocab):,} words, token layer included (reference: GEMM)"
    row = Row(SIZE, what, *sides, spread(fractions, "{:.0%}"))
    yield judge(row, f">= {GOAL_SCORER:.0%}", met=median(fractions) >= GOAL_SCORER)


def run_strings(text: Path, rounds: int) -> Iterator[Row]:
    lines = (line.text for line in read_lines([text]))
    strings = list(islice((one for line in lines for one in split_sentences(line)), NUM_SENTENCES))
    embedder = Embedder.from_pretrained()
    tokens: list[Sentence] = [embedder.tokenize(string) for string in strings]
    embedder.encode(tokens)  # fills the cache
    embedder.encode(strings[:8])
    pairs = [
        (seconds(lambda: embedder.encode(tokens)), seconds(lambda: embedder.encode(strings))) for _ in range(rounds)
    ]
    from_tokens, from_strings = zip(*pairs, strict=True)
    ratios = [right / left for left, right in pairs]
    what = f"encode, {len(strings)} raw strings (reference: as tokens), fp32, ms"
    sides = [spread([1000 * one for one in side], "{:.0f}") for side in (from_tokens, from_strings)]
    row = Row(SIZE, what, *sides, spread(ratios, "{:.2f}x"))
    yield judge(row, f"<= {GOAL_STRINGS}x", met=median(ratios) <= GOAL_STRINGS)


def run_first(_: Path, rounds: int) -> Iterator[Row]:
    # An installed package has its bytecode beside it; a source tree gets it in the first run, unless that is forbidden.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(program: str) -> float:
        return seconds(lambda: subprocess.run([sys.executable, "-c", program], check=True, env=environment))

    start(FIRST), start("import torch")  # fills the page cache
    pairs = [(start("import torch"), start(FIRST)) for _ in range(rounds)]
    ratios = [ours / theirs for theirs, ours in pairs]
    sides = [spread(side, "{:.2f}") for side in zip(*pairs, strict=True)]
    row = Row(SIZE, "first vector in a new Python, s (reference: import torch)", *sides, spread(ratios, "{:.2f}x"))
    yield judge(row, f"<= {GOAL_FIRST}x", met=median(ratios) <= GOAL_FIRST)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


PARTS: dict[str, Callable[[Path, int], Iterator[Row]]] = {
    "busy": run_busy,
    "scorer": run_scorer,
    "strings": run_strings,
    "first": run_first,
}

if __name__ == "__main__":
    main()
