"""Perplexity against a plain loop, and what it must not depend on."""

import json
import math
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from lm_oracle import SENTENCES, LanguageOracle, Pair, make_pair, write_corpus
from oracle import CellState
from published import PublishedModel
from toy import toy_recipe, toy_state

from elmokit.errors import InputError
from elmokit.pretrain.heldout import heldout_evaluation
from elmokit.pretrain.state import PretrainState
from elmokit.runs.world import join_world
from elmokit.score.perplexity import WARM_UP_STEPS, measure
from elmokit.score.scoring import Scorer
from elmokit.text.corpus import Corpus
from elmokit.text.vocab import Vocab
from elmokit.weights.start_state import to_tensors, warm_state


@pytest.fixture(scope="module")
def pair(published_model: PublishedModel) -> Pair:
    return make_pair(published_model)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("text"))


def test_reset_equals_a_plain_loop_over_tokens(pair: Pair, corpus: Corpus) -> None:
    means = [
        np.concatenate(
            [
                pair.oracle.surprises(direction, sentence.split(), pair.oracle.zero(direction))[0]
                for sentence in SENTENCES
            ]
        ).mean()
        for direction in (0, 1)
    ]
    found = measure(pair.model, corpus, pair.vocab, state="reset")
    assert found.forward == pytest.approx(math.exp(means[0]), rel=1e-5)
    assert found.backward == pytest.approx(math.exp(means[1]), rel=1e-5)
    assert found.arithmetic_mean == pytest.approx((math.exp(means[0]) + math.exp(means[1])) / 2, rel=1e-5)
    assert found.geometric_mean == pytest.approx(math.exp((means[0] + means[1]) / 2), rel=1e-5)


def test_warm_starts_every_sentence_from_the_model_s_state(pair: Pair, corpus: Corpus) -> None:
    warm = warm_state(pair.model.bilm)
    parts = {name: part.double().numpy() for name, part in to_tensors(warm).items()}
    means = []
    for direction, name in enumerate(("forward", "backward")):
        start = tuple(
            CellState(cell_C, output_P)
            for cell_C, output_P in zip(parts[f"{name}.cell"], parts[f"{name}.hidden"], strict=True)
        )
        found = [pair.oracle.surprises(direction, sentence.split(), start)[0] for sentence in SENTENCES]
        means.append(np.concatenate(found).mean())
    for given in (warm, None):
        measured = measure(pair.model, corpus, pair.vocab, state="warm", warm=given)
        assert measured.forward == pytest.approx(math.exp(means[0]), rel=1e-5)
        assert measured.backward == pytest.approx(math.exp(means[1]), rel=1e-5)


def test_counts_are_words_and_one_boundary_a_sentence(pair: Pair, corpus: Corpus) -> None:
    words = [word for sentence in SENTENCES for word in sentence.split()]
    unknown = [word for word in words if word not in pair.vocab]
    for state in ("reset", "carry"):
        found = measure(pair.model, corpus, pair.vocab, state=state, num_rows=4)
        assert found.num_targets == len(words) + len(SENTENCES)
        assert found.num_unknown == len(unknown) > 0
        assert found.unknown_share == len(unknown) / found.num_targets


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_batch_size_changes_nothing(pair: Pair, corpus: Corpus, state: str) -> None:
    found = [measure(pair.model, corpus, pair.vocab, state=state, num_rows=num_rows) for num_rows in (1, 4, 256)]
    for other in found[1:]:
        assert other.forward == pytest.approx(found[0].forward, rel=1e-6)
        assert other.backward == pytest.approx(found[0].backward, rel=1e-6)
        assert other.num_targets == found[0].num_targets


