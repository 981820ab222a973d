"""The verb neighbors: its output and its errors."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from published import make_published
from terminal import run_on_terminal
from toy import TEXT

from elmokit import cli
from elmokit.analysis.neighbors import Neighborhood, find_neighbors, find_static_neighbors
from elmokit.analysis.occurrences import choose_varied, find_in_contexts, find_occurrences
from elmokit.embed.embedder import Embedder
from elmokit.encoders.static_vectors import StaticVectors

SENTENCES = [line.split() for line in TEXT.splitlines()]
GLOVE = ["river", "bank", "fish", "boat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a small published model."""
    return str(make_published(tmp_path_factory.mktemp("model"), dim=8, projection_dim=4).options_path.parent)


@pytest.fixture(scope="module")
def embedder(model: str) -> Embedder:
    return Embedder.from_pretrained(model)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with the text and some vectors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    vectors_VD = np.random.default_rng(0).normal(size=(len(GLOVE), 3)).astype(np.float32)
    np.savez(tmp_path / "glove.npz", words=np.array(GLOVE), vectors=vectors_VD)
    return tmp_path


def as_rows(found: list[Neighborhood]) -> list[tuple[str, ...]]:
    """Return tab-separated rows by their headings."""
    rows = []
    for number, one in enumerate(found, start=1):
        near = [(1.0, one.query), *((neighbor.similarity, neighbor.occurrence) for neighbor in one.neighbors)]
        for rank, (similarity, place) in enumerate(near):
            line = "" if place.sentence is None else str(place.sentence)
            where = (line, str(place.position), place.token, " ".join(place.tokens))
            rows.append((str(number), str(rank), f"{similarity:.4f}", *where))
    return rows


# neighbors

ARGS = ["neighbors", "river", "--in", "text.txt", "--tokenized"]


@pytest.mark.long
def test_a_pipe_has_one_row_per_neighbor_from_different_places(model, embedder, capfd):
    assert cli.run([*ARGS, "-m", model, "-k", "3", "--layer", "1"]) == 0
    out, err = capfd.readouterr()
    headings, *rows = (tuple(line.split("\t")) for line in out.splitlines())
    assert headings == ("query", "rank", "similarity", "line", "position", "token", "sentence")
    places = find_occurrences(embedder, SENTENCES, "river", most=99)
    queries = choose_varied(embedder, places, num=3, layer=1)
    assert rows == as_rows(find_neighbors(embedder, SENTENCES, queries, k=3, layer=1))
    assert len(rows) == 3 * 4
    assert err == ""


def test_contexts_are_where_the_search_starts(folder, model, embedder, capfd):
    (folder / "raw.txt").write_text("The river rose.\n\nHe sat (by the river), alone.\n")
    args = ["neighbors", "river", "--in", "raw.txt", "text.txt", "-m", model, "--same-word", "-k", "2"]
    contexts = ["A river, a boat.", "We saw the river."]
    assert cli.run([*args, "--context", contexts[0], "--context", contexts[1]]) == 0
    rows = [tuple(line.split("\t")) for line in capfd.readouterr().out.splitlines()[1:]]
    text = ["The river rose.", "", "He sat (by the river), alone.", *TEXT.splitlines()]
    queries = find_in_contexts(embedder, contexts, "river")
    assert rows == as_rows(find_neighbors(embedder, text, queries, k=2, same_word=True))
    assert rows[0] == ("1", "0", "1.0000", "", "1", "river", "A river , a boat .")
    assert {row[5] for row in rows} == {"river"}


def test_json_has_all(model, embedder, capfd):
    args = [*ARGS, "-m", model, "-k", "2", "--context", "a river", "--json", "--vectors", "glove.npz"]
    assert cli.run(args) == 0
    said = json.loads(capfd.readouterr().out)
    [found] = find_neighbors(embedder, SENTENCES, find_in_contexts(embedder, [["a", "river"]], "river"), k=2)
    near = [(one.similarity, one.occurrence) for one in found.neighbors]
    assert said["neighbors"] == [
        {
            "similarity": pytest.approx(similarity, abs=2e-6),
            "token": place.token,
            "line": place.sentence,
            "position": place.position,
            "tokens": list(place.tokens),
        }
        for similarity, place in near
    ]
    query = {"word": "river", "layer": 2, "line": None, "position": 1, "tokens": ["a", "river"]}
    assert {name: said[name] for name in query} == query
    with np.load("glove.npz") as arrays:
        static = find_static_neighbors(StaticVectors(arrays["words"].tolist(), arrays["vectors"]), "river", k=2)
    assert said["static_neighbors"] == [{"similarity": one.similarity, "token": one.word} for one in static]


