"""Compare training steps with those of another commit, alternating in one run.

    python benchmarks/training_steps.py TEXT [--commit 956d343] [--size NAME] [--pairs 15] [--save FILE]
    python benchmarks/training_steps.py TEXT --profile [--precision bf16] [--size NAME] [--pairs 15] [--save FILE]

Both versions take complete steps (gradients, clip, update) on the same batches of real text, from the same weights,
each in a process of its own. Only one of them works at a time, and which one goes first alternates. Making batches is
not timed. With --profile, the parts of the present version's steps are timed instead, beside the GEMM rate.

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
from gemm import gemm_rate, lstm_flops
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
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of the present version")
    parser.add_argument("--profile", action="store_true", help="show where the time of a step goes")
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    names = arguments.size or ["all"]
    names = [name for name in SIZES if name != "tiny"] if "all" in names else names
    rows = []
    with tempfile.TemporaryDirectory() as work:
        if not arguments.profile:
            other = arguments.installed or install(arguments.commit, Path(work, "other"))
        for name in names:
            folder = Path(work, name)
            folder.mkdir()
            write_inputs(SIZES[name], arguments.text, folder, precision=arguments.precision)
            if arguments.profile:
                rows += profile(name, SIZES[name], folder, arguments.pairs)
            else:
                rows.append(compare(name, SIZES[name], folder, other, arguments.pairs, arguments.precision))
    facts = gather_facts(hidden=arguments.text)
    if arguments.profile:
        facts["ratio"] = "share of the float32 GEMM rate of two threads; ms are medians over steps"
    else:
        facts["reference"] = f"commit {arguments.commit}"
        facts["ratio"] = "median over pairs of steps, with quartiles; ms are medians"
    title = "Training steps, part by part" if arguments.profile else "Training steps, against another commit"
    report = Report(title, facts, rows)
    report.print()
    if arguments.save:
        arguments.save.write_text(report.to_markdown(), "utf-8")


def write_inputs(size: Size, text: Path, folder: Path, *, precision: str) -> None:
    """Write the settings and batches that both versions read. The other version trains in float32."""
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
    settings["training"] = size.training
    (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
    (folder / "present.json").write_text(json.dumps(settings | {"precision": precision}), "utf-8")


def tensors_of(batch: DirectionBatch) -> dict[str, Tensor]:
    assert batch.candidates is not None
    assert batch.rows is not None
    tensors = {"words_N": batch.words_N, "targets_N": batch.targets_N, "rows": batch.rows}
    return tensors | vars(batch.candidates)


def compare(name: str, size: Size, folder: Path, other: Path, pairs: int, precision: str) -> Row:
    batches = str(folder / "batches.pt")
    before = Worker("step_worker.py", str(folder / "settings.json"), batches, package=other)
    now = Worker("step_worker.py", str(folder / "present.json"), batches)
    ratios, took = [], {before: [], now: []}
    for number in range(pairs + 2):
        answers = {}
        for worker in (before, now) if number % 2 else (now, before):
            answers[worker] = worker.ask(str(number))
        losses = answers[before]["loss"], answers[now]["loss"]
        most = 1e-5 if number < 3 and precision == "fp32" else 1e-2  # rounding grows while the rate is high
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
        f"ms per step: {lstm.cell_dim}/{lstm.proj_dim}, {size.num_rows} x {UNROLL}, {precision}",
        f"{median(took[before]):.0f}",
        f"{median(took[now]):.0f}",
        f"{middle:.2f}x ({low:.2f}x-{high:.2f}x)",
    )
    return row if size.goal is None else judge(row, f">= {size.goal}x", met=middle >= size.goal)


def profile(name: str, size: Size, folder: Path, steps: int) -> list[Row]:
    """Return one row per part of a step."""
    worker = Worker("step_profile.py", str(folder / "present.json"), str(folder / "batches.pt"))
    answers = [worker.ask(str(number)) for number in range(steps + 2)][2:]  # the first ones fill caches
    worker.close()
    rate = gemm_rate(size.model.lstm)
    operations = step_flops(size, median(answer["num_words"] for answer in answers))
    whole = median(answer["whole"] for answer in answers)
    rows = []
    for part in [*answers[0]["parts"], "whole step"]:
        seconds = whole if part == "whole step" else median(answer["parts"][part] for answer in answers)
        share = f"{operations[part] / seconds / rate:.0%}" if part in operations else ""
        rows.append(Row(name, part, f"{rate / 1e9:.0f} GFLOP/s", f"{1000 * seconds:.0f} ms", share))
    return rows


def step_flops(size: Size, num_words: float) -> dict[str, float]:
    """Return the operations of the products in each part, of both directions together."""
    encoder, lstm, positions = size.model.char_encoder, size.model.lstm, size.num_rows * UNROLL
    highways = 2 * 2 * encoder.num_filters**2 * encoder.num_highway
    encoded = num_words * (highways + 2 * encoder.num_filters * lstm.proj_dim)
    found = {
        "character encoder, forward": encoded,
        "character encoder, backward": 2 * encoded,
        "LSTMs, forward": positions * lstm_flops(lstm),
        "LSTMs, backward": 2 * positions * lstm_flops(lstm),
        "softmax": 2 * 3 * 2 * positions * lstm.proj_dim * size.num_negatives,
    }
    return found | {"whole step": sum(found.values())}


if __name__ == "__main__":
    main()
