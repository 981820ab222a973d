"""Differences between a run's settings and those it was started with."""

import re
from pathlib import Path

import pytest

from elmokit.errors import ConfigError
from elmokit.runs.resume_check import changed_data, changed_settings, check_unchanged

FOLDER = Path("runs/small")


def test_equal_settings_have_no_differences() -> None:
    key = {"model": {"size": 2, "layers": [1, 2]}, "seed": 0}
    assert list(changed_settings(key, key)) == []
    assert list(changed_data({"text": "a", "other": "b"}, {"text": "a"})) == []
    check_unchanged([], folder=FOLDER)


def test_differences_are_named_by_their_dotted_names() -> None:
    before = {"model": {"size": 2, "old": 1}, "seed": 0}
    now = {"model": {"size": 3, "new": "x" * 99}, "seed": 0}
    assert list(changed_settings(before, now)) == [
        "model.size was 2, now 3",
        f"model.new was unset, now {'x' * 60}…",
        "model.old was 1, now unset",
    ]
    assert list(changed_data({"text": "a"}, {"text": "b", "words": "c"})) == ["different text", "different words"]


def test_the_error_names_the_folder_and_the_first_differences() -> None:
    message = "runs/small: the run in this folder was started with different settings (a; b; c; and 2 more); name"
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_unchanged(["a", "b", "c", "d", "e"], folder=FOLDER)
