"""Provenance: machine, versions, commit, date and command, without local folders."""

import re

import pytest

from elmokit import __version__
from elmokit.runs import provenance
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


def test_an_installed_wheel_knows_its_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "TREE", tmp_path)
    monkeypatch.setattr(provenance, "BUILT_FROM", tmp_path / "commit.txt")
    assert provenance.find_commit() == f"none, elmokit {__version__}"
    (tmp_path / "commit.txt").write_text("1a2b3c4\n")
    assert provenance.find_commit() == "1a2b3c4"
