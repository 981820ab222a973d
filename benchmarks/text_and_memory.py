"""Measure the time to prepare a text, and the peak memory of pretraining.

    python benchmarks/text_and_memory.py TEXT... [--megabytes 100] [--save FILE]

Prepares raw text with one process per core. Then trains a model of 1024/128 with 50,000 words for some steps on a tenth
of the text and on all of it, each in a new process: peak memory must not grow with the text. Steps cost the same
anywhere in a text, so a few are enough; they include a held-out evaluation and checkpoints.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from report import Report, Row, gather_facts, judge

from elmokit.text.lines import read_lines
from elmokit.text.preparation import prepare_corpus

SHARES = (0.1, 1.0)
FILTERS = "model.char_encoder.filters=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]"  # published
STEPS = ("training.steps=60", "training.checkpoint_every=20", "training.evaluate_every=40")
MOST_SECONDS = 300.0  # for 100 MB
MOST_BYTES = 3 * 10**9
# Code of the training process: run the command, then print the peak memory. All other output goes to stderr.
PEAK = """\
import resource, sys
from elmokit.cli import run
code = run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
sys.exit(code)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="+", help="raw text, one sentence per line; also .gz, .xz")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--changes", nargs="*", default=[], help="values that replace those of the recipe `small`")
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [write_text(arguments.text, folder / f"{share}.txt", share * arguments.megabytes) for share in SHARES]
        rows.append(time_preparation(texts[-1], folder / "corpus", arguments.megabytes))
        for text in texts:
            rows.append(measure_run(text, folder / f"run-{text.stem}", arguments.changes))
    report = Report("Pretraining: text preparation and memory", gather_facts(hidden=arguments.text[0]), rows)
    report.print()
    if arguments.save:
        arguments.save.write_text(report.to_markdown(), "utf-8")


def write_text(sources: Sequence[Path], path: Path, megabytes: float) -> Path:
    """Write the first ``megabytes`` of the text to a file."""
    left = int(megabytes * 10**6)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for line in read_lines([str(source) for source in sources]):
            if left <= 0:
                return path
            left -= len((line.text + "\n").encode())
            file.write(line.text + "\n")
    raise SystemExit(f"the text is {left / 10**6:.1f} MB too short; give more files, or fewer --megabytes")


def time_preparation(text: Path, folder: Path, megabytes: float) -> Row:
    start = time.perf_counter()
    corpus = prepare_corpus([text], folder, num_workers=os.cpu_count() or 1)
    seconds = time.perf_counter() - start
    name = f"{megabytes:g} MB of raw text, {corpus.num_tokens:,} tokens"
    row = Row(name, "seconds to prepare", "", f"{seconds:.0f}", f"{megabytes / seconds:.2f} MB/s")
    most = MOST_SECONDS * megabytes / 100
    return judge(row, f"<= {most:g}", met=seconds <= most)


def measure_run(text: Path, run_dir: Path, changes: Sequence[str]) -> Row:
    held_out = text.with_suffix(".heldout")
    with text.open(encoding="utf-8") as lines, held_out.open("w", encoding="utf-8") as file:
        file.writelines(line for line, _ in zip(lines, range(500), strict=False))
    asked = [f"data.train={text}", f"data.heldout={held_out}", FILTERS, *STEPS, *changes]
    command = [sys.executable, "-c", PEAK, "pretrain", "small", *asked, "--run-dir", str(run_dir)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"the run of {text.name} failed")
    peak = int(done.stdout.split()[-1])
    name = f"1024/128, {text.stat().st_size / 10**6:.0f} MB of text"
    row = Row(name, "peak memory in MB, training", "", f"{peak / 10**6:,.0f}")
    return judge(row, f"<= {MOST_BYTES / 10**6:,.0f}", met=peak <= MOST_BYTES)


if __name__ == "__main__":
    main()