def test_static_neighbours_come_first_in_a_pipe(model, capfd):
    assert cli.run([*ARGS, "-m", model, "-k", "2", "--vectors", "glove.npz"]) == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines()[1:]]
    assert [(row[0], row[1], row[3:5], row[6]) for row in rows[:2]] == [
        ("static", "1", ["", ""], ""),
        ("static", "2", ["", ""], ""),
    ]
    assert {rows[0][5], rows[1][5]} < set(GLOVE)
    assert rows[2][:2] == ["1", "0"]


def test_the_mean_of_the_layers_can_be_asked_for(model, capfd):
    printed = {}
    for layer in ("mean", "0", "2"):
        assert cli.run([*ARGS, "-m", model, "--context", "a river", "--layer", layer, "--json"]) == 0
        printed[layer] = json.loads(capfd.readouterr().out)
        assert printed[layer]["layer"] == (layer if layer == "mean" else int(layer))
    assert printed["mean"]["neighbors"] != printed["2"]["neighbors"]


def test_standard_input_is_read_once(model, capfd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a river\n")))
    args = ["neighbors", "river", "--in", "-", "-m", model, "--context", "the river", "--same-word", "--json"]
    assert cli.run(args) == 0
    [near] = json.loads(capfd.readouterr().out)["neighbors"]
    assert (near["line"], near["tokens"]) == (0, ["a", "river"])


def test_a_terminal_aligns_the_words_in_80_columns(folder, model, monkeypatch):
    long = " ".join(f"word{number}" for number in range(30))
    lines = [f"{long} river {long}", "the river \x1b[31m", f"{'x' * 200} river {'漢' * 100}", "river"]
    (folder / "a.txt").write_text("\n".join(lines))
    args = ["neighbors", "river", "--in", "a.txt", "-m", model, "--tokenized", "--context", f"{long} river {long}"]
    shown = run_on_terminal([*args, "--same-word", "--vectors", "glove.npz", "-k", "3"], monkeypatch)
    assert shown[0].startswith("river, in any context: ")
    assert shown[1:3] == ["", "similar    line"]
    query, *near = shown[3:]
    assert query.split() == "… word27 word28 word29 river word0 word1 word2 word3 …".split()
    assert len(near) == 3
    assert {line.index("river") for line in shown[3:]} == {query.index("river")}
    assert max(map(len, shown)) <= 80
    by_line = {int(line.split()[1]): line for line in near}
    assert by_line[1].split()[2:] == ["the", "river", "\N{REPLACEMENT CHARACTER}[31m"]
    assert by_line[2].split()[2:] == ["…", "river", "…"]
    assert by_line[3].split()[2:] == ["river"]


def test_a_terminal_says_that_there_are_no_neighbors(model, monkeypatch):
    args = ["neighbors", "church", "--in", "text.txt", "-m", model, "--tokenized", "--same-word"]
    assert run_on_terminal(args, monkeypatch)[-1] == "No neighbors outside the query's own sentence."


# Failures

FAILURES = {
    "no folder": ([*ARGS, "-m", "nowhere"], "nowhere: does not exist"),
    "no text": (["neighbors", "river", "--in", "none.txt", "-m", "MODEL"], "none.txt: no such file"),
    "no word": (["neighbors", "River", "--in", "text.txt", "-m", "MODEL"], "'River' is not a token of the text"),
    "two words": (["neighbors", "don't", "--in", "text.txt", "-m", "MODEL"], "\"don't\" is 2 tokens (don 't)"),
    "another context": (
        [*ARGS, "-m", "MODEL", "--context", "a boat"],
        "'river' is not a token of the context 'a boat'",
    ),
    "no layer": ([*ARGS, "-m", "MODEL", "--layer", "3"], "layer 3; expected 'mean', 0 to 2"),
    "a strange layer": ([*ARGS, "-m", "MODEL", "--layer", "top"], "layer 'top'; expected mean or a layer's number"),
    "stream": (["neighbors", "a", "--in", "-", "-m", "MODEL"], "a stream can be read only once"),
    "a pipe": (["neighbors", "a", "--in", "pipe", "-m", "MODEL"], "a stream can be read only once"),
    "no vectors": ([*ARGS, "-m", "MODEL", "--vectors", "none.npz"], "none.npz: no such file"),
    "no vector": (
        ["neighbors", "old", "--in", "text.txt", "-m", "MODEL", "--vectors", "glove.npz"],
        "'old' has no static vector",
    ),
}


@pytest.mark.parametrize(("args", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_line_and_exit_code_1(folder, model, capfd, args, message):
    os.mkfifo(folder / "pipe")
    assert cli.run([{"MODEL": model}.get(arg, arg) for arg in args]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("elmokit: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ["neighbors", "river"],
        ["neighbors", "river", "--in", "text.txt", "-k", "0"],
        ["neighbors", "river", "--in", "text.txt", "--state", "carry"],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(capfd, args):
    assert cli.run(args) == 2
    assert capfd.readouterr().err.count("\n") == 1
