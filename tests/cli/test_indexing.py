"""The verbs index and senses, and neighbors from an index: their output and their errors."""

import json
from pathlib import Path

import pytest
from published import make_published
from toy import TEXT

from elmokit import cli
from elmokit.analysis.index import CorpusIndex

SENTENCES = [line.split() for line in TEXT.splitlines()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_published(tmp_path_factory.mktemp("model"), dim=8, projection_dim=4).options_path.parent)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> Path:
    """Return the working directory, with a text and its index."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    assert cli.run(["index", "text.txt", "-o", "text.index", "-m", model]) == 0
    return tmp_path


def test_an_index_gives_the_neighbors_of_its_text(model, capfd):
    for options in (["--layer", "1"], ["--same-word"], ["--context", "a boat on the river"]):
        args = ["neighbors", "river", "-k", "3", "--json", *options]
        assert cli.run([*args, "--in", "text.txt", "-m", model]) == 0
        from_text = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert cli.run([*args, "--index", "text.index"]) == 0
        out, err = capfd.readouterr()
        from_index = [json.loads(line) for line in out.splitlines()]
        assert err == ""
        assert [(one["line"], one["tokens"]) for one in from_index] == [
            (one["line"], one["tokens"]) for one in from_text
        ]
        for one, other in zip(from_index, from_text, strict=True):
            similarities = [near["similarity"] for near in other["neighbors"]]
            assert [near["similarity"] for near in one["neighbors"]] == pytest.approx(similarities, abs=2e-3)


def test_senses_of_an_index_and_of_its_text(model, capfd):
    args = ["senses", "the", "--clusters", "2", "--layer", "1"]
    assert cli.run([*args, "--index", "text.index", "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    found = CorpusIndex.open("text.index").senses("the", layer=1, num_clusters=2)
    assert (said["word"], said["layer"], said["num_occurrences"]) == ("the", 1, found.num_occurrences)
    assert [len(sense) for sense in said["senses"]] == [len(sense.occurrences) for sense in found.senses]
    assert all(SENTENCES[one["line"]] == one["tokens"] for sense in said["senses"] for one in sense)
    assert cli.run([*args, "--in", "text.txt", "-m", model]) == 0
    headings, *rows = (line.split("\t") for line in capfd.readouterr().out.splitlines())
    assert headings == ["sense", "size", "typicality", "line", "position", "sentence"]
    assert {row[0] for row in rows} == {"1", "2"}
    assert len(rows) == sum(min(5, len(sense.occurrences)) for sense in found.senses)


FAILURES = {
    "there already": (["index", "text.txt", "-o", "text.index", "-m", "MODEL"], "already holds an index"),
    "no text": (["index", "none.txt", "-o", "new", "-m", "MODEL"], "none.txt: no such file"),
    "no index": (["senses", "river", "--index", "none"], "none: does not exist; expected an index"),
    "no word": (["neighbors", "River", "--index", "text.index"], "'River' is not a token of the text"),
    "two words": (["senses", "don't", "--index", "text.index"], "\"don't\" is 2 tokens (don 't)"),
    "another context": (
        ["neighbors", "river", "--index", "text.index", "--context", "a boat"],
        "'river' is not a token of the context 'a boat'",
    ),
    "another model": (
        ["neighbors", "river", "--index", "text.index", "--context", "a river", "-m", "en-small"],
        "load that model, or build the index again",
    ),
    "too many clusters": (["senses", "net", "--index", "text.index", "--clusters", "9"], "expected 1 to 1"),
}


@pytest.mark.parametrize(("args", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_line_and_exit_code_1(model, capfd, args, message):
    assert cli.run([{"MODEL": model}.get(arg, arg) for arg in args]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ["neighbors", "river"],
        ["neighbors", "river", "--in", "text.txt", "--index", "text.index"],
        ["senses", "river"],
        ["index", "text.txt"],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(capfd, args):
    assert cli.run(args) == 2
    assert capfd.readouterr().err.count("\n") == 1
