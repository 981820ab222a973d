"""Task models in the package: they work out of the box."""

from pathlib import Path

import pytest

from elmokit.cli import run
from elmokit.tasks.saved import BUNDLED_TASKS, load_task

NAMES = sorted(path.name for path in BUNDLED_TASKS.iterdir())


def test_named_entities_are_found_out_of_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = load_task("ner").predict(["Ada Lovelace wrote to Charles Babbage from London."])
    assert str(found) == "[PER Ada Lovelace] wrote to [PER Charles Babbage] from [LOC London] ."
    (tmp_path / "news.txt").write_text("Mary flew from Berlin to Madrid.\n")
    assert run(["task", "predict", "ner", "ner", "news.txt"]) == 0
    assert capfd.readouterr().out == "[PER Mary] flew from [LOC Berlin] to [LOC Madrid] .\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_model_is_small_and_names_no_path_of_a_machine(name: str) -> None:
    folder = BUNDLED_TASKS / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 5e6
    assert "/" not in (folder / "config.json").read_text("utf-8")
