"""Overlap of a test set with a biLM's training text: counts, and scores by overlap."""

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest
from toy_datasets import write_home

from elmokit import cli
from elmokit.analysis.table1 import ARMS

SCRIPT = Path(__file__).parents[2] / "scripts" / "lm_overlap.py"
LATE = "It was very late that evening , and nobody in the house was awake ."
OSLO = "Ada saw the old harbour of Oslo from her window for the last time ."
ROME = "Bo met three of the oldest families of Rome in the course of a week ."


def paragraph(number: int, *sentences: str) -> dict[str, object]:
    """Return a paragraph with one question whose answer is all of it, so nearly every prediction overlaps."""
    context = " ".join(sentence.replace(" ,", ",").replace(" .", ".") for sentence in sentences)
    answers = [{"text": context, "answer_start": 0}]
    return {"context": context, "qas": [{"id": str(number), "question": "Where was it?", "answers": answers}]}


PARAGRAPHS = [paragraph(0, LATE, OSLO), paragraph(1, ROME), paragraph(2, ROME, OSLO, LATE)]


def write_questions(path: Path, paragraphs: list[dict[str, object]]) -> None:
    text = json.dumps({"version": "1.1", "data": [{"title": "tales", "paragraphs": paragraphs}]})
    path.write_bytes(lzma.compress(text.encode()))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a finished row of questions about three paragraphs."""
    write_home(tmp_path)
    write_questions(tmp_path / "data" / "squad" / "test-small.json.xz", PARAGRAPHS)
    given = {"--data": "data", "--elmo": "bilm", "--vectors": "data/glove.txt", "--recipes": "recipes"}
    options = [str(word) for name, path in given.items() for word in (name, tmp_path / path)]
    run_dir = str(tmp_path / "table1")
    assert cli.run(["reproduce", "table1", *options, "--tasks", "squad", "--seeds", "1", "--run-dir", run_dir]) == 0
    return tmp_path


def rows_of(page: str, first: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(f"| {first} |")]


def write_page(home: Path, *lines: str) -> str:
    (home / "lm.txt").write_text("\n".join(lines))
    args = [home / "data", home / "table1", home / "lm.txt", "-o", home / "page.md"]
    run = subprocess.run([sys.executable, str(SCRIPT), *map(str, args)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return (home / "page.md").read_text("utf-8")


@pytest.mark.long
def test_seen_sentences_are_counted_and_scored_separately(home, capfd):
    page = write_page(home, "Something else altogether, which is long enough.", OSLO.upper().replace(" .", "!"))
    counts, *scores = rows_of(page, "SQuAD, a part")
    assert counts[1:] == ["3", "1", "33.3%", "3", "2", "1"]
    assert rows_of(page, "SST-5")[0][1:4] == ["0", "0", "-"]
    assert [row[1:3] for row in scores] == [["all", "3"], ["nothing seen", "1"], ["half or more seen", "1"]]
    for row, paragraphs in zip(scores, (PARAGRAPHS, PARAGRAPHS[1:2], PARAGRAPHS[:1]), strict=True):
        write_questions(home / "part.json.xz", paragraphs)
        for cell, arm in zip(row[3:], ARMS, strict=True):
            model = str(home / "table1" / "squad" / arm / "seed-0" / "model")
            capfd.readouterr()
            assert cli.run(["task", "evaluate", "squad", model, str(home / "part.json.xz"), "--json"]) == 0
            assert cell == f"{100 * json.loads(capfd.readouterr().out)['f1']:.2f}"
    assert len({row[3] for row in scores}) == len(scores)
    assert "- command: python scripts/lm_overlap.py data table1 lm.txt -o page.md\n" in page
    assert str(home) not in page


@pytest.mark.long
def test_a_row_that_was_not_seen_is_not_scored(home):
    page = write_page(home, "Something else altogether, which is long enough.", "Rome")
    assert [row[2:] for row in rows_of(page, "SQuAD, a part")] == [["0", "0.0%", "3", "0", "0"]]


@pytest.mark.long
def test_a_part_without_examples_has_no_score(home):
    write_questions(home / "data" / "squad" / "test-small.json.xz", PARAGRAPHS[2:])
    page = write_page(home, OSLO)
    _, *scores = rows_of(page, "SQuAD, a part")
    assert [row[2:] for row in scores[1:]] == [["0", "-", "-", "-"]] * 2
