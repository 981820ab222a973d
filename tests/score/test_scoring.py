"""Scores and predictions against a plain loop, and against perplexity."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lm_oracle import SENTENCES, Pair, make_pair, write_corpus
from published import PublishedModel

from elmokit.errors import ElmokitWarning, InputError, WeightsError
from elmokit.score.perplexity import measure
from elmokit.score.results import Choice
from elmokit.score.saved_lm import load_language_model, save_language_model
from elmokit.score.scoring import Scorer
from elmokit.text.vocab import Vocab

TOKENS = [sentence.split() for sentence in SENTENCES]


@pytest.fixture(scope="module")
def pair(published_model: PublishedModel) -> Pair:
    return make_pair(published_model)


@pytest.fixture(scope="module")
def scorer(pair: Pair) -> Scorer:
    return Scorer(pair.model, pair.vocab, state="reset")


def test_every_logprob_equals_a_plain_loop(pair: Pair, scorer: Scorer) -> None:
    for tokens, score in zip(TOKENS, scorer.score(TOKENS), strict=True):
        forward = -pair.oracle.surprises(0, tokens, pair.oracle.zero(0))[0]
        backward = -pair.oracle.surprises(1, tokens, pair.oracle.zero(1))[0][::-1]  # in the order of the text
        assert score.tokens == tuple(tokens)
        np.testing.assert_allclose(score.forward_logprobs, forward[:-1], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(score.backward_logprobs, backward[1:], rtol=1e-5, atol=1e-5)
        assert score.end_logprob == pytest.approx(forward[-1], rel=1e-5)
        assert score.start_logprob == pytest.approx(backward[0], rel=1e-5)
        assert score.forward_total == pytest.approx(forward.sum(), rel=1e-5)
        assert score.backward_total == pytest.approx(backward.sum(), rel=1e-5)
        assert score.forward_perplexity == pytest.approx(math.exp(-forward.mean()), rel=1e-5)
        assert score.backward_perplexity == pytest.approx(math.exp(-backward.mean()), rel=1e-5)
        assert score.perplexity == pytest.approx(math.exp(-(forward.mean() + backward.mean()) / 2), rel=1e-5)
        assert score.unknown.tolist() == [token not in pair.vocab for token in tokens]


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_totals_add_up_to_the_perplexity_of_the_text(pair: Pair, tmp_path: Path, state: str) -> None:
    scores = Scorer(pair.model, pair.vocab, state=state).score(TOKENS)
    whole = measure(pair.model, write_corpus(tmp_path), pair.vocab, state=state)
    forward, backward = sum(score.forward_total for score in scores), sum(score.backward_total for score in scores)
    assert math.exp(-forward / whole.num_targets) == pytest.approx(whole.forward, rel=1e-6)
    assert math.exp(-backward / whole.num_targets) == pytest.approx(whole.backward, rel=1e-6)


def test_a_score_depends_on_its_sentence_alone(scorer: Scorer) -> None:
    together = scorer.score(TOKENS)
    for tokens, score in zip(TOKENS, together, strict=True):
        [alone] = scorer.score([tokens])
        np.testing.assert_allclose(score.forward_logprobs, alone.forward_logprobs, atol=1e-5)
        np.testing.assert_allclose(score.backward_logprobs, alone.backward_logprobs, atol=1e-5)


def test_a_window_of_one_word_answers_each_sentence_before_the_next_is_read(scorer: Scorer) -> None:
    read: list[list[str]] = []

    def sentences() -> Iterator[list[str]]:
        for tokens in TOKENS:
            read.append(tokens)
            yield tokens

    expected = scorer.score(TOKENS)
    for number, score in enumerate(scorer.iter_scores(sentences(), window_words=1), start=1):
        assert len(read) == number
        assert score.log10 == pytest.approx(expected[number - 1].log10, rel=1e-5)
    read.clear()
    next(scorer.iter_predictions(sentences(), top_k=1, window_words=1))
    assert len(read) == 1
    with pytest.raises(InputError, match="window_words is 0; expected 1 or more"):
        next(scorer.iter_scores(TOKENS, window_words=0))


def test_predictions_are_the_likeliest_words_of_a_plain_loop(pair: Pair, scorer: Scorer) -> None:
    for tokens, places in zip(TOKENS, scorer.predict(TOKENS, top_k=3), strict=True):
        forward_TV = pair.oracle.logprobs(0, ["<S>", *tokens[:-1]], pair.oracle.zero(0))[0]
        backward_TV = pair.oracle.logprobs(1, ["</S>", *tokens[:0:-1]], pair.oracle.zero(1))[0][::-1]
        product_TV = np.exp(forward_TV + backward_TV)
        both_TV = np.log(product_TV / product_TV.sum(axis=1, keepdims=True))
        assert [place.token for place in places] == tokens
        for row, place in enumerate(places):
            for found, expected_V in (
                (place.forward, forward_TV[row]),
                (place.backward, backward_TV[row]),
                (place.both, both_TV[row]),
            ):
                best = np.argsort(-expected_V)[:3]
                assert [candidate.word for candidate in found] == [pair.vocab.words[index] for index in best]
                assert [candidate.logprob for candidate in found] == pytest.approx(expected_V[best], abs=1e-4)
            assert place.both_logprob == pytest.approx(both_TV[row, pair.vocab.id(place.token)], abs=1e-4)


def test_predictions_and_scores_have_the_same_probabilities(pair: Pair, scorer: Scorer) -> None:
    [score], [places] = scorer.score([TOKENS[0]]), scorer.predict([TOKENS[0]], top_k=len(pair.vocab))
    for row, place in enumerate(places):
        target = "<UNK>" if score.unknown[row] else place.token
        forward = {candidate.word: candidate.logprob for candidate in place.forward}
        backward = {candidate.word: candidate.logprob for candidate in place.backward}
        assert forward[target] == pytest.approx(float(score.forward_logprobs[row]), abs=1e-5)
        assert backward[target] == pytest.approx(float(score.backward_logprobs[row]), abs=1e-5)


@pytest.mark.long
def test_candidates_have_the_probabilities_of_a_plain_loop(pair: Pair, scorer: Scorer) -> None:
    words = [*pair.vocab.words[3:7], "unheard-of"]
    choices = [Choice(tokens, position, words) for tokens in TOKENS for position in range(len(tokens))]
    for choice, scores in zip(choices, scorer.iter_candidates(choices), strict=True):
        assert [score.word for score in scores] == words
        assert [score.is_known for score in scores] == [True] * 4 + [False]
        for score in scores:
            # The replaced token itself must not matter.
            tokens = [*choice.tokens[: choice.position], score.word, *choice.tokens[choice.position + 1 :]]
            forward = -pair.oracle.surprises(0, tokens, pair.oracle.zero(0))[0][choice.position]
            backward = -pair.oracle.surprises(1, tokens, pair.oracle.zero(1))[0][::-1][choice.position + 1]
            assert score.forward == pytest.approx(forward, rel=1e-4, abs=1e-5)
            assert score.backward == pytest.approx(backward, rel=1e-4, abs=1e-5)
            assert score.both == score.forward + score.backward
    with pytest.raises(InputError, match="position 2 in a sentence of 2 tokens"):
        list(scorer.iter_candidates([Choice(["a", "b"], 2, words)]))
    with pytest.raises(InputError, match="candidates is 'word', but must be a list"):
        list(scorer.iter_candidates([Choice(["a", "b"], 1, "word")]))


def test_predictions_in_pieces_are_the_same(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scorer.predict(TOKENS, top_k=2)
    monkeypatch.setattr("elmokit.score.scoring.PIECE_BYTES", 1)
    for places, others in zip(whole, scorer.predict(TOKENS, top_k=2), strict=True):
        assert [place.both[0].word for place in places] == [place.both[0].word for place in others]


def test_sentences_are_read_as_they_are_needed(scorer: Scorer) -> None:
    num_read = 0

    def endless() -> Iterator[list[str]]:
        nonlocal num_read
        while True:
            num_read += 1
            yield ["it", "rose"]

    assert next(scorer.iter_scores(endless(), window_words=5)).tokens == ("it", "rose")
    assert next(scorer.iter_predictions(endless(), window_words=5))[0].token == "it"
    assert num_read <= 6


def test_order_is_that_of_the_sentences(scorer: Scorer) -> None:
    assert [list(score.tokens) for score in scorer.score(iter(TOKENS))] == TOKENS
    assert [[place.token for place in places] for places in scorer.predict(iter(TOKENS))] == TOKENS


def test_a_string_is_tokenized(scorer: Scorer) -> None:
    [score] = scorer.score(["The river rose, again."])
    assert score.tokens == ("The", "river", "rose", ",", "again", ".")


def test_a_string_is_tokenized_by_the_rules_of_its_language(pair: Pair, tmp_path: Path) -> None:
    save_language_model(pair.model, pair.vocab, tmp_path / "lm")
    scorer = Scorer.from_pretrained(tmp_path / "lm", language="fr")
    assert scorer.score(["L'homme est là."])[0].tokens == ("L'", "homme", "est", "là", ".")
    assert [place.token for place in scorer.predict(["C'est là"])[0]] == ["C'", "est", "là"]


def test_an_empty_sentence_is_scored_by_its_boundaries(pair: Pair, scorer: Scorer) -> None:
    [score] = scorer.score([[]])
    expected = -pair.oracle.surprises(0, [], pair.oracle.zero(0))[0]
    assert score.forward_total == pytest.approx(expected.sum(), rel=1e-5)
    assert scorer.predict([[]]) == [[]]
    assert scorer.score([]) == []


def test_a_saved_model_scores_the_same(pair: Pair, tmp_path: Path) -> None:
    pair.model.bilm.pack_weights()  # as a scorer does: to the last bit, the start state is then the same too
    save_language_model(pair.model, pair.vocab, tmp_path / "lm", description="A test.")
    loaded = load_language_model(tmp_path / "lm")
    assert loaded.vocab.words == pair.vocab.words
    assert loaded.start_state is not None
    for state in ("reset", "warm"):
        before = Scorer(pair.model, pair.vocab, state=state).score(TOKENS)
        after = Scorer.from_pretrained(tmp_path / "lm", state=state).score(TOKENS)
        for first, second in zip(before, after, strict=True):
            np.testing.assert_array_equal(first.forward_logprobs, second.forward_logprobs)
            np.testing.assert_array_equal(first.backward_logprobs, second.backward_logprobs)


def test_cut_words_are_warned_of_once(pair: Pair) -> None:
    scorer = Scorer(pair.model, pair.vocab)
    with pytest.warns(ElmokitWarning, match="longer than 48 bytes"):
        scorer.score([["a" * 60]])
    scorer.score([["b" * 60]])  # a second warning would be an error


def test_input_that_cannot_be_scored_is_rejected(pair: Pair, scorer: Scorer, published_model: PublishedModel) -> None:
    with pytest.raises(InputError, match="is one string"):
        scorer.score("it rose")
    with pytest.raises(InputError, match="top_k is 0"):
        scorer.predict([["it"]], top_k=0)
    with pytest.raises(InputError, match="top_k is 19"):
        scorer.predict([["it"]], top_k=19)
    with pytest.raises(InputError, match="a token is 3, of type int"):
        scorer.score([["it", 3]])
    with pytest.raises(InputError, match="state 'carry'; expected 'reset' or 'warm'"):
        Scorer(pair.model, pair.vocab, state="carry")
    with pytest.raises(InputError, match="words, but the model predicts"):
        Scorer(pair.model, Vocab(["<S>", "</S>", "<UNK>", "a"]))
    with pytest.raises(InputError, match="words, but the model predicts"):
        save_language_model(pair.model, Vocab(["<S>", "</S>", "<UNK>", "a"]), "unused")
    with pytest.raises(WeightsError, match="no output layer"):
        Scorer.from_pretrained(published_model.options_path.parent)
