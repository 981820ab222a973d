"""An index answers as a brute-force search over the same vectors, and survives interruptions."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from toy import TEXT, toy_model

from elmokit.analysis import index_building
from elmokit.analysis.index import CorpusIndex, find_in_index
from elmokit.analysis.index_building import build_index
from elmokit.analysis.neighbors import find_neighbors
from elmokit.analysis.occurrences import Occurrence, find_in_contexts
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import pick_layers
from elmokit.errors import InputError, OutputError
from elmokit.model.bilm import BiLM

LINES = [*TEXT.splitlines(), "", TEXT.splitlines()[1], "a fish swam in the river"]
SENTENCES = [line.split() for line in LINES]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    torch.manual_seed(2)
    return Embedder(BiLM(toy_model()))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.fixture(scope="module")
def index(embedder: Embedder, text: Path, tmp_path_factory: pytest.TempPathFactory) -> CorpusIndex:
    folder = tmp_path_factory.mktemp("index") / "toy"
    build_index([text], folder, embedder)
    return CorpusIndex.open(folder)


def brute_force(embedder, query: Occurrence, *, layer, same_word):
    """Return (rounded cosine, line, position) of every candidate in float64, over vectors rounded to float16."""
    [query_LTD] = embedder.embed_layers([query.tokens])
    if query.sentence is not None:
        query_LTD = query_LTD.astype(np.float16)
    query_D = pick_layers(query_LTD.astype(np.float64), layer)[query.position]
    found, seen = [], set()
    for number, (tokens, layers_LTD) in enumerate(zip(SENTENCES, embedder.embed_layers(SENTENCES), strict=True)):
        if tuple(tokens) in seen or tuple(tokens) == query.tokens:
            continue
        seen.add(tuple(tokens))
        vectors_TD = pick_layers(layers_LTD.astype(np.float16).astype(np.float64), layer)
        for position, vector_D in enumerate(vectors_TD):
            if same_word and tokens[position] != query.token:
                continue
            cosine = vector_D @ query_D / np.linalg.norm(vector_D) / np.linalg.norm(query_D)
            found.append((cosine, number, position))
    return sorted(found, key=lambda one: (-round(one[0], 6), one[1], one[2]))


@pytest.mark.parametrize(("layer", "same_word"), [*product([1, -1, "mean"], [True, False])])
def test_neighbors_are_those_of_a_brute_force_search(embedder, index, layer, same_word):
    queries = [*index.occurrences("river")[:2], Occurrence(("a", "fish", "swam"), 1)]
    found = find_in_index(index, queries, embedder=embedder, k=5, layer=layer, same_word=same_word)
    for query, one in zip(queries, found, strict=True):
        expected = brute_force(embedder, query, layer=layer, same_word=same_word)[:5]
        assert [(near.occurrence.sentence, near.occurrence.position) for near in one.neighbors] == [
            place[1:] for place in expected
        ]
        assert [near.similarity for near in one.neighbors] == pytest.approx([value for value, *_ in expected], abs=3e-6)


def test_the_index_agrees_with_a_search_of_the_text(embedder, index):
    queries = find_in_contexts(embedder, [["by", "the", "river"]], "river")
    in_text = find_neighbors(embedder, SENTENCES, queries, k=6)
    in_index = find_in_index(index, queries, embedder=embedder, k=6)
    for one, other in zip(in_text, in_index, strict=True):
        assert [near.occurrence for near in one.neighbors] == [near.occurrence for near in other.neighbors]
        similarities = [near.similarity for near in one.neighbors]
        assert [near.similarity for near in other.neighbors] == pytest.approx(similarities, abs=1e-3)


def test_layer_0_and_its_ties_keep_the_order_of_the_text(index):
    first, *others = index.occurrences("the")
    found = index.neighbors((first.sentence, first.position), layer=0, k=len(others) + 1, word="the")
    elsewhere = [one for one in others if one.sentence != first.sentence]
    assert [near.occurrence for near in found] == elsewhere
    assert {near.similarity for near in found} == {1.0}


def test_occurrences_are_those_of_the_text_and_equal_sentences_count_once(index):
    expected = [(number, tokens.index("fish")) for number, tokens in enumerate(SENTENCES) if "fish" in tokens]
    assert [(one.sentence, one.position) for one in index.occurrences("fish")] == expected
    assert index.count("fish") == len(expected)
    assert [one.sentence for one in index.occurrences("net")] == [1]  # line 16 repeats it
    assert len(index.occurrences("the", most=3)) == 3
    info = index.info
    distinct = {tuple(tokens) for tokens in SENTENCES if tokens}
    assert (info.num_lines, info.num_sentences) == (len(SENTENCES), len(distinct))
    assert (info.num_tokens, info.num_words) == (sum(map(len, distinct)), len({w for s in distinct for w in s}))
    assert len(index) == info.num_tokens
    assert "fish" in index
    assert "Fish" not in index


def test_vectors_are_the_embedder_s_within_float16(embedder, index):
    [one] = index.occurrences("church")
    [layers_LTD] = embedder.embed_layers([one.tokens])
    for layer in (0, 1, 2, "mean"):
        [stored_D] = index.vectors([one], layer=layer)
        vector_D = pick_layers(layers_LTD, layer)[one.position]
        np.testing.assert_allclose(stored_D, vector_D / np.linalg.norm(vector_D), atol=2e-3)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("num_windows", [1, 3])
def test_an_interrupted_build_resumes_and_ends_with_the_same_bytes(embedder, text, tmp_path, monkeypatch, num_windows):
    monkeypatch.setattr(index_building, "WINDOW_TOKENS", 30)
    whole = tmp_path / "whole"
    build_index([text], whole, embedder)

    def interrupt(lines: int, _total: int, _tokens: int) -> None:
        calls.append(lines)
        if len(calls) > num_windows:
            raise KeyboardInterrupt

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        build_index([text], tmp_path / "cut", embedder, progress=interrupt)
    assert not (tmp_path / "cut").exists()
    resumed = []
    build_index([text], tmp_path / "cut", embedder, progress=lambda lines, *_: resumed.append(lines))
    assert resumed[0] == calls[-1] > 0
    assert contents(tmp_path / "cut") == contents(whole)
    assert [path.name for path in tmp_path.iterdir()].count("cut.partial") == 0


def test_another_text_does_not_resume_an_interrupted_build(embedder, text, tmp_path):
    def interrupt(lines: int, *_: int) -> None:
        if lines:
            raise KeyboardInterrupt

    other = tmp_path / "other.txt"
    other.write_text(text.read_text() + "one more line\n")
    with pytest.raises(KeyboardInterrupt):
        build_index([text], tmp_path / "new", embedder, progress=interrupt)
    with pytest.raises(OutputError, match="unfinished output of another job, which differs in text"):
        build_index([other], tmp_path / "new", embedder)


def test_an_index_is_only_replaced_when_asked(embedder, text, tmp_path):
    build_index([text], tmp_path / "new", embedder)
    before = contents(tmp_path / "new")
    with pytest.raises(OutputError, match="already holds an index"):
        build_index([text], tmp_path / "new", embedder)
    assert contents(tmp_path / "new") == before
    other = tmp_path / "other.txt"
    other.write_text("a new line\n")
    build_index([other], tmp_path / "new", embedder, replace=True)
    assert CorpusIndex.open(tmp_path / "new").words == ["a", "new", "line"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(OutputError, match="other files in it"):
        build_index([text], tmp_path / "full", embedder, replace=True)


def test_a_damaged_index_is_named(embedder, text, tmp_path):
    with pytest.raises(InputError, match="does not exist; expected an index"):
        CorpusIndex.open(tmp_path / "none")
    build_index([text], tmp_path / "new", embedder)
    vectors = tmp_path / "new" / "vectors-1.f16"
    vectors.write_bytes(vectors.read_bytes()[:-2])
    with pytest.raises(InputError, match=r"is damaged \(vectors-1\.f16 has 3,142 bytes, expected 3,144\)"):
        CorpusIndex.open(tmp_path / "new")
    (tmp_path / "new" / "index.json").write_text(json.dumps({"format": "else"}))
    with pytest.raises(InputError, match="its format is not"):
        CorpusIndex.open(tmp_path / "new")


def test_a_model_with_other_vectors_is_rejected(index, embedder):
    index.check_embedder(embedder)
    with pytest.raises(InputError, match=r"state 'reset'.*build the index again"):
        index.check_embedder(Embedder(embedder.bilm, state="reset"))


def test_questions_that_cannot_be_answered(index, embedder, text, tmp_path):
    with pytest.raises(InputError, match="'Fish' is not a token of the text"):
        index.occurrences("Fish")
    with pytest.raises(InputError, match="line 16 is not in the index"):
        index.neighbors((16, 0))
    with pytest.raises(InputError, match="position 9 of line 1; it has 9 tokens"):
        index.neighbors((1, 9))
    with pytest.raises(InputError, match=r"a query of shape \(3,\); expected \(12,\)"):
        index.neighbors(np.ones(3, dtype=np.float32))
    with pytest.raises(InputError, match="layer 3; expected"):
        index.neighbors((1, 0), layer=3)
    with pytest.raises(InputError, match="k 0; expected 1 or more"):
        index.neighbors((1, 0), k=0)
    with pytest.raises(InputError, match="give the model to embed it"):
        find_in_index(index, [Occurrence(("a", "fish"), 1)])
    with pytest.raises(InputError, match="state is 'carry'"):
        build_index([text], tmp_path / "new", Embedder(embedder.bilm, state="carry"))
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    with pytest.raises(InputError, match="no words in the text"):
        build_index([empty], tmp_path / "new", embedder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt"]
