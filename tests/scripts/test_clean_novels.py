"""Headings go, sentences stay."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "clean_novels.py"
SENTENCES = ['"Partly," said Ann.', "I saw chapter two.", "Book in hand, she left."]
HEADINGS = ["\ufeffThe White Ladies", "CHAPTER XX.", "Chapter IV. In which", "* * * * *", "", "BOOK I", "Volume 2"]


def test_headings_and_titles_are_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / "novels.txt", tmp_path / "clean.txt"
    lines = [HEADINGS[0], SENTENCES[0], *HEADINGS[1:4], SENTENCES[1], *HEADINGS[4:], SENTENCES[2]]
    source.write_text("\n".join(["x y", *lines]) + "\n", "utf-8")  # the mark is not at the file's start
    done = subprocess.run([sys.executable, SCRIPT, source, "-o", target], check=True, capture_output=True, text=True)
    assert target.read_text("utf-8").splitlines() == ["x y", *SENTENCES]
    assert "4 of 11 lines" in done.stdout
