"""Compare the speed of embedding with AllenNLP's way of running a biLM: one table of ratios.

    python benchmarks/inference.py TEXT [--size NAME] [--only PART]... [--rounds 5] [--save FILE]

Both sides get the same batches and alternate batch by batch, so drift of the machine affects both. A ratio is that of
the times in one round; the table shows the median over rounds, the minimum and the maximum. README.md in this folder
explains the rows. Memory at the paper's size alone takes half an hour.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from gemm import gemm_rate, lstm_flops
from int8_accuracy import compare_precisions
from naive import NaiveBiLM
from report import Report, Row, gather_facts, judge, spread
from torch import Tensor
from workload import (
    SIZES,
    UNSORTED_BATCH,
    Batch,
    Model,
    Sentence,
    Size,
    count_words,
    first_sentences,
    read_sentences,
    single_sentences,
    sorted_batches,
    unsorted_batches,
    write_model,
)

from elmokit.embed.embedder import Embedder
from elmokit.embed.engine import Precision
from elmokit.model.bilm import BiLM
from elmokit.model.directions import direction_executor
from elmokit.text.chars import BOS_WORD, EOS_WORD, encode_words

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
REFERENCE = "reference"
NEW_WORDS, CACHED_WORDS = "new words", "cached words"
MOST_DIFFERENCE = 1e-4  # between the vectors of both sides
NUM_THREADS = torch.get_num_threads()  # torch's own choice
ACCURACY_SENTENCES = 200

# (size, part, precision): minimum speed relative to the reference
RATIO_GOALS = {
    ("paper", "sorted", "fp32"): 2.0,
    ("paper", "sorted", "int8"): 3.3,
    ("paper", "unsorted", "fp32"): 3.8,
    ("paper", "unsorted", "int8"): 7.0,
    ("paper", "sentence", "fp32"): 1.5,
    ("paper", "sentence", "int8"): 4.0,
    ("small", "corpus", "fp32"): 8.0,
}
GEMM_GOAL, INT8_GOAL = 0.85, 1.35  # on a CPU with AVX2
COSINE_GOAL, LOWEST_COSINE_GOAL = 0.999, 0.995
LOAD_GOALS = {"hdf5": 2.0, "folder": 0.5}  # seconds
MEMORY_GOAL, GROWTH_GOAL = 1.0e9, 0.05


@dataclass(frozen=True)
class Bench:
    """Inputs of every part."""

    name: str
    size: Size
    model: Model
    reference: NaiveBiLM
    sentences: list[Sentence]
    text_path: Path
    work_dir: Path
    rounds: int

    @property
    def has_goals(self) -> bool:
        """True for the paper's model, to which the goals without a size apply."""
        return self.name == "paper"


def main() -> None:
    arguments = parse_arguments()
    names = ["paper", "small"] if arguments.size == "all" else [arguments.size]
    facts = gather_facts(hidden=arguments.text) | {"text": arguments.text.name, "rounds": str(arguments.rounds)}
    rows: list[Row] = []
    for name in names:
        with TemporaryDirectory() as folder:
            bench = prepare(name, arguments.text, Path(folder), arguments.rounds)
            facts[f"largest absolute difference, {name}"] = f"{check_reference(bench):.1e}"
            for part in arguments.only or PARTS:
                print(f"{name}: {part} ...", file=sys.stderr, flush=True)
                rows += PARTS[part](bench)
    report = Report("Inference: elmokit against AllenNLP's implementation", facts, rows)
    report.print()
    if arguments.save:
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text(report.to_markdown(), encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="raw text, also .gz and .xz")
    parser.add_argument("--size", choices=[*SIZES, "all"], default="all", help="the model; all: paper and small")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part to run; repeat for more (all)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument("--save", type=Path, help="also write the table as Markdown to this file")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}; expected 1 or more")
    return arguments


def prepare(name: str, text_path: Path, work_dir: Path, rounds: int) -> Bench:
    size = SIZES[name]
    sentences = first_sentences(text_path, size)
    model = write_model(size.config, work_dir)
    return Bench(name, size, model, NaiveBiLM(size.config, model.saved.tensors), sentences, text_path, work_dir, rounds)


