"""Provenance: machine, versions, commit, date and command, without local folders."""

import re

import pytest

from elmokit.runs.provenance import TREE, gather_facts, shown_word


def test_facts_tell_machine_versions_commit_date_and_command():
    facts = gather_facts(["elmokit", "reproduce", "a b"])
    assert facts["command"] == "elmokit reproduce 'a b'"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts["date"])
    assert list(facts) == ["machine", "versions", "kernels", "commit", "date", "command"]


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--seeds", "--seeds"),
        ("runs/paper", "runs/paper"),
        ("/home/ada/data", "data"),
        ("../ada/data", "data"),
        ("--data=/home/ada/data", "--data=data"),
        ("training.epochs=3", "training.epochs=3"),
        (f"{TREE}/results/paper.md", "results/paper.md"),
    ],
)
def test_a_command_is_shown_without_the_machines_folders(word, shown):
    assert shown_word(word) == shown
