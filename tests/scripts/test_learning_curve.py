"""The plot of a run follows its log, and has the same bytes every time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "learning_curve.py"


def loss(step: int) -> dict[str, object]:
    return {"kind": "LogLine", "step": step, "sampled": True, "forward_loss": 9 / step, "backward_loss": 8 / step}


def heldout(step: int, text: str) -> dict[str, object]:
    numbers = {"forward_perplexity": 900 / step, "backward_perplexity": 800 / step, "perplexity": 850 / step}
    return {"kind": "HeldOut", "step": step, "text": text, **numbers}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Make a run that changed its held-out text and is writing a log line."""
    lines = [loss(20), heldout(20, "old"), loss(40), heldout(40, "new"), loss(60), heldout(60, "new")]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "LogL')
    (tmp_path / "recipe.json").write_text(json.dumps({"training": {"num_rows": 4, "unroll_steps": 5}}))
    return tmp_path


def draw(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, args)], capture_output=True, text=True)


def test_curves_are_those_of_the_log(run_dir, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from learning_curve import read_run

    curves = read_run(run_dir)
    assert curves.tokens(curves.losses) == [400, 800, 1200]
    assert [line["step"] for line in curves.heldout] == [40, 60]


@pytest.mark.slow
def test_the_same_run_gives_the_same_picture(run_dir):
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("a.svg", "b.svg"):
        assert draw(run_dir, "-o", run_dir / name).returncode == 0
        pictures.append((run_dir / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert b"<svg" in pictures[0]


def test_a_failure_is_one_line(tmp_path):
    run = draw(tmp_path, "-o", tmp_path / "a.svg")
    assert run.returncode == 1
    assert run.stderr.startswith(
        f"learning_curve: {tmp_path}/log.jsonl: No such file or directory; expected the folder"
    )
    assert run.stderr.count("\n") == 1
