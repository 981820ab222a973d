"""How likely every word of a sentence is, seen from each side, and which words are likeliest in its place.

Forward, a word is predicted from those before it; backward, from those after it. The words are those of the model's
vocabulary; any other is predicted as ``<UNK>``. All log-probabilities are natural ones, over the whole vocabulary.

Shapes: T tokens of a sentence, M steps of a batch's sentences (T + 1 each), V words of the vocabulary, K candidates.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.embed.state import StartStates
from elmokit.errors import ElmokitWarning, InputError
from elmokit.model.bilm import BiLMState
from elmokit.model.language_model import LanguageModel
from elmokit.score.contexts import WINDOW_WORDS, Contexts, Sentences, read_contexts
from elmokit.score.perplexity import exp_or_inf
from elmokit.score.saved_lm import check_belongs, load_language_model
from elmokit.text.chars import BOS_WORD, EOS_WORD, CutWords, encode_words
from elmokit.text.tokens import tokenize
from elmokit.text.vocab import Vocab
from elmokit.weights.bundled import EN_SMALL

LogProbs = NDArray[np.float32]
Result = TypeVar("Result")

BATCH_SIZE = 64
PIECE_BYTES = 32 * 2**20  # of log-probabilities at once, where the likeliest words are looked for


@dataclass(frozen=True, eq=False)
class SentenceScore:
    """How likely a sentence is, token by token, in nats."""

    tokens: tuple[str, ...]
    forward_logprobs: LogProbs
    """Of each token after those before it, (T,)."""
    backward_logprobs: LogProbs
    """Of each token before those after it, (T,)."""
    end_logprob: float
    """Forward: that the sentence ends where it does."""
    start_logprob: float
    """Backward: that it starts where it does."""
    unknown: NDArray[np.bool_]
    """Tokens that the vocabulary lacks, (T,); their score is that of ``<UNK>``."""

    @property
    def forward_total(self) -> float:
        """The sentence's log-probability read from the left, its end included."""
        return float(self.forward_logprobs.sum(dtype=np.float64)) + self.end_logprob

    @property
    def backward_total(self) -> float:
        """The sentence's log-probability read from the right, its start included."""
        return float(self.backward_logprobs.sum(dtype=np.float64)) + self.start_logprob

    @property
    def forward_perplexity(self) -> float:
        """Of T tokens and the end."""
        return exp_or_inf(-self.forward_total / (len(self.tokens) + 1))

    @property
    def backward_perplexity(self) -> float:
        """Of T tokens and the start."""
        return exp_or_inf(-self.backward_total / (len(self.tokens) + 1))

    @property
    def perplexity(self) -> float:
        """Of both directions together: their geometric mean."""
        return math.sqrt(self.forward_perplexity * self.backward_perplexity)


@dataclass(frozen=True)
class Candidate:
    """A word that could stand in a place."""

    word: str
    logprob: float


@dataclass(frozen=True)
class Place:
    """A token of a sentence, and the words that are likeliest in its stead, best first."""

    token: str
    forward: tuple[Candidate, ...]
    """Given what stands before it."""
    backward: tuple[Candidate, ...]
    """Given what stands after it."""
    both: tuple[Candidate, ...]
    """By the product of the two, scaled to add up to one over the vocabulary."""


