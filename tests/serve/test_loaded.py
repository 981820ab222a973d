"""Task models by name or folder."""

from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.serve.loaded import parse_tasks
from elmokit.tasks.saved import BUNDLED_TASKS


def test_tasks_are_folders_or_models_in_the_package():
    assert parse_tasks(["ner=runs/ner/model", "mine=a=b"]) == {"ner": Path("runs/ner/model"), "mine": Path("a=b")}
    assert parse_tasks(["ner"]) == {"ner": BUNDLED_TASKS / "ner"}
    assert parse_tasks([]) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["parse"], "--task 'parse'; expected NAME=FOLDER, .* or a model in the package: ner"),
        (["ner="], "expected NAME=FOLDER"),
        (["=folder"], "expected NAME=FOLDER"),
        (["a/b=folder"], "expected NAME=FOLDER"),
        ([".."], "expected NAME=FOLDER"),
        (["ner", "ner=folder"], "--task ner is given twice"),
    ],
)
def test_bad_names_of_tasks_are_rejected(given: list[str], message: str):
    with pytest.raises(InputError, match=message):
        parse_tasks(given)
