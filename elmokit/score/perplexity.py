"""Perplexity of a text, always over the whole vocabulary, never sampled.

``reset``, ``warm``  sentence by sentence, each from one fixed state; the result depends on text and model alone.
``carry``            rows of running text whose state is never reset, as the published models were evaluated. The
                     first steps are read once before they are scored, so that zero states cost nothing.

A sentence of n words has n + 1 targets per direction: its words and the boundary at its end. None is left out.
Out-of-vocabulary words are predicted as ``<UNK>``, which is easier, so texts with many of them have a perplexity that
is too low.

Shapes: R rows, U steps of a row in a batch, N = U R positions, time-major, W distinct words.
"""

import math
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed.state import StartStates, State
from elmokit.errors import InputError
from elmokit.model.bilm import BiLMState
from elmokit.model.directions import direction_threads, run_both
from elmokit.model.language_model import LanguageModel
from elmokit.model.lstm import LSTMStack, LSTMState, StackRun
from elmokit.runs.world import World, run_with_heartbeat, sum_over_ranks
from elmokit.score.contexts import WINDOW_WORDS, Sentences, read_contexts
from elmokit.score.saved_lm import check_belongs, dictionary_of
from elmokit.text.corpus import Corpus
from elmokit.text.corpus_inputs import CorpusInputs
from elmokit.text.grouping import windows
from elmokit.text.streams import Direction, RowBatch, read_rows_once
from elmokit.text.vocab import Vocab

NUM_ROWS = 256  # as the published models were evaluated
STEPS_AT_ONCE = 32  # per batch of rows that carry their state; changes no result
WARM_UP_STEPS = 160  # per row: zero states have an effect for 100 to 150


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of each direction: e to the mean negative log-probability of a target."""

    forward: float
    backward: float
    num_targets: int
    """Targets of one direction: words, and one boundary per sentence."""
    num_unknown: int
    """Out-of-vocabulary targets among them."""

    @property
    def arithmetic_mean(self) -> float:
        """Arithmetic mean of both directions: the paper's "average"."""
        return (self.forward + self.backward) / 2

    @property
    def geometric_mean(self) -> float:
        """Geometric mean of both directions, which bilm-tf's test prints."""
        return math.sqrt(self.forward * self.backward)

    @property
    def unknown_share(self) -> float:
        """Fraction of targets that are out of vocabulary."""
        return self.num_unknown / self.num_targets


def measure(
    model: LanguageModel,
    corpus: Corpus,
    vocab: Vocab,
    *,
    state: State = "warm",
    warm: BiLMState | None = None,
    max_tokens: int | None = None,
    num_rows: int = NUM_ROWS,
    warm_up: bool = True,
) -> Perplexity:
    """Measure the perplexity of a text, or of its first sentences with ``max_tokens`` words.

    ``warm`` is the model's start state for ``state="warm"``, computed if it is not given. ``num_rows`` is the number of
    sentences or streams that are read in parallel: the result of ``carry`` depends on it, otherwise only the speed.
    ``warm_up=False`` scores the first steps of ``carry`` from zero states, as bilm-tf does.
    """
    check_measurable(model, corpus, vocab, num_rows)
    corpus = first_sentences(corpus, max_tokens)
    device = model.softmax.bias.device
    with direction_threads(device) as executor:
        if state == "carry":
            return _measure_rows(model, corpus, vocab, num_rows, warm_up=warm_up, executor=executor)
        alone = World(0, 1, device)
        states = StartStates(state, warm=warm, dictionary=dictionary_of(model.bilm.config, vocab))
        return measure_sentences(model, corpus, vocab, states, num_rows, alone, executor)


# Sentence by sentence