class Scorer:
    """A language model that scores sentences.

    A sentence is a list of tokens, taken as they are, or a string, which is tokenised by the rules of ``language``. Its
    score depends on it alone.
    Under ``state="warm"`` (the default) it begins from the state that the LSTMs settle into on running text, under
    ``"reset"`` from zero, which training has hardly seen: its words are then less likely.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocab: Vocab,
        *,
        state: Literal["reset", "warm"] = "warm",
        warm: BiLMState | None = None,
        device: torch.device | str = "cpu",
        language: str = "en",
    ) -> None:
        check_belongs(model, vocab)
        if state not in ("reset", "warm"):
            raise InputError(
                f"state {state!r}; expected 'reset' or 'warm': a score that depends on the sentences before it is of "
                "no use. The perplexity of running text can be measured with 'carry'"
            )
        self.model = model.to(device).eval()
        self.model.bilm.pack_weights()
        self.vocab = vocab
        self.language = language
        self._states = StartStates(state, warm=warm)
        self._cut_words = CutWords(max_chars=model.bilm.config.char_encoder.max_chars)
        self._warned = False

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path = EN_SMALL,
        *,
        state: Literal["reset", "warm"] = "warm",
        device: torch.device | str = "cpu",
        language: str = "en",
    ) -> "Scorer":
        """Load a folder that has an output layer; the English model of elmokit itself, unless another is named."""
        loaded = load_language_model(folder)
        return cls(loaded.model, loaded.vocab, state=state, warm=loaded.start_state, device=device, language=language)

    def score(self, sentences: Iterable[str | Sequence[str]]) -> list[SentenceScore]:
        """Return every sentence's score."""
        return list(self.iter_scores(sentences))

    def iter_scores(self, sentences: Iterable[str | Sequence[str]]) -> Iterator[SentenceScore]:
        """Yield what `score` returns, in the sentences' order, reading them as it goes."""
        for window in _windows(sentences, self.language):
            scores: dict[int, SentenceScore] = {}
            for batch in self._contexts(window):
                forward_M = -self._surprises(batch.forward_MP, batch.forward_targets_M)
                backward_M = -self._surprises(batch.backward_MP, batch.backward_targets_M)
                for index, steps in _steps_of(batch):
                    scores[index] = self._score(window[index], forward_M[steps], backward_M[steps])
            yield from _in_order(scores)
        self._warn_of_cut_words()

    def predict(self, sentences: Iterable[str | Sequence[str]], *, top_k: int = 5) -> list[list[Place]]:
        """Return for every token of every sentence the ``top_k`` likeliest words in its place."""
        return list(self.iter_predictions(sentences, top_k=top_k))

    def iter_predictions(self, sentences: Iterable[str | Sequence[str]], *, top_k: int = 5) -> Iterator[list[Place]]:
        """Yield what `predict` returns, in the sentences' order, reading them as it goes."""
        if not 1 <= top_k <= len(self.vocab):
            raise InputError(f"top_k is {top_k}; the model predicts {len(self.vocab):,} words, choose from 1 to that")
        for window in _windows(sentences, self.language):
            predictions: dict[int, list[Place]] = {}
            for batch in self._contexts(window):
                for index, steps in _steps_of(batch):
                    # The last step forward is the end, the first one backward the start: neither is a token's.
                    forward_TP, backward_TP = batch.forward_MP[steps][:-1], batch.backward_MP[steps][1:]
                    predictions[index] = self._places(window[index], forward_TP, backward_TP, top_k)
            yield from _in_order(predictions)
        self._warn_of_cut_words()

    def _contexts(self, window: list[tuple[str, ...]]) -> Iterator[Contexts]:
        distinct: dict[str, int] = {}
        words = [
            np.array([distinct.setdefault(word, len(distinct)) for word in (BOS_WORD, *tokens, EOS_WORD)])
            for tokens in window
        ]
        self._cut_words.add(distinct.keys())
        encoded = encode_words(list(distinct), max_chars=self._cut_words.max_chars)
        target_ids_W = np.array([self.vocab.id(word) for word in distinct])
        sentences = Sentences(encoded.char_ids_WC, target_ids_W, words)
        return read_contexts(self.model.bilm, sentences, self._states, batch_size=BATCH_SIZE, executor=None)

    def _surprises(self, hidden_MP: Tensor, targets_M: Tensor) -> LogProbs:
        surprises: LogProbs = self.model.softmax.negative_log_probs(hidden_MP, targets_M).cpu().numpy()
        return surprises

    def _score(self, tokens: tuple[str, ...], forward: LogProbs, backward: LogProbs) -> SentenceScore:
        return SentenceScore(
            tokens=tokens,
            # Copies, so that one kept sentence does not keep its whole batch in memory.
            forward_logprobs=forward[:-1].copy(),
            backward_logprobs=backward[1:].copy(),
            end_logprob=float(forward[-1]),
            start_logprob=float(backward[0]),
            unknown=np.array([self.vocab.id(token) == self.vocab.unk_id for token in tokens], dtype=np.bool_),
        )

    @torch.no_grad()
    def _places(self, tokens: tuple[str, ...], forward_TP: Tensor, backward_TP: Tensor, top_k: int) -> list[Place]:
        softmax = self.model.softmax
        places: list[Place] = []
        at_once = max(1, PIECE_BYTES // (3 * 4 * len(self.vocab)))
        for first in range(0, len(tokens), at_once):
            piece = slice(first, first + at_once)
            forward_TV, backward_TV = (
                torch.addmm(softmax.bias, hidden_TP[piece], softmax.weight.t()).log_softmax(dim=1)
                for hidden_TP in (forward_TP, backward_TP)
            )
            both_TV = (forward_TV + backward_TV).log_softmax(dim=1)
            ranked = [self._likeliest(logprobs_TV, top_k) for logprobs_TV in (forward_TV, backward_TV, both_TV)]
            places += [Place(token, *found) for token, *found in zip(tokens[piece], *ranked, strict=True)]
        return places

    def _likeliest(self, logprobs_TV: Tensor, top_k: int) -> list[tuple[Candidate, ...]]:
        values_TK, ids_TK = logprobs_TV.topk(top_k, dim=1)
        return [
            tuple(Candidate(self.vocab.words[id_], value) for id_, value in zip(ids, values, strict=True))
            for ids, values in zip(ids_TK.tolist(), values_TK.tolist(), strict=True)
        ]

    def _warn_of_cut_words(self) -> None:
        message = self._cut_words.message()
        if message and not self._warned:
            self._warned = True
            warnings.warn(message, ElmokitWarning, stacklevel=3)


def _windows(sentences: Iterable[str | Sequence[str]], language: str) -> Iterator[list[tuple[str, ...]]]:
    """Sentences as tokens, some ``WINDOW_WORDS`` words at a time."""
    if isinstance(sentences, str):
        raise InputError(f"{sentences[:40]!r} is one string; give a list of sentences, such as [{sentences[:40]!r}]")
    window: list[tuple[str, ...]] = []
    num_words = 0
    for sentence in sentences:
        tokens = tuple(tokenize(sentence, language=language) if isinstance(sentence, str) else sentence)
        for token in tokens:
            if not isinstance(token, str):
                raise InputError(f"a token is {token!r}, of type {type(token).__name__}; expected a string")
        window.append(tokens)
        num_words += len(tokens) + 1  # empty sentences fill a window too
        if num_words >= WINDOW_WORDS:
            yield window
            window, num_words = [], 0
    if window:
        yield window


def _steps_of(batch: Contexts) -> Iterator[tuple[int, slice]]:
    """Every sentence of a batch, and where its steps stand."""
    ends = np.cumsum(batch.num_steps).tolist()
    for index, end, count in zip(batch.indices, ends, batch.num_steps, strict=True):
        yield index, slice(end - count, end)


def _in_order(found: dict[int, Result]) -> Iterator[Result]:
    return (found[index] for index in sorted(found))