def check_reference(bench: Bench) -> float:
    """Return the largest difference between both sides' vectors; exit if they do not compute the same."""
    batch = bench.sentences[:UNSORTED_BATCH]
    pairs = zip(load(bench, "fp32").embed_layers(batch), bench.reference.embed_layers(batch), strict=True)
    difference = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    if not difference <= MOST_DIFFERENCE:
        raise SystemExit(f"the reference's vectors differ from ours by {difference:.1e}; expected {MOST_DIFFERENCE}")
    return difference


def load(bench: Bench, precision: Precision) -> Embedder:
    """Return a new Embedder with an empty word cache that has made its first call."""
    embedder = Embedder.from_pretrained(bench.model.folder, precision=precision, state="reset")  # as the reference
    embedder.embed_layers([[""]])
    return embedder


def run_sorted(bench: Bench) -> Iterator[Row]:
    return compare(bench, "sorted", "batches of 64, sorted", sorted_batches(bench.sentences, bench.size.sorted_batches))


def run_unsorted(bench: Bench) -> Iterator[Row]:
    batches = unsorted_batches(bench.sentences, bench.size.unsorted_batches)
    return compare(bench, "unsorted", "batches of 32, unsorted", batches)


def run_sentence(bench: Bench) -> Iterator[Row]:
    batches = single_sentences(bench.sentences, bench.size.latency_sentences)
    return compare(bench, "sentence", "one sentence of 20 words", batches)


def compare(bench: Bench, part: str, what: str, batches: list[Batch]) -> Iterator[Row]:
    """Time all sides on the same batches, first with an empty word cache, then with all words cached."""
    seconds = take_turns(lambda: make_sides(bench), batches, bench.rounds)
    num_words = count_words(batches)

    def rate(side: str) -> str:
        if part == "sentence":
            return f"{median(seconds[side]) / len(batches) * 1e3:,.1f} ms"
        return f"{num_words / median(seconds[side]):,.0f} words/s"

    for side in seconds:
        if side == REFERENCE:
            continue
        ratios = [theirs / ours for theirs, ours in zip(seconds[REFERENCE], seconds[side], strict=True)]
        precision, _, words = side.partition(", ")
        goal = RATIO_GOALS.get((bench.name, part, precision)) if words == NEW_WORDS else None
        yield ratio_row(Row(bench.name, f"{what}; {side}", rate(REFERENCE), rate(side)), ratios, goal)


def make_sides(bench: Bench) -> dict[str, Callable[[Batch], object]]:
    """Return the sides of a round. An embedder's second turn at a batch finds all words in its cache."""
    sides: dict[str, Callable[[Batch], object]] = {REFERENCE: bench.reference.embed_layers}
    if importlib.util.find_spec("allennlp"):
        sides["AllenNLP itself"] = load_allennlp(bench.model)
    for precision in PRECISIONS:
        embedder = load(bench, precision)
        sides[f"{precision}, {NEW_WORDS}"] = embedder.embed_layers
        sides[f"{precision}, {CACHED_WORDS}"] = embedder.embed_layers
    return sides


def load_allennlp(model: Model) -> Callable[[Batch], object]:
    """Return AllenNLP itself, where it is installed, to validate the reference."""
    from allennlp.modules.elmo import Elmo, batch_to_ids

    elmo = Elmo(str(model.options_path), str(model.weights_path), num_output_representations=1, dropout=0.0).eval()

    @torch.inference_mode()
    def embed(batch: Batch) -> object:
        return elmo(batch_to_ids(batch))

    return embed