def test_windows_change_nothing(pair: Pair, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(pair.model, corpus, pair.vocab)
    monkeypatch.setattr("elmokit.score.perplexity.WINDOW_WORDS", 7)
    pieces = measure(pair.model, corpus, pair.vocab)
    assert pieces.num_targets == whole.num_targets
    assert pieces.forward == pytest.approx(whole.forward, rel=1e-6)
    assert pieces.backward == pytest.approx(whole.backward, rel=1e-6)


def carry_oracle(oracle: LanguageOracle, direction: int, sentences: list[str], num_rows: int, warm_up: int) -> float:
    """Return the mean surprise of rows that take the next sentence at the end of each."""

    def steps(row_states: list[tuple[CellState, ...]]) -> Iterator[list[float]]:
        waiting = [sentence.split() for sentence in sentences]
        todo: list[list[tuple[str, str]]] = [[] for _ in range(num_rows)]
        while True:
            surprises = []
            for row in range(num_rows):
                if not todo[row] and waiting:
                    words = ["<S>", *waiting.pop(0), "</S>"]
                    words = words if direction == 0 else words[::-1]
                    todo[row] = list(pairwise(words))
                if todo[row]:
                    word, target = todo[row].pop(0)
                    logprobs_TV, row_states[row] = oracle.logprobs(direction, [word], row_states[row])
                    surprises.append(-float(logprobs_TV[0, oracle.ids.get(target, oracle.ids["<UNK>"])]))
            if not surprises:
                return
            yield surprises

    states = [oracle.zero(direction)] * num_rows
    for number, _ in enumerate(steps(states), start=1):
        if number >= warm_up:
            break
    if not warm_up:
        states = [oracle.zero(direction)] * num_rows
    return float(np.mean([surprise for step in steps(states) for surprise in step]))


@pytest.mark.parametrize("num_rows", [1, 4, 9])
def test_carry_from_zero_equals_a_plain_loop_over_rows(pair: Pair, corpus: Corpus, num_rows: int) -> None:
    found = measure(pair.model, corpus, pair.vocab, state="carry", num_rows=num_rows, warm_up=False)
    for direction, perplexity in enumerate((found.forward, found.backward)):
        expected = math.exp(carry_oracle(pair.oracle, direction, SENTENCES, num_rows, 0))
        assert perplexity == pytest.approx(expected, rel=1e-5)


@pytest.mark.long
def test_carry_reads_the_first_steps_once_before_it_scores(pair: Pair, tmp_path: Path) -> None:
    text = SENTENCES * 10  # 340 steps in two rows, more than the warm-up
    long_corpus = write_corpus(tmp_path, text)
    found = measure(pair.model, long_corpus, pair.vocab, state="carry", num_rows=2)
    expected = math.exp(carry_oracle(pair.oracle, 0, text, 2, WARM_UP_STEPS))
    assert found.forward == pytest.approx(expected, rel=1e-6)
    cold = measure(pair.model, long_corpus, pair.vocab, state="carry", num_rows=2, warm_up=False)
    assert abs(cold.forward / expected - 1) > 1e-5


def test_max_tokens_takes_whole_sentences_from_the_start(pair: Pair, corpus: Corpus, tmp_path: Path) -> None:
    lengths = [len(sentence.split()) for sentence in SENTENCES]
    three = write_corpus(tmp_path, SENTENCES[:3])
    for state in ("reset", "carry"):
        some = measure(pair.model, corpus, pair.vocab, state=state, max_tokens=sum(lengths[:3]), num_rows=2)
        assert some.num_targets == sum(lengths[:3]) + 3
        assert some.forward == pytest.approx(measure(pair.model, three, pair.vocab, state=state, num_rows=2).forward)
    assert measure(pair.model, corpus, pair.vocab, max_tokens=1).num_targets == lengths[0] + 1


def test_an_evaluation_is_the_perplexity_of_the_first_sentences(tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe())
    found = heldout_evaluation(state.corpus, state.vocab, max_tokens=10**6)(state)
    whole = measure(state.model, state.corpus, state.vocab)
    assert found.step == 0
    assert found.forward_perplexity == pytest.approx(whole.forward)
    assert found.backward_perplexity == pytest.approx(whole.backward)
    assert found.perplexity == pytest.approx(whole.arithmetic_mean)
    assert found.geometric_mean == pytest.approx(whole.geometric_mean)
    few = heldout_evaluation(state.corpus, state.vocab, max_tokens=20)(state)
    assert few.forward_perplexity == pytest.approx(
        measure(state.model, state.corpus, state.vocab, max_tokens=20).forward
    )


def evaluate_in_process(rank: int, folder: Path, port: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    corpus = Corpus.open(folder / "toy")
    vocab = Vocab.from_counts(corpus.word_counts())
    with join_world() as world:
        state = PretrainState(toy_recipe(), corpus, vocab, world=world)
        found = heldout_evaluation(corpus, vocab, max_tokens=10**6)(state)
    (folder / f"{rank}.json").write_text(json.dumps(asdict(found)))


@pytest.mark.slow
def test_two_ranks_share_an_evaluation_and_have_the_same_result(tmp_path: Path) -> None:
    alone = toy_state(tmp_path, toy_recipe())
    expected = asdict(heldout_evaluation(alone.corpus, alone.vocab, max_tokens=10**6)(alone))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(evaluate_in_process, args=(tmp_path, port), nprocs=2)
    for rank in range(2):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == pytest.approx(expected)


def test_a_perplexity_beyond_all_floats_is_infinite(tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe())
    with torch.no_grad():
        state.model.softmax.bias[:] = torch.linspace(0, 1e6, len(state.vocab))
    for policy in ("warm", "carry"):
        found = measure(state.model, state.corpus, state.vocab, state=policy, num_rows=4)
        assert found.forward == found.geometric_mean == math.inf
    scores = Scorer(state.model, state.vocab).score([["the", "river"]])
    assert scores[0].forward_perplexity == scores[0].backward_perplexity == math.inf


def test_measuring_leaves_the_model_as_it_was(pair: Pair, corpus: Corpus) -> None:
    before = {name: tensor.clone() for name, tensor in pair.model.state_dict().items()}
    measure(pair.model, corpus, pair.vocab, state="carry", num_rows=3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in pair.model.state_dict().items())
    assert all(parameter.grad is None for parameter in pair.model.parameters())


def test_a_vocabulary_of_another_model_is_rejected(pair: Pair, corpus: Corpus) -> None:
    with pytest.raises(InputError, match=r"4 words, but the model predicts 18; use the vocab.txt"):
        measure(pair.model, corpus, Vocab(["<S>", "</S>", "<UNK>", "a"]))


def test_a_text_prepared_for_another_word_length_is_rejected(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"prepared with 12 characters per word, but the model reads 50"):
        measure(pair.model, write_corpus(tmp_path, max_chars=12), pair.vocab)


def test_impossible_numbers_are_rejected(pair: Pair, corpus: Corpus) -> None:
    with pytest.raises(InputError, match="num_rows is 0"):
        measure(pair.model, corpus, pair.vocab, num_rows=0)
    with pytest.raises(InputError, match="max_tokens is 0"):
        measure(pair.model, corpus, pair.vocab, max_tokens=0)
    with pytest.raises(InputError, match="state 'cold'"):
        measure(pair.model, corpus, pair.vocab, state="cold")