def measure_sentences(
    model: LanguageModel,
    corpus: Corpus,
    vocab: Vocab,
    states: StartStates,
    num_rows: int,
    world: World,
    executor: Executor | None,
) -> Perplexity:
    """Measure perplexity sentence by sentence; every rank of ``world`` reads its share."""
    target_ids, inputs = corpus.target_ids(vocab).astype(np.int64), _inputs(model, corpus, vocab)

    def read_share() -> list[float]:
        forward = backward = 0.0
        num_targets = num_unknown = 0
        mine = np.arange(world.rank, corpus.num_sentences, world.size)
        for window in _windows(corpus, mine):
            sentences = _gather(corpus, window, target_ids, inputs)
            for batch in read_contexts(model.bilm, sentences, states, batch_size=num_rows, executor=executor):
                surprises = run_both(
                    executor,
                    model.softmax.negative_log_probs,
                    (batch.forward_MP, batch.forward_targets_M),
                    (batch.backward_MP, batch.backward_targets_M),
                )
                forward += float(surprises[0].sum(dtype=torch.double))
                backward += float(surprises[1].sum(dtype=torch.double))
                num_targets += len(batch.forward_targets_M)
                num_unknown += int((batch.forward_targets_M == vocab.unk_id).sum())
        return [forward, backward, num_targets, num_unknown]

    # A share can take minutes, and the ranks are not equally fast.
    sums = torch.tensor(run_with_heartbeat(read_share, world), dtype=torch.double, device=world.device)
    forward, backward, targets, unknown = sum_over_ranks(sums, world).tolist()
    return _perplexity(forward, backward, int(targets), int(unknown))


