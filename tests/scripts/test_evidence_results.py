"""The page that compares models, and the Latin page. The output of every command is made up."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from elmokit.analysis.blimp import DIRECTIONS

SCRIPTS = Path(__file__).parents[2] / "scripts"
PERPLEXITY = {
    "forward": 70.0, "backward": 68.0, "arithmetic_mean": 69.0, "geometric_mean": 68.9, "num_targets": 9,
    "unknown_share": 0.02, "state": "warm",
}  # fmt: skip
NGRAMS = {"forward": 90, "backward": 90, "mean": 90, "targets": 9, "unknown": 1}
NEIGHBOR = {"similarity": 0.9, "tokens": ["a", "play", "|"], "position": 1}
PAIRS = {"overall": 0.701, "known": 0.72, "phenomena": {"island_effects": 0.5}, "paradigms": {}}


def answers(words: list[str]) -> list[dict]:
    name = next(Path(word).stem for word in words if not word.startswith("-") and not word.endswith("elmokit"))
    if name in ("evaluate", "yardstick"):
        name = words[words.index(next(word for word in words if Path(word).stem == name)) + 1]
    better = "better" in " ".join(words)
    pos = [{"bilm": bilm, "layer": 1, "dev_accuracy": 0.9, "test_accuracy": 0.91} for bilm in ("given", "untrained")]
    scores = {"layers": [0.6, 0.69], "first_sense": 0.659}
    sts = {"layer": 0, "pooling": "mean", "pearson": 0.5}
    made_up = {
        "perplexity": [PERPLEXITY | {"arithmetic_mean": 60.0 if better else 69.0}],
        "ngram_perplexity": [
            NGRAMS | {"order": order, "file": f"{text}.{part}.txt.xz"}
            for text in ("la", "wiki")
            for order in (1, 5)
            for part in ("dev", "test")
        ],
        "int8_accuracy": [{"mean": 0.9999, "lowest": 0.99, "lowest_token": "x", "num_tokens": 5}] * 3,
        "blimp": [{"by_direction": dict.fromkeys(DIRECTIONS, PAIRS), "num_pairs": 9, "unknown_pairs": 0.1, "ties": 0}],
        "lexsub": [
            {
                "gap": dict.fromkeys(DIRECTIONS, 0.4),
                "known_gap": dict.fromkeys(DIRECTIONS, 0.45),
                "num_instances": 7,
                "num_known_instances": 6,
                "unknown_candidates": 0.1,
            }
        ],
        "wsd": [{"set": name, **scores} for name in ("senseval2", "all")],
        "sts": [{"file": f"sts-{part}", "spearman": value, **sts} for part, value in (("dev", 0.7), ("test", 0.6))],
        "pos": pos,
        "speed": [{"num_bytes": 9e6, "num_parameters": 22, "fp32": 2600}],
        "embedding_speed": [{"num_bytes": 26e6, "num_parameters": 11, "fp32": 12000, "int8": 14000}],
        "neighbors": [{"tokens": ["they", "play"], "position": 1, "neighbors": [NEIGHBOR], "static_neighbors": []}],
    }
    return made_up.get(name, [])


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the commands, and make up their output."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import en_small_results
    import model_labs

    shown: list[str] = []

    def call(lab, command) -> str:
        words = [str(word) for word in command]
        shown.append(lab.shown(command))
        if "-o" in words and "elmokit" in words:
            folder = Path(words[words.index("-o") + 1])
            folder.mkdir()
            (folder / "config.json").write_text("{}")
        return "".join(f"{json.dumps(answer)}\n" for answer in answers(words))

    monkeypatch.setattr(en_small_results.Lab, "call", call)
    monkeypatch.setattr(model_labs.YardstickLab, "call", call)
    monkeypatch.chdir(tmp_path)
    for name in ("good", "better"):
        Path(name).mkdir()
        (Path(name) / "SHA256SUMS").write_text(f"0  {name}\n")
    return shown


def run(name: str, monkeypatch: pytest.MonkeyPatch, *args: str) -> ModuleType:
    module = __import__(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *args])
    module.main()
    return module


def test_models_stand_side_by_side_with_the_yardstick(called, monkeypatch):
    make_run(Path("run"), num_rows=100)
    Path("run/at-40000").mkdir()
    Path("run/at-40000/SHA256SUMS").write_text("0  at\n")
    options = ["--work", "work", "-o", "page.md", "--yardstick", "env/bin/python", "--checkpoints", "run/at-40000"]
    run("evidence_results", monkeypatch, "there/data", "good", "better", *options)
    page = Path("page.md").read_text("utf-8")
    for row in (
        "| wiki.test | good, warm | 70.00 | 68.00 | 69.00 | 68.90 | 1.000x | 9 | 2.00% |",
        "| wiki.test | better, warm | 70.00 | 68.00 | 60.00 | 68.90 | 0.870x | 9 | 2.00% |",
        "| **all** | 70.1 | 70.1 | 70.1 | 70.1 | 70.1 | 70.1 |",
        "| WordNet's first sense |  | 65.9 | 65.9 |",
        "| better | 1 | 69.0 | 69.0 |",
        "| all-MiniLM-L6 | 0 | mean | 70.00 | 60.00 |",
        "| good | candidates in vocabulary | 6 | 45.0 | 45.0 | 45.0 |",
        "| all-MiniLM-L6 | 9.0 MB | 22 | 2,600 | - |",
        "| good | 26.0 MB | 11 | 12,000 | 14,000 |",
        "| shape of better, untrained | 1 | 90.00 | 91.00 |",
        "| 20 M tokens | 1 | 90.00 | 91.00 |",
    ):
        assert row in page, row
    assert "## What more text buys" in page
    assert "elmokit evaluate blimp data/blimp/blimp.tar.xz --model MODEL --json" in page
    assert str(Path.cwd()) not in page
    num_called = len(called)
    run("evidence_results", monkeypatch, "there/data", "good", "better", *options)
    assert len(called) == num_called  # everything is cached


def test_another_model_in_the_same_place_is_rejected(called, monkeypatch):
    options = ["--work", "work", "-o", "page.md", "--sections", "blimp"]
    run("evidence_results", monkeypatch, "there/data", "good", *options)
    assert len(called) == 1
    Path("good/SHA256SUMS").write_text("1  other\n")
    with pytest.raises(SystemExit, match="measurements of another model"):
        run("evidence_results", monkeypatch, "there/data", "good", *options)
    with pytest.raises(SystemExit, match="section 'colours'; expected some of sizes"):
        run("evidence_results", monkeypatch, "there/data", "good", *options[:-1], "colours")


def make_run(folder: Path, *, num_rows: int = 2) -> None:
    (folder / "model").mkdir(parents=True)
    (folder / "text").mkdir()
    (folder / "model" / "SHA256SUMS").write_text("0  config.json\n")
    (folder / "recipe.json").write_text(json.dumps({"training": {"num_rows": num_rows, "unroll_steps": 5, "seed": 7}}))
    (folder / "log.jsonl").write_text(json.dumps({"kind": "LogLine", "step": 100, "seconds": 3600.0, "epoch": 2.0}))
    meta = {"num_sentences": 3, "num_tokens": 20, "num_words": 7, "num_left_out": 1}
    (folder / "text" / "corpus.json").write_text(json.dumps(meta))


def test_a_run_adds_its_curve_n_grams_and_the_cost_of_rounding(called, monkeypatch):
    make_run(Path("run"))
    options = ["--work", "work", "-o", "page.md", "--sections", "blimp", "--run", "run"]
    run("evidence_results", monkeypatch, "there/data", "good", "better", *options)
    page = Path("page.md").read_text("utf-8")
    for row in (
        "| 100 | 1,000 | 2.00 | 1.00 | 0 |",
        "| wiki.test | as trained | 69.000 |  |",
        "| wiki.test | as released | 60.000 | -13.043% |",
        "| wiki.test | 5-grams | 90.000 |  |",
        "](page.svg)",
        "Recipe: `recipes/better.toml`; training seed 7.",
        "elmokit perplexity runs/run/model data/lm/wiki.test.txt.xz --json",
    ):
        assert row in page, row
    assert "python scripts/learning_curve.py runs/run -o page.svg" in called


def test_an_installed_model_has_the_name_it_was_given(called, monkeypatch):
    run("evidence_results", monkeypatch, "data", "en-small", "--work", "work", "-o", "page.md", "--sections", "pos")
    assert "| en-small | 1 | 90.00 | 91.00 |" in Path("page.md").read_text("utf-8")
    assert len(called) == 1


@pytest.mark.usefixtures("called")
def test_the_latin_model_is_measured(monkeypatch):
    make_run(Path("run"))
    Path("work").mkdir()
    Path("work/la.sentences.txt").write_text("ius\n")
    run("la_small_results", monkeypatch, "run", "data", "--work", "work", "-o", "out.md")
    page = Path("out.md").read_text("utf-8")
    assert "| la.test | la-small | 70.0 | 68.0 | 69.0 | 9 | 2.00% |" in page
    assert "| la.test | 5-grams | 90.0 | 90.0 | 90.0 | 9 | 11.11% |" in page
    assert "| untrained | 1 | 90.00% | 91.00% |" in page
    assert "| 3 | 20 | 7 | 1 | 100 | 1,000 | 2.00 | 1.00 | 0 |" in page
