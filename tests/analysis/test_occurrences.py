"""All occurrences of a word are found, and a few that differ are chosen."""

import numpy as np
import pytest
import torch
from toy import toy_model

from elmokit.analysis.occurrences import Occurrence, choose_varied, find_in_contexts, find_occurrences, unit_vectors
from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    torch.manual_seed(1)
    return Embedder(BiLM(toy_model()))


def test_the_first_places_are_found_and_no_more_is_read(embedder):
    def sentences():
        yield ["we", "play"]
        yield "They play a play."
        raise AssertionError("read too far")

    found = find_occurrences(embedder, sentences(), "play", most=3)
    assert [(one.sentence, one.position, one.token) for one in found] == [
        (0, 1, "play"),
        (1, 1, "play"),
        (1, 3, "play"),
    ]
    assert found[1].tokens == ("They", "play", "a", "play", ".")


def test_equal_sentences_are_one_place(embedder):
    found = find_occurrences(embedder, [["we", "play"], "we play", ["we", "play", "."]], "play", most=9)
    assert [one.sentence for one in found] == [0, 2]


@pytest.mark.parametrize(
    ("word", "text"), [("'s", "Ibsen\N{RIGHT SINGLE QUOTATION MARK}s play"), ("--", "a play—long"), ("...", "well… no")]
)
def test_a_word_that_the_tokenizer_changes_is_found(embedder, word, text):
    [found] = find_occurrences(embedder, [text], word, most=1)
    assert found.token == word


def test_part_of_a_token_is_not_the_word(embedder):
    assert [one.sentence for one in find_occurrences(embedder, ["They played.", "We play."], "play", most=9)] == [1]


def test_a_word_that_does_not_occur_is_rejected(embedder):
    with pytest.raises(InputError, match=r"'Play' is not a token of the text; check .* case"):
        find_occurrences(embedder, ["we play"], "Play", most=9)


def test_contexts_must_contain_the_word(embedder):
    assert find_in_contexts(embedder, ["a play", ["play", "play"]], "play") == [
        Occurrence(("a", "play"), 1),
        Occurrence(("play", "play"), 0),
        Occurrence(("play", "play"), 1),
    ]
    with pytest.raises(InputError, match="'play' is not a token of the context 'We played'"):
        find_in_contexts(embedder, ["a play", "We played"], "play")


@pytest.mark.parametrize("layer", [0, 1, -1, "mean"])
def test_vectors_are_those_of_the_embedder_scaled_to_length_one(embedder, layer):
    places = [Occurrence(("a", "fish", "swam"), 1), Occurrence(("we", "play"), 0)]
    expected = embedder.embed_tokens([place.tokens for place in places], layer=layer)
    found = unit_vectors(embedder, places, layer=layer)
    for row, place, vectors_TD in zip(found, places, expected, strict=True):
        vector_D = vectors_TD[place.position]
        np.testing.assert_allclose(row, vector_D / np.linalg.norm(vector_D), atol=1e-6)


def test_one_occurrence_per_sense_is_chosen_and_no_outlier(embedder):
    # The words beside it make the kind; what is far away hardly matters to an untrained model.
    kinds = [f"we want to play it again {end} ." for end in ("today", "now", "soon", "there")]
    kinds += [f"{start} yesterday the play , which" for start in ("and", "but", "so", "then")]
    odd = "zzz ! play zzz !"
    places = find_occurrences(embedder, [sentence.split() for sentence in [*kinds, odd]], "play", most=99)
    chosen = choose_varied(embedder, places, num=2, layer=1)
    assert [one.sentence // 4 for one in chosen] == [0, 1]
    assert choose_varied(embedder, places, num=99, layer=0) == places  # where all are equal
