"""Load on a server, against the throughput of an Embedder in one process on the same texts.

python benchmarks/serving.py TEXT --save benchmarks/results/serving-2026-11-30.md

Everything runs on the loopback. The load generator (load.c) is compiled here; it shares the machine's cores with the
server, and its CPU time is reported. Server and Embedder are measured in turn, --rounds times.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import numpy as np
from report import Report, Row, gather_facts, judge, spread
from workload import SIZES, write_model

from elmokit import Embedder
from elmokit.text.lines import read_lines
from elmokit.weights.bundled import EN_SMALL

NUM_CLIENTS, NUM_WORDS, NUM_SENTENCES = 32, 20, 2048
REST = 0.02  # seconds between a call here and a request: threads of this process spin for a while after a call
ROUTE = "/v1/embeddings"


@dataclass
class Bench:
    """A running server, the same model as an Embedder, and the texts."""

    name: str
    load: Path
    port: int
    pid: int
    embedder: Embedder
    sentences: list[str]
    folder: Path
    seconds: float

    def run(
        self, *, per_request: int, clients: int = NUM_CLIENTS, seconds: float | None = None, rate: float = 0
    ) -> Any:
        """Run the load generator; return what it prints."""
        bodies = self.folder / f"{per_request}.bodies"
        if not bodies.exists():
            with bodies.open("wb") as out:
                for first in range(0, len(self.sentences), per_request):
                    part = self.sentences[first : first + per_request]
                    asked = {"input": part, "model": self.name, "encoding_format": "base64"}
                    content = json.dumps(asked).encode()
                    out.write(len(content).to_bytes(4, "little") + content)
        words = [self.port, clients, seconds or self.seconds, rate, ROUTE, bodies]
        return json.loads(subprocess.run([self.load, *map(str, words)], capture_output=True, check=True).stdout)

    def settle(self) -> None:
        """Wait until the server has answered everybody: work for clients that have left may still be running."""
        connection = HTTPConnection("127.0.0.1", self.port)
        while True:
            connection.request("POST", ROUTE, json.dumps({"input": self.sentences[0], "model": self.name}))
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200:
                connection.close()
                return
            time.sleep(0.1)

    def encode(self) -> float:
        """Return the sentences per second of the Embedder."""
        self.settle()
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < self.seconds:
            part = [self.sentences[(count + offset) % len(self.sentences)] for offset in range(128)]
            count += len(self.embedder.encode(part, normalize_embeddings=True))
        return count / (time.perf_counter() - start)

    def share_of_own_rate(self) -> float:
        """Return the sentences per second at one per request, as a share of the Embedder's right after."""
        found = self.run(per_request=1, seconds=10)
        return found["requests"] / found["answered"] / self.encode()

    def batches(self) -> tuple[float, float]:
        """Return the number of sentences and of batches that the server has run."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            found = dict(
                re.findall(r"^elmokit_batch_next_size_(sum|count) (\S+)$", answer.read().decode(), re.MULTILINE)
            )
        return float(found["sum"]), float(found["count"])

    def memory(self) -> float:
        """Return the resident megabytes of the server."""
        status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="raw text with at least 41,000 words")
    parser.add_argument("--size", choices=["en-small", "paper"], action="append", help="models; both by default")
    parser.add_argument("--rounds", type=int, default=3, help="0 measures the overload alone")
    parser.add_argument(
        "--seconds", type=float, default=6, help="per measurement; a request takes a second at paper size"
    )
    parser.add_argument("--overload-seconds", type=float, default=30)
    parser.add_argument("--save", type=Path, help="also write the table as Markdown")
    args = parser.parse_args()
    sentences = read_sentences(args.text)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = folder / "load"
        source = Path(__file__).parent / "load.c"
        subprocess.run(["cc", "-O2", "-o", load, source], check=True)
        for size in args.size or ["en-small", "paper"]:
            (folder / size).mkdir()
            model = EN_SMALL if size == "en-small" else write_model(SIZES["paper"].config, folder / size).folder
            with started(model) as (port, pid):
                embedder = Embedder.from_pretrained(model)
                bench = Bench(model.name, load, port, pid, embedder, sentences, folder / size, args.seconds)
                bench.run(per_request=32, seconds=2)  # the words are cached now
                embedder.encode(sentences[:512])
                rows += (measure(bench, size, args) if args.rounds else []) + measure_overload(bench, size, args)
    facts = gather_facts(hidden=args.text) | {"text": args.text.name, "rounds": str(args.rounds)}
    report = Report("Serving: elmokit serve against an Embedder in one process", facts, rows)
    report.print()
    if args.save:
        args.save.write_text(report.to_markdown(), "utf-8")


def read_sentences(path: Path) -> list[str]:
    words = (word for line in read_lines([path]) for word in line.text.split() if word.isalpha())
    taken = list(islice(words, NUM_SENTENCES * NUM_WORDS))
    if len(taken) < NUM_SENTENCES * NUM_WORDS:
        sys.exit(f"{path}: has {len(taken):,} words; expected {NUM_SENTENCES * NUM_WORDS:,} or more")
    sentences = [" ".join(taken[first : first + NUM_WORDS]) for first in range(0, len(taken), NUM_WORDS)]
    random.Random(0).shuffle(sentences)
    return sentences


@contextmanager
def started(model: Path) -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "elmokit", "serve", "--model", str(model), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            line = server.stderr.readline()
            yield int(re.search(r":(\d+)$", line.strip())[1]), server.pid
        finally:
            server.terminate()
            server.wait()


def measure(bench: Bench, size: str, args: argparse.Namespace) -> list[Row]:
    rows, best_single = [], 0.0
    for per_request, goal in ((32, 0.8), (1, 0.8 if size == "paper" else 0.4)):
        own, served, cpu, sizes = [], [], [], []
        for _ in range(args.rounds):
            bench.settle()
            before = bench.batches()
            found = bench.run(per_request=per_request)
            num_sentences, num_batches = np.subtract(bench.batches(), before)
            if set(found["statuses"]) != {"200"}:
                sys.exit(f"expected answers 200 only, and some of them: {found}")
            served.append(found["requests"] * per_request / found["answered"])
            cpu.append(found["cpu"] / found["seconds"])
            sizes.append(num_sentences / num_batches)
            own.append(bench.encode())
        ratios = [ours / theirs for ours, theirs in zip(served, own, strict=True)]
        best_single = median(served) if per_request == 1 else best_single
        what = f"{NUM_CLIENTS} clients, {per_request} per request: sentences/s"
        what += f" ({median(cpu):.0%} of a core for the load; {median(sizes):.0f} sentences per batch)"
        row = Row(size, what, spread(own, "{:.0f}"), spread(served, "{:.0f}"), spread(ratios, "{:.0%}"))
        rows.append(judge(row, f">= {goal:.0%}", met=median(ratios) >= goal))
    return [*rows, measure_half(bench, size, best_single), measure_latency(bench, size)]


def measure_half(bench: Bench, size: str, most: float) -> Row:
    bench.settle()
    found = bench.run(per_request=1, rate=most / 2)
    ratio = found["p99"] / found["p50"]
    row = Row(
        size, f"half load, {most / 2:.0f} requests/s: p50, p99 in ms", "", f"{found['p50']:.1f}, {found['p99']:.1f}"
    )
    return judge(Row(row.size, row.what, "", row.elmokit, f"{ratio:.1f}x"), "< 5x", met=ratio < 5)


def measure_latency(bench: Bench, size: str) -> Row:
    bench.settle()
    connection = HTTPConnection("127.0.0.1", bench.port)
    own, served = [], []
    for sentence in bench.sentences[:200]:
        start = time.perf_counter()
        bench.embedder.encode([sentence], normalize_embeddings=True)
        own.append(1e3 * (time.perf_counter() - start))
        time.sleep(REST)
        content = json.dumps({"input": [sentence], "model": bench.name, "encoding_format": "base64"})
        start = time.perf_counter()
        connection.request("POST", ROUTE, content, {"Content-Type": "application/json"})
        connection.getresponse().read()
        served.append(1e3 * (time.perf_counter() - start))
        time.sleep(REST)
    more = median(served) - median(own)
    row = Row(size, "one client, one sentence: ms", f"{median(own):.2f}", f"{median(served):.2f}", f"{more:+.2f} ms")
    return judge(row, "<= 2 ms more", met=more <= 2)


def measure_overload(bench: Bench, size: str, args: argparse.Namespace) -> list[Row]:
    bench.settle()
    before_rate = bench.share_of_own_rate()
    bench.run(per_request=32, clients=640, seconds=min(args.overload_seconds, 5))
    before = bench.memory()
    found = bench.run(per_request=32, clients=640, seconds=args.overload_seconds)
    after = bench.memory()
    time.sleep(2)
    recovered = bench.share_of_own_rate() / before_rate
    kinds = ", ".join(f"{status}: {count:,}" for status, count in found["statuses"].items())
    only_expected = set(found["statuses"]) <= {"200", "429", "503"} and not found["broken"]
    what = f"640 clients for {args.overload_seconds:.0f} s"
    return [
        judge(Row(size, f"{what}: answers", "", kinds), "200, 429, 503", met=only_expected),
        judge(
            Row(
                size, f"{what}: resident MB before and after", "", f"{before:.0f}, {after:.0f}", f"{after / before:.0%}"
            ),
            "<= 105%",
            met=after <= 1.05 * before,
        ),
        judge(
            Row(
                size,
                "sentences/s, 1 per request, as a share of the Embedder's, from 2 s after the overload, against before",
                "",
                "",
                f"{recovered:.0%}",
            ),
            ">= 90%",
            met=recovered >= 0.9,
        ),
    ]


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    main()