def take_turns(
    make: Callable[[], dict[str, Callable[[Batch], object]]], batches: Sequence[Batch], rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each side for all batches, one number per round; every round has new sides."""
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        sides = make()
        for side in sides:
            taken.setdefault(side, []).append(0.0)
        for batch in batches:
            for side, embed in sides.items():
                taken[side][-1] += seconds_of(embed, batch)
    return taken


def seconds_of(call: Callable[..., object], *arguments: object) -> float:
    torch.set_num_threads(NUM_THREADS)
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def ratio_row(row: Row, ratios: list[float], goal: float | None) -> Row:
    row = replace(row, ratio=spread(ratios, "{:.2f}x"))
    return row if goal is None else judge(row, f">= {goal}x", met=median(ratios) >= goal)


def run_corpus(bench: Bench) -> Iterator[Row]:
    """Time a whole text in elmokit's own batches, and the reference on the first batches in the text's order."""
    corpus = bench.sentences[: bench.size.corpus_sentences]
    sample = unsorted_batches(corpus, bench.size.unsorted_batches)
    rates: dict[str, list[float]] = {side: [] for side in (REFERENCE, *PRECISIONS)}
    for _ in range(bench.rounds):
        spent = sum(seconds_of(bench.reference.embed_layers, batch) for batch in sample)
        rates[REFERENCE].append(count_words(sample) / spent)
        for precision in PRECISIONS:
            spent = seconds_of(consume, load(bench, precision), corpus)
            rates[precision].append(count_words([corpus]) / spent)
    for precision in PRECISIONS:
        ratios = [ours / theirs for theirs, ours in zip(rates[REFERENCE], rates[precision], strict=True)]
        theirs, ours = (f"{median(rates[side]):,.0f} words/s" for side in (REFERENCE, precision))
        what = f"a corpus of {count_words([corpus]):,} words, own batches; {precision}, {NEW_WORDS}"
        yield ratio_row(Row(bench.name, what, theirs, ours), ratios, RATIO_GOALS.get((bench.name, "corpus", precision)))


def consume(embedder: Embedder, sentences: list[Sentence]) -> None:
    for _ in embedder.iter_layers(sentences):
        pass


def run_lstm(bench: Bench) -> Iterator[Row]:
    """Time the LSTMs alone in both precisions, relative to the GEMM rate in the same round."""
    embedders, executor = {precision: load(bench, precision) for precision in PRECISIONS}, direction_executor()
    chosen = sorted_batches(bench.sentences, bench.size.sorted_batches)
    batches = [token_vectors(embedders["fp32"], batch) for batch in chosen]
    flops = lstm_flops(bench.size.config.lstm) * sum(len(tokens_NP) for tokens_NP, _ in batches)

    @torch.inference_mode()
    def run(bilm: BiLM, tokens_NP: Tensor, lengths: list[int]) -> None:
        bilm.run(tokens_NP, lengths, bilm.zero_state(len(lengths)), executor=executor)

    reached: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    best = []
    for _ in range(bench.rounds):
        best.append(gemm_rate(bench.size.config.lstm))
        for precision, embedder in embedders.items():
            reached[precision].append(flops / sum(seconds_of(run, embedder.bilm, *batch) for batch in batches))
    fractions = [ours / gemm for ours, gemm in zip(reached["fp32"], best, strict=True)]
    what = "LSTMs alone, batches of 64, sorted"
    sides = [f"{median(side) / 1e9:.1f} GF/s" for side in (best, reached["fp32"], reached["int8"])]
    row = Row(bench.name, f"{what}; fp32 (reference: GEMM)", *sides[:2], spread(fractions, "{:.0%}"))
    yield judge(row, f">= {GEMM_GOAL:.0%}", met=median(fractions) >= GEMM_GOAL) if bench.has_goals else row
    gains = [right / left for left, right in zip(reached["fp32"], reached["int8"], strict=True)]
    row = Row(bench.name, f"{what}; int8 (reference: fp32)", *sides[1:], spread(gains, "{:.2f}x"))
    yield judge(row, f">= {INT8_GOAL}x", met=median(gains) >= INT8_GOAL) if bench.has_goals else row


def token_vectors(embedder: Embedder, batch: Batch) -> tuple[Tensor, list[int]]:
    """Return the token layer of a batch with boundaries, (N, P), and the lengths of its sentences."""
    bounded = [[BOS_WORD, *sentence, EOS_WORD] for sentence in batch]
    words = [word for sentence in bounded for word in sentence]
    encoded = encode_words(words, max_chars=embedder.bilm.config.char_encoder.max_chars)
    with torch.inference_mode():
        return embedder.bilm.encode_tokens(torch.from_numpy(encoded.char_ids_WC)), [len(s) for s in bounded]


def run_accuracy(bench: Bench) -> Iterator[Row]:
    """Compare int8 with fp32 vectors."""
    sentences = bench.sentences[:ACCURACY_SENTENCES]
    for layer, found in enumerate(compare_precisions(bench.model.folder, sentences)):
        what = f"int8 against fp32, layer {layer}: mean cosine (lowest)"
        row = Row(bench.name, what, elmokit=f"{found.mean:.5f} ({found.lowest:.5f})")
        met = found.mean >= COSINE_GOAL and found.lowest >= LOWEST_COSINE_GOAL
        yield judge(row, f">= {COSINE_GOAL} ({LOWEST_COSINE_GOAL})", met=met) if bench.has_goals else row


def run_load(bench: Bench) -> Iterator[Row]:
    """Time loading in a new process, without imports, with files in the page cache."""
    model = bench.model
    for name, paths in {"hdf5": [model.options_path, model.weights_path], "folder": [model.folder]}.items():
        measure("load", *paths)  # fills the page cache
        seconds = [measure("load", *paths) for _ in range(bench.rounds)]
        row = Row(bench.name, f"load, {name}", elmokit=spread(seconds, "{:.2f} s"))
        goal = LOAD_GOALS[name]
        yield judge(row, f"<= {goal} s", met=median(seconds) <= goal) if bench.has_goals else row
        # Weights are packed for the kernels when they are first used.
        to_first = [measure("first", *paths) for _ in range(bench.rounds)]
        yield Row(bench.name, f"load and embed one word, {name}", elmokit=spread(to_first, "{:.2f} s"))


def run_memory(bench: Bench) -> Iterator[Row]:
    """Measure the peak memory of a process that embeds and discards the results, by input length."""
    tokens_path = bench.work_dir / "tokens.txt"
    write_tokens(bench, tokens_path)
    for precision in PRECISIONS:
        lengths = bench.size.memory_tokens
        found = measure_many("memory", bench.model.folder, tokens_path, precision, *lengths)
        peaks = dict(zip(lengths, found, strict=True))
        for num_tokens, peak in peaks.items():
            what = f"peak memory, {num_tokens:,} tokens; {precision}"
            row = Row(bench.name, what, elmokit=f"{peak / 1e6:,.0f} MB")
            goal = f"<= {MEMORY_GOAL / 1e6:,.0f} MB"
            yield judge(row, goal, met=peak <= MEMORY_GOAL) if bench.has_goals else row
        if len(peaks) > 1:
            fewest, most = min(peaks), max(peaks)
            growth = peaks[most] / peaks[fewest] - 1
            what = f"growth, {fewest:,} to {most:,} tokens; {precision}"
            row = Row(bench.name, what, elmokit=f"{growth:+.1%}")
            yield judge(row, f"< {GROWTH_GOAL:.0%}", met=growth < GROWTH_GOAL) if bench.name != "tiny" else row


def write_tokens(bench: Bench, path: Path) -> None:
    """Write as much of the text as needed, tokenized: tokenizing is not measured."""
    left = max(bench.size.memory_tokens)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for sentence in read_sentences(bench.text_path):
            file.write(" ".join(sentence) + "\n")
            left -= len(sentence)
            if left <= 0:
                break


def measure(*arguments: object) -> float:
    """Return the number that `one_process.py` prints."""
    [number] = measure_many(*arguments)
    return number


def measure_many(*arguments: object) -> list[float]:
    """Return the numbers that `one_process.py` prints."""
    script = Path(__file__).with_name("one_process.py")
    command = [sys.executable, str(script), *map(str, arguments)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [float(line) for line in printed.splitlines()]


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "sorted": run_sorted,
    "unsorted": run_unsorted,
    "sentence": run_sentence,
    "corpus": run_corpus,
    "lstm": run_lstm,
    "accuracy": run_accuracy,
    "load": run_load,
    "memory": run_memory,
}

if __name__ == "__main__":
    main()
