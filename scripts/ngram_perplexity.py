"""Measure the perplexity of n-gram models with a pretrained biLM's training text and vocabulary, for comparison.

    python scripts/ngram_perplexity.py RUN FILES... [--order 5] [--json]

RUN is the folder of an `elmokit pretrain` run: its prepared text and vocabulary are used. Each of FILES, text of the
same form, is predicted in both directions, with boundaries as `elmokit perplexity` counts them;
out-of-vocabulary words are <UNK>. Smoothing is interpolated modified Kneser-Ney without pruning. 61 million words take
six minutes on one core and 11 GB of memory.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from elmokit.errors import ElmokitError
from elmokit.score.kneser_ney import KneserNey, to_stream
from elmokit.text.corpus import Corpus
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab, read_vocab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("files", type=Path, nargs="+", help="text to predict, also .gz and .xz")
    parser.add_argument("--order", type=int, default=5, help="length of the longest n-gram (5)")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per model and file")
    args = parser.parse_args()
    try:
        rows = measure(args.run, args.files, args.order)
    except ElmokitError as error:
        sys.exit(f"ngram_perplexity: {error}")
    if args.json:
        for row in rows:
            print(json.dumps(row))
    else:
        show(rows)


def measure(run: Path, files: list[Path], order: int) -> list[dict[str, object]]:
    train, vocab = Corpus.open(run / "text"), read_vocab(run / "vocab.txt")
    rows = []
    with tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
        rules = rules_of(train)
        texts = {path.name: prepare_corpus([path], Path(folder) / str(i), rules=rules) for i, path in enumerate(files)}
        for length in sorted({1, order}):
            found = {name: {"order": length, "file": name, **count(corpus, vocab)} for name, corpus in texts.items()}
            for side in ("forward", "backward"):
                start = time.monotonic()
                reverse = side == "backward"
                model = KneserNey.learn(to_stream(train, vocab, reverse=reverse), order=length, num_words=len(vocab))
                for name, corpus in texts.items():
                    logs = model.log_probabilities(to_stream(corpus, vocab, reverse=reverse))
                    found[name][side] = float(np.exp(-logs.mean()))
                print(f"order {length}, {side}: {time.monotonic() - start:.0f} s", file=sys.stderr)
            rows += found.values()
    return [row | {"mean": (row["forward"] + row["backward"]) / 2} for row in rows]


def rules_of(train: Corpus) -> TextRules:
    """Return the rules that the training text was read by."""
    settings = train.meta.settings
    return TextRules(settings.tokenized, settings.split, settings.wrapped, settings.language)


def count(corpus: Corpus, vocab: Vocab) -> dict[str, object]:
    unknown = corpus.target_ids(vocab)[corpus.tokens] == vocab.unk_id
    return {"targets": corpus.num_targets, "unknown": int(unknown.sum())}


def show(rows: list[dict[str, object]]) -> None:
    table = Table()
    for name in ("order", "file", "targets", "unknown", "forward", "backward", "mean"):
        table.add_column(name, justify="left" if name == "file" else "right")
    for row in rows:
        numbers = [f"{row[side]:,.1f}" for side in ("forward", "backward", "mean")]
        share = f"{row['unknown'] / row['targets']:.2%}"
        table.add_row(str(row["order"]), str(row["file"]), f"{row['targets']:,}", share, *numbers)
    Console().print(table)


if __name__ == "__main__":
    main()