def _windows(corpus: Corpus, indices: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the sentences in order, about ``WINDOW_WORDS`` words at a time."""
    ends = np.cumsum(corpus.lengths[indices].astype(np.int64))
    window_of = (ends - 1) // WINDOW_WORDS
    cuts = np.flatnonzero(np.diff(window_of)) + 1
    return iter(np.split(indices, cuts)) if len(indices) else iter(())


def _gather(
    corpus: Corpus, indices: NDArray[np.int64], target_ids: NDArray[np.int64], inputs: CorpusInputs
) -> Sentences:
    bounded = [np.concatenate([[corpus.bos_id], corpus.sentence(index), [corpus.eos_id]]) for index in indices.tolist()]
    distinct_W, places = np.unique(np.concatenate(bounded), return_inverse=True)
    ends = np.cumsum([len(words) for words in bounded])
    words = np.split(places.reshape(-1).astype(np.int64), ends[:-1])
    return Sentences(inputs.ids(distinct_W), target_ids[distinct_W], words)


def _inputs(model: LanguageModel, corpus: Corpus, vocab: Vocab) -> CorpusInputs:
    return CorpusInputs(corpus, None if model.bilm.config.reads_bytes else vocab)


# Rows that carry their state


def _measure_rows(
    model: LanguageModel, corpus: Corpus, vocab: Vocab, num_rows: int, *, warm_up: bool, executor: Executor | None
) -> Perplexity:
    target_ids, inputs = corpus.target_ids(vocab).astype(np.int64), _inputs(model, corpus, vocab)

    def read(direction: Direction) -> tuple[float, int]:
        """Return the summed surprise of one direction, and its number of out-of-vocabulary targets."""
        stack = model.bilm.forward_lstm if direction == "forward" else model.bilm.backward_lstm
        state = stack.zero_state(num_rows)
        for batch in islice(_rows(corpus, direction, num_rows), WARM_UP_STEPS // STEPS_AT_ONCE if warm_up else 0):
            state = _run_rows(model, stack, inputs, batch, state).final
        total, num_unknown = 0.0, 0
        for batch in _rows(corpus, direction, num_rows):
            run = _run_rows(model, stack, inputs, batch, state)
            state = run.final
            real_N = torch.from_numpy(_by_time(batch.mask_RU)).to(state.hidden_LBP.device)
            targets_N = torch.from_numpy(target_ids[_by_time(batch.target_ids_RU)]).to(real_N.device)[real_N]
            surprise_N = model.softmax.negative_log_probs(run.outputs[-1][real_N], targets_N)
            total += float(surprise_N.sum(dtype=torch.double))
            num_unknown += int((targets_N == vocab.unk_id).sum())
        return total, num_unknown

    (forward, num_unknown), (backward, _) = run_both(executor, read, ("forward",), ("backward",))
    return _perplexity(forward, backward, corpus.num_targets, num_unknown)


def _rows(corpus: Corpus, direction: Direction, num_rows: int) -> Iterator[RowBatch]:
    """Yield the whole text in rows. A row takes the next sentence when it needs one, as in bilm-tf's test."""
    steps = read_rows_once(corpus, direction=direction, num_rows=num_rows, unroll_steps=1)
    for together in windows(steps, STEPS_AT_ONCE):
        yield RowBatch(
            input_ids_RU=np.concatenate([step.input_ids_RU for step in together], axis=1),
            target_ids_RU=np.concatenate([step.target_ids_RU for step in together], axis=1),
            mask_RU=np.concatenate([step.mask_RU for step in together], axis=1),
        )


@torch.no_grad()  # here, because the setting is per thread
def _run_rows(
    model: LanguageModel, stack: LSTMStack, inputs: CorpusInputs, batch: RowBatch, start: LSTMState
) -> StackRun:
    distinct_W, places_N = np.unique(_by_time(batch.input_ids_RU), return_inverse=True)
    device = start.hidden_LBP.device
    tokens_WP = model.bilm.encode_tokens(torch.from_numpy(inputs.ids(distinct_W)).to(device))
    num_rows, num_steps = batch.input_ids_RU.shape
    inputs_NP = tokens_WP[torch.from_numpy(places_N.reshape(-1)).to(device)]
    run: StackRun = stack(inputs_NP, [num_rows] * num_steps, start)
    return run


def _by_time(values_RU: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values_RU.T).reshape(-1)


# Both ways


def _perplexity(forward: float, backward: float, num_targets: int, num_unknown: int) -> Perplexity:
    means = forward / num_targets, backward / num_targets
    return Perplexity(exp_or_inf(means[0]), exp_or_inf(means[1]), num_targets, num_unknown)


def exp_or_inf(surprise: float) -> float:
    """Return e to the ``surprise``, or infinity if that is too large for a float, as after training has diverged."""
    try:
        return math.exp(surprise)
    except OverflowError:
        return math.inf


def first_sentences(corpus: Corpus, max_tokens: int | None) -> Corpus:
    """Return the text up to the last sentence that ends within ``max_tokens`` words, at least one sentence."""
    if max_tokens is None or corpus.num_tokens <= max_tokens:
        return corpus
    if max_tokens < 1:
        raise InputError(f"max_tokens is {max_tokens}; it must be 1 or more")
    num_sentences = max(1, int(np.searchsorted(corpus.offsets, max_tokens, side="right")) - 1)
    num_tokens = int(corpus.offsets[num_sentences])
    return replace(
        corpus,
        meta=corpus.meta.model_copy(update={"num_sentences": num_sentences, "num_tokens": num_tokens}),
        tokens=corpus.tokens[:num_tokens],
        lengths=corpus.lengths[:num_sentences],
        offsets=corpus.offsets[: num_sentences + 1],
    )


def check_measurable(model: LanguageModel, corpus: Corpus, vocab: Vocab, num_rows: int) -> None:
    """Check that model, prepared text and vocabulary belong together."""
    check_belongs(model, vocab)
    dictionary_of(model.bilm.config, vocab)  # raises for models that this does not support
    if num_rows < 1:
        raise InputError(f"num_rows is {num_rows}; it must be 1 or more")
    spelled, wanted = corpus.meta.settings.max_chars, model.bilm.config.char_encoder.max_chars
    if spelled != wanted:
        raise InputError(
            f"the text was prepared with {spelled} characters per word, but the model reads {wanted}; "
            f"prepare it again with max_chars={wanted}"
        )
