"""The page of results and the model card: every command runs once. Their output is made up."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from elmokit.errors import InputError

PERPLEXITY = {
    "forward": 70.0, "backward": 68.0, "arithmetic_mean": 69.0, "geometric_mean": 68.9, "num_targets": 9,
    "unknown_share": 0.02,
}  # fmt: skip
NGRAMS = {"forward": 140.0, "backward": 138.0, "mean": 139.0, "targets": 9, "unknown": 1}
NEIGHBOR = {"similarity": 0.9, "tokens": ["a", "play", "|"], "position": 1}


def answers(words: list[str]) -> list[dict]:
    name = next(word for word in words if not word.startswith("-") and not word.endswith("elmokit"))
    match Path(name).stem:
        case "perplexity":
            return [PERPLEXITY | {"state": state} for state in ("reset", "warm", "carry")]
        case "ngram_perplexity":
            texts = [Path(word).name for word in words if word.endswith(".xz")]
            return [NGRAMS | {"order": order, "file": text} for order in (1, 5) for text in texts]
        case "int8_accuracy":
            return [{"mean": 0.9999, "lowest": 0.99, "lowest_token": "x", "num_tokens": 5}] * 3
        case "evaluate":
            layers = ({"bilm": bilm, "layer": layer} for bilm in ("given", "untrained") for layer in (0, 1, 2, "mean"))
            return [one | {"dev_accuracy": 0.9, "test_accuracy": 0.91} for one in layers]
        case "neighbors":
            static = [{"token": "plays", "similarity": 0.8}]
            return [
                {"tokens": ["they", "play"], "position": 1, "neighbors": [NEIGHBOR], "static_neighbors": static}
            ] * 3
    return []


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import en_small_results

    return en_small_results


@pytest.fixture
def called(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the commands, and make up their output."""
    run = tmp_path / "run-7"
    (run / "model").mkdir(parents=True)
    (run / "model" / "SHA256SUMS").write_text("0  config.json\n")
    (run / "recipe.json").write_text(json.dumps({"training": {"num_rows": 2, "unroll_steps": 5, "seed": 3}}))
    lines = [{"kind": "LogLine", "step": step, "seconds": 36.0 * step, "epoch": 0.5} for step in (50, 100)]
    (run / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    shown = []

    def call(lab, command) -> str:
        words = [str(word) for word in command]
        shown.append(lab.shown(command))
        if "-o" in words and "elmokit" in words:
            folder = Path(words[words.index("-o") + 1])
            folder.mkdir()
            (folder / "config.json").write_text("{}")
            (folder / "README.md").write_text("# en-small\n\n`sha256sum` checks the files.\n")
        return "".join(f"{json.dumps(answer)}\n" for answer in answers(words))

    monkeypatch.setattr(script.Lab, "call", call)
    monkeypatch.chdir(tmp_path)
    return shown


def make_page(script: ModuleType, monkeypatch: pytest.MonkeyPatch, work: str = "work") -> str:
    args = ["en_small_results.py", "run-7", "there/data", "--work", work, "-o", "results/page.md"]
    monkeypatch.setattr(sys, "argv", args)
    script.main()
    return Path("results/page.md").read_text("utf-8")


def test_the_page_has_every_number_beside_its_command(script, called, monkeypatch):
    page = make_page(script, monkeypatch)
    assert "| 100 | 1,000 | 0.50 | 1.00 | 0 |" in page
    assert "| wiki.test | en-small, warm | 70.00 | 68.00 | 69.00 | 68.90 | 9 | 2.00% |" in page
    assert "| wiki.dev | 5-grams | 140.00 | 138.00 | 139.00 | 139.00 | 9 | 11.11% |" in page
    assert "| novels | 69.0 | 69.0 | 0.0% | 69.0 |" in page
    assert "| 2 | 0.99990 | 0.99000 | `x` | 5 |" in page
    assert "| the same shape, untrained | mean | 90.00% | 91.00% |" in page
    assert "| any token | 0.90 | a **play** \\| |" in page
    assert "GloVe: plays (0.80)" in page
    for command in called:
        if "learning_curve" not in command:
            assert command in page
    assert "elmokit convert runs/en-small/model -o en-small --dtype float16" in called
    assert (
        "python scripts/ngram_perplexity.py runs/en-small data/lm/wiki.dev.txt.xz data/lm/wiki.test.txt.xz --json"
        in called
    )
    assert "elmokit finetune en-small data/lm/un.train.txt.xz -o tuned-un --wrapped" in called


@pytest.mark.usefixtures("called")
def test_the_card_is_written_once(script, monkeypatch):
    make_page(script, monkeypatch)
    card = Path("work/en-small/README.md").read_text("utf-8")
    assert card.startswith("# en-small\n\n`sha256sum` checks the files.\n\n## Training data\n")
    assert "| perplexity on `wiki.test`, mean of both directions | 69.0 |" in card
    assert "| the same for modified Kneser-Ney 5-grams of the same text | 139.0 |" in card
    make_page(script, monkeypatch)
    assert Path("work/en-small/README.md").read_text("utf-8") == card


def test_a_measurement_is_cached_until_its_command_changes(script, called, monkeypatch):
    first = make_page(script, monkeypatch)
    called.clear()
    assert make_page(script, monkeypatch) == first
    assert [command.split()[1] for command in called] == ["scripts/learning_curve.py"]
    monkeypatch.setattr(script, "CONTEXTS", ("They play .",) * 3)
    called.clear()
    make_page(script, monkeypatch)
    assert [command.split()[1] for command in called] == ["scripts/learning_curve.py", "neighbors", "neighbors"]


@pytest.mark.usefixtures("called")
def test_measurements_of_another_model_are_rejected(script, monkeypatch):
    make_page(script, monkeypatch)
    Path("run-7/model/SHA256SUMS").write_text("1  config.json\n")
    with pytest.raises(SystemExit, match=r"work: has measurements of a model other than .*run-7's; use another"):
        make_page(script, monkeypatch)
    make_page(script, monkeypatch, work="other")


def test_a_failed_command_is_reported(script, tmp_path):
    lab = script.Lab(tmp_path / "run", tmp_path / "data", tmp_path / "work")
    with pytest.raises(InputError, match=r"python missing\.py: exit code 2, see above"):
        lab.call([tmp_path / "missing.py"])
