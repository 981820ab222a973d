"""Log-probabilities of the tokens of a sentence in both directions, and the likeliest words in their places.

Forward, a token is predicted from the tokens before it; backward, from those after it. Out-of-vocabulary tokens are
predicted as ``<UNK>``. Log-probabilities are natural logarithms over the whole vocabulary, unless a name says log10.

Shapes: T tokens of a sentence, M steps of a batch's sentences (T + 1 each), V words of the vocabulary, K candidates.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from elmokit.embed.state import StartStates
from elmokit.errors import ElmokitWarning, InputError
from elmokit.model.bilm import BiLMState
from elmokit.model.directions import core_threads
from elmokit.model.language_model import LanguageModel
from elmokit.score.contexts import WINDOW_WORDS, Contexts, Sentences, read_contexts
from elmokit.score.results import Candidate, CandidateScore, Choice, LogProbs, Place, SentenceScore
from elmokit.score.saved_lm import check_belongs, load_language_model
from elmokit.text.checks import check_sentences, check_tokens
from elmokit.text.grouping import group_by_size
from elmokit.text.spelling import Dictionary, Spelling
from elmokit.text.tokens import tokenize
from elmokit.text.vocab import Vocab
from elmokit.weights.bundled import EN_SMALL

Result = TypeVar("Result")

BATCH_SIZE = 64
PIECE_BYTES = 32 * 2**20  # of log-probabilities at once, when the likeliest words are searched


class Scorer:
    """A language model that scores sentences.

    A sentence is a list of tokens, used as they are, or a string, which is tokenized. Its score depends on nothing
    else: not on the sentences before it, nor on the batch.

    Args:
        model: A biLM with its output layer.
        vocab: The model's vocabulary. Other words are scored as ``<UNK>``.
        state: The LSTMs' state at the start of a sentence. ``"warm"``: the state that they settle into on running
            text. ``"reset"``: zero, which training hardly ever meets, so that scores are lower.
        warm: The start state for ``"warm"``; computed if it is not given.
        device: The device to run on, such as ``"cuda"``.
        language: The language whose rules tokenize strings.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocab: Vocab,
        *,
        state: Literal["reset", "warm"] = "warm",
        warm: BiLMState | None = None,
        dictionary: Dictionary | None = None,
        device: torch.device | str = "cpu",
        language: str = "en",
    ) -> None:
        check_belongs(model, vocab)
        if state not in ("reset", "warm"):
            raise InputError(
                f"state {state!r}; expected 'reset' or 'warm': the score of a sentence must not depend on the "
                "sentences before it. To measure the perplexity of running text, 'carry' is possible too"
            )
        self.model = model.to(device).eval()
        self.model.bilm.pack_weights()
        self.vocab = vocab
        self.language = language
        self._states = StartStates(state, warm=warm, dictionary=dictionary)
        self._spelling = Spelling(model.bilm.config, dictionary)
        self._cut_words = self._spelling.count_cut_words()
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
        """Load a model folder that has an output layer.

        Args:
            folder: A folder that elmokit saved, or the name of a bundled model; the bundled English model by default.
            state: The LSTMs' state at the start of a sentence, ``"warm"`` or ``"reset"``.
            device: The device to run on, such as ``"cuda"``.
            language: The language whose rules tokenize strings.
        """
        loaded = load_language_model(folder)
        return cls(
            loaded.model,
            loaded.vocab,
            state=state,
            warm=loaded.start_state,
            dictionary=loaded.dictionary,
            device=device,
            language=language,
        )

    def score(self, sentences: Iterable[str | Sequence[str]]) -> list[SentenceScore]:
        """Return the scores of all sentences.

        Args:
            sentences: Lists of tokens, or strings, which are tokenized.
        """
        return list(self.iter_scores(sentences))

    def iter_scores(
        self, sentences: Iterable[str | Sequence[str]], *, window_words: int = WINDOW_WORDS
    ) -> Iterator[SentenceScore]:
        """Yield the scores of all sentences in order, while the sentences are read.

        Args:
            sentences: Lists of tokens, or strings, which are tokenized.
            window_words: The number of words read before the first score is yielded. A large window makes efficient
                batches. With 1, each sentence is answered before the next one is read.
        """
        for window in _windows(sentences, self.language, window_words):
            scores: dict[int, SentenceScore] = {}
            for batch in self._contexts(window):
                forward_M = -self._surprises(batch.forward_MP, batch.forward_targets_M)
                backward_M = -self._surprises(batch.backward_MP, batch.backward_targets_M)
                for index, steps in _steps_of(batch):
                    scores[index] = self._score(window[index], forward_M[steps], backward_M[steps])
            yield from _in_order(scores)
        self._warn_of_cut_words()

    def predict(self, sentences: Iterable[str | Sequence[str]], *, top_k: int = 5) -> list[list[Place]]:
        """Return the likeliest words in the place of every token, one list of places per sentence.

        Args:
            sentences: Lists of tokens, or strings, which are tokenized.
            top_k: The number of words per token.
        """
        return list(self.iter_predictions(sentences, top_k=top_k))

    def iter_predictions(
        self, sentences: Iterable[str | Sequence[str]], *, top_k: int = 5, window_words: int = WINDOW_WORDS
    ) -> Iterator[list[Place]]:
        """Yield the predictions of all sentences in order, while the sentences are read.

        Args:
            sentences: Lists of tokens, or strings, which are tokenized.
            top_k: The number of words per token.
            window_words: The number of words read before the first result is yielded, as in `iter_scores`.
        """
        if not 1 <= top_k <= len(self.vocab):
            raise InputError(f"top_k is {top_k}; expected 1 to {len(self.vocab):,}, the size of the vocabulary")
        for window in _windows(sentences, self.language, window_words):
            predictions: dict[int, list[Place]] = {}
            for batch in self._contexts(window):
                for index, steps in _steps_of(batch):
                    # Forward, the last step predicts the end; backward, the first one predicts the start.
                    forward_TP, backward_TP = batch.forward_MP[steps][:-1], batch.backward_MP[steps][1:]
                    predictions[index] = self._places(window[index], forward_TP, backward_TP, top_k)
            yield from _in_order(predictions)
        self._warn_of_cut_words()

    def iter_candidates(
        self, choices: Iterable[Choice], *, window_words: int = WINDOW_WORDS
    ) -> Iterator[list[CandidateScore]]:
        """Yield the scores of given words in given places, in order.

        The token that is replaced has no influence: forward reads what is before it, backward what is after it.

        Args:
            choices: Tokens of a sentence, the index of one of them, and the words to score in its place.
            window_words: The number of words read before the first result is yielded, as in `iter_scores`.
        """
        checked = (_check_choice(Choice(*choice)) for choice in choices)
        for window in group_by_size(checked, size_of=lambda one: len(one.tokens) + 1, enough=window_words):
            found: dict[int, list[CandidateScore]] = {}
            for batch in self._contexts([tuple(one.tokens) for one in window]):
                for index, steps in _steps_of(batch):
                    position = window[index].position
                    # Forward, step t predicts token t; backward, step t predicts token t - 1.
                    hidden_2P = torch.stack([batch.forward_MP[steps][position], batch.backward_MP[steps][position + 1]])
                    found[index] = self._score_candidates(hidden_2P, window[index].candidates)
            yield from _in_order(found)
        self._warn_of_cut_words()

    @torch.no_grad()
    def _score_candidates(self, hidden_2P: Tensor, words: Sequence[str]) -> list[CandidateScore]:
        softmax = self.model.softmax
        ids = [self.vocab.id(word) for word in words]
        logprobs_2V = torch.addmm(softmax.bias, hidden_2P, softmax.weight.t()).log_softmax(dim=1)
        forward, backward = logprobs_2V[:, ids].tolist()
        known = [id_ != self.vocab.unk_id for id_ in ids]
        return [CandidateScore(*one) for one in zip(words, forward, backward, known, strict=True)]

    def _contexts(self, window: list[tuple[str, ...]]) -> Iterator[Contexts]:
        begin, end = self._spelling.begin, self._spelling.end
        distinct: dict[str, int] = {}
        words = [
            np.array([distinct.setdefault(word, len(distinct)) for word in (begin, *tokens, end)]) for tokens in window
        ]
        self._cut_words.add(distinct.keys())
        encoded = self._spelling.encode(list(distinct))
        target_ids_W = np.array([self.vocab.id(word) for word in distinct])
        sentences = Sentences(encoded.char_ids_WC, target_ids_W, words)
        executor = core_threads(self.model.bilm.device)
        return read_contexts(self.model.bilm, sentences, self._states, batch_size=BATCH_SIZE, executor=executor)

    def _surprises(self, hidden_MP: Tensor, targets_M: Tensor) -> LogProbs:
        surprises: LogProbs = self.model.softmax.negative_log_probs(hidden_MP, targets_M).cpu().numpy()
        return surprises

    def _score(self, tokens: tuple[str, ...], forward: LogProbs, backward: LogProbs) -> SentenceScore:
        return SentenceScore(
            tokens=tokens,
            # Copies: a view would keep the whole batch in memory.
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
            ids_T = torch.tensor([self.vocab.id(token) for token in tokens[piece]], device=both_TV.device)
            own_T = both_TV.gather(1, ids_T[:, None])[:, 0].tolist()
            places += [Place(token, *found) for token, *found in zip(tokens[piece], *ranked, own_T, strict=True)]
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


def _check_choice(choice: Choice) -> Choice:
    if not 0 <= choice.position < len(check_tokens(choice.tokens)):
        raise InputError(
            f"position {choice.position} in a sentence of {len(choice.tokens)} tokens; expected one of them"
        )
    if isinstance(choice.candidates, str):
        raise InputError(f"candidates is {choice.candidates!r}, but must be a list of words")
    return choice


def _windows(
    sentences: Iterable[str | Sequence[str]], language: str, window_words: int
) -> Iterator[list[tuple[str, ...]]]:
    """Return an iterator over lists of tokenized sentences with about ``window_words`` words each."""
    if window_words < 1:
        raise InputError(f"window_words is {window_words}; expected 1 or more")
    tokenized = (
        tuple(tokenize(sentence, language=language)) if isinstance(sentence, str) else check_tokens(tuple(sentence))
        for sentence in check_sentences(sentences)
    )
    # Empty sentences fill a window too.
    return group_by_size(tokenized, size_of=lambda tokens: len(tokens) + 1, enough=window_words)


def _steps_of(batch: Contexts) -> Iterator[tuple[int, slice]]:
    """Yield the index of each sentence of a batch, and the slice of its steps."""
    ends = np.cumsum(batch.num_steps).tolist()
    for index, end, count in zip(batch.indices, ends, batch.num_steps, strict=True):
        yield index, slice(end - count, end)


def _in_order(found: dict[int, Result]) -> Iterator[Result]:
    return (found[index] for index in sorted(found))
