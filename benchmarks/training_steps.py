"""Compare training steps with those of another commit, alternating in one run.

    python benchmarks/training_steps.py TEXT [--commit 956d343] [--size NAME] [--pairs 15] [--save FILE]

Both versions take complete steps (gradients, clip, update) on the same batches of real text, from the same weights,
each in a process of its own. Only one of them works at a time, and which one goes first alternates. Making batches is
not timed.

Sizes: en-small and en-medium, as in their recipes; "paper, 32 rows" and "mini, 32 rows", both with the paper's
character encoder; tiny, a smoke test; all: every one but tiny.
"""

import argparse
import json
import tempfile
import tomllib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from other_commit import Worker, install
from report import Report, Row, gather_facts, judge
from torch import Tensor
from workload import read_sentences

from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.pretrain.batches import DirectionBatch, PretrainBatches
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab

NUM_SENTENCES, NUM_WORDS, NUM_BATCHES, UNROLL = 8000, 60_000, 8, 20
RECIPES = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class Size:
    """Shape of a model, and how it is trained."""

    model: BiLMConfig
    num_rows: int
    num_negatives: int
    training: dict[str, Any]
    goal: float | None  # ratio to commit 956d343 on a CPU with AVX2


def from_recipe(name: str, goal: float | None) -> Size:
    recipe = tomllib.loads((RECIPES / f"{name}.toml").read_text("utf-8"))
    training = {key: recipe["training"][key] for key in ("optimizer", "learning_rate")}
    config = BiLMConfig.model_validate(recipe["model"])
    return Size(config, recipe["training"]["num_rows"], recipe["softmax"]["num_negatives"], training, goal)


def of_paper(cell_dim: int, proj_dim: int) -> Size:
    lstm = LSTMConfig(cell_dim=cell_dim, proj_dim=proj_dim)
    return Size(BiLMConfig(lstm=lstm), 32, 8192, {"optimizer": "adagrad", "learning_rate": 0.2}, 1.0)


SIZES = {
    "en-small": from_recipe("en-small", 1.2),
    "en-medium": from_recipe("en-medium", None),
    "mini, 32 rows": of_paper(512, 64),
    "paper, 32 rows": of_paper(4096, 512),
    "tiny": Size(
        BiLMConfig(
            char_encoder=CharEncoderConfig(filters=((1, 8), (2, 16)), num_highway=1),
            lstm=LSTMConfig(cell_dim=32, proj_dim=16),
        ),
        4,
        64,
        {},
        None,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="text, one sentence per line; also .gz, .xz")
    parser.add_argument("--commit", default="956d343")
    parser.add_argument("--installed", type=Path, help="a folder with that commit, to spare its installation")
    parser.add_argument("--size", choices=["all", *SIZES], action="append")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    names = arguments.size or ["all"]
    names = [name for name in SIZES if name != "tiny"] if "all" in names else names
    rows = []
    with tempfile.TemporaryDirectory() as work:
        other = arguments.installed or install(arguments.commit, Path(work, "other"))
        for name in names:
            folder = Path(work, name)
            folder.mkdir()
            write_inputs(SIZES[name], arguments.text, folder)
            rows.append(compare(name, SIZES[name], folder, other, arguments.pairs))
    facts = gather_facts(hidden=arguments.text)
    facts["reference"] = f"commit {arguments.commit}"
    facts["ratio"] = "median over pairs of steps, with quartiles; ms are medians"
    report = Report("Training steps, against another commit", facts, rows)
    report.print()
    if arguments.save:
        arguments.save.write_text(report.to_markdown(), "utf-8")


def write_inputs(size: Size, text: Path, folder: Path) -> None:
    """Write the settings and batches that both versions read."""
    lines = folder / "text"
    lines.write_text("".join(" ".join(s) + "\n" for s in islice(read_sentences(text), NUM_SENTENCES)), "utf-8")
    corpus = prepare_corpus([lines], folder / "corpus", rules=TextRules(tokenized=True))
    filler = (f"filler{number}" for number in range(NUM_WORDS))
    vocab = Vocab(["<S>", "</S>", "<UNK>", *[*corpus.word_counts(), *filler][: NUM_WORDS - 3]])
    batches = PretrainBatches(
        corpus,
        vocab,
        num_rows=size.num_rows,
        unroll_steps=UNROLL,
        num_negatives=size.num_negatives,
        seed=0,
        rows=range(size.num_rows),
    )
    made = []
    for _ in range(NUM_BATCHES):
        batch = next(batches)
        both = {"forward": tensors_of(batch.forward), "backward": tensors_of(batch.backward)}
        made.append({"char_ids_WC": batch.char_ids_WC, **both})
    torch.save(made, folder / "batches.pt")
    settings = {"model": size.model.model_dump(mode="json"), "num_words": NUM_WORDS, "num_rows": size.num_rows}
    (folder / "settings.json").write_text(json.dumps(settings | {"training": size.training}), "utf-8")


def tensors_of(batch: DirectionBatch) -> dict[str, Tensor]:
    assert batch.candidates is not None
    assert batch.rows is not None
    tensors = {"words_N": batch.words_N, "targets_N": batch.targets_N, "rows": batch.rows}
    return tensors | vars(batch.candidates)


def compare(name: str, size: Size, folder: Path, other: Path, pairs: int) -> Row:
    arguments = str(folder / "settings.json"), str(folder / "batches.pt")
    before, now = Worker("step_worker.py", *arguments, package=other), Worker("step_worker.py", *arguments)
    ratios, took = [], {before: [], now: []}
    for number in range(pairs + 2):
        answers = {}
        for worker in (before, now) if number % 2 else (now, before):
            answers[worker] = worker.ask(str(number))
        losses = answers[before]["loss"], answers[now]["loss"]
        most = 1e-5 if number < 3 else 1e-2  # rounding grows from step to step while the rate is high
        assert abs(losses[0] - losses[1]) < most * losses[0], f"step {number}: the losses disagree: {losses}"
        if number >= 2:  # the first steps fill caches and ask for memory
            ratios.append(answers[before]["wall"] / answers[now]["wall"])
            for worker, answer in answers.items():
                took[worker].append(1000 * answer["wall"])
    for worker in (before, now):
        worker.close()
    low, middle, high = quantiles(ratios, n=4)
    lstm = size.model.lstm
    row = Row(
        name,
        f"ms per step: {lstm.cell_dim}/{lstm.proj_dim}, {size.num_rows} x {UNROLL}",
        f"{median(took[before]):.0f}",
        f"{median(took[now]):.0f}",
        f"{middle:.2f}x ({low:.2f}x-{high:.2f}x)",
    )
    return row if size.goal is None else judge(row, f">= {size.goal}x", met=middle >= size.goal)


if __name__ == "__main__":
    main()
