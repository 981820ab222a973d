"""Run a biLM over tokenized sentences as fast as the machine can.

The token layer is computed once per word, the LSTMs do no work on padding, and each direction has a core of its own.

Shapes: W distinct words, F filters, P width of a token vector, N positions of all sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.embed.token_cache import TokenCache
from elmokit.errors import InputError
from elmokit.kernels.library import load
from elmokit.kernels.stack import PRECISIONS, Precision
from elmokit.model.bilm import BiLM, BiLMState, RaggedLayers
from elmokit.model.directions import DirectionThreads
from elmokit.text.spelling import Dictionary, Spelling

WORDS_AT_ONCE = 512  # by one thread: enough for a good product, and memory does not depend on the batch
WORTH_TWO_THREADS = 16  # words
WORDS_IN_STEP = 16


@dataclass(frozen=True)
class EngineRun:
    """The result of one batch."""

    ragged: RaggedLayers
    lengths: list[int]  # positions of every sentence, boundaries included


class Engine:
    """A biLM made ready for use. It shares the weights of the one given, which must not be trained any more."""

    def __init__(self, bilm: BiLM, *, precision: Precision, dictionary: Dictionary | None = None) -> None:
        if precision not in PRECISIONS:
            raise InputError(f"precision {precision!r}; expected 'fp32', 'int8' or 'bf16'")
        self.device = bilm.device
        if precision != "fp32" and self.device.type != "cpu":
            raise InputError(f"precision {precision!r} on {self.device}; it is made for the CPU, use 'fp32' there")
        kernels = load()
        if precision == "bf16" and (kernels is None or not kernels.has_bf16):
            raise InputError("precision 'bf16', but there are no kernels for a CPU with AVX512_BF16 here; use 'int8'")
        self.bilm = bilm.view()
        self.bilm.pack_weights(precision)
        self.precision = precision
        self.spelling = Spelling(bilm.config, dictionary)
        self.cut_words = self.spelling.count_cut_words()
        self.cache = TokenCache(bilm.config.lstm.proj_dim, device=self.device, key_of=self.spelling.key_of)
        self._threads = DirectionThreads(self.device)

    def run(self, sentences: Sequence[Sequence[str]], start: BiLMState) -> EngineRun:
        """Run tokenized sentences with their boundaries."""
        num_values = self.bilm.config.width * sum(len(sentence) + 2 for sentence in sentences)
        return self._threads.call_on_one_core(self._run, sentences, start, num_values=num_values)

    @torch.inference_mode()
    def _run(self, sentences: Sequence[Sequence[str]], start: BiLMState) -> EngineRun:
        bounded = [[self.spelling.begin, *sentence, self.spelling.end] for sentence in sentences]
        distinct: dict[str, int] = {}
        places = [distinct.setdefault(word, len(distinct)) for sentence in bounded for word in sentence]
        self.cut_words.add(distinct)
        vectors_WP = self.cache.look_up(list(distinct), self._encode)
        tokens_NP = vectors_WP[torch.tensor(places, device=self.device)]
        lengths = [len(sentence) for sentence in bounded]
        return EngineRun(self.bilm.run(tokens_NP, lengths, start, executor=self._threads.executor), lengths)

    def _encode(self, words: list[str]) -> Tensor:
        if len(words) < WORTH_TWO_THREADS:
            return self._encode_part(words)
        size = min(WORDS_AT_ONCE, -(-len(words) // 2))
        parts = [words[first : first + size] for first in range(0, len(words), size)]
        executor = self._threads.executor
        return torch.cat(list((map if executor is None else executor.map)(self._encode_part, parts)))

    @torch.inference_mode()
    def _encode_part(self, words: list[str]) -> Tensor:
        # Filled up, so that torch squashes every word's values in whole registers: what is left over at the end is
        # rounded in another way, and a word must not depend on its place.
        filled = [*words, *[""] * (-len(words) % WORDS_IN_STEP)]
        char_ids_WC = torch.from_numpy(self.spelling.encode(filled).char_ids_WC).to(self.device)
        vectors_WP = self.bilm.encode_tokens(char_ids_WC)
        return vectors_WP[: len(words)]


def find_device(name: torch.device | str) -> torch.device:
    """Return the device of a name; reject one that torch does not have here."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device {name!r}; expected 'cpu', or 'cuda' for a GPU") from None
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError):  # each kind of device fails in its own way
        raise InputError(f"device {str(device)!r}, but torch sees no such device here; use 'cpu'") from None
    return device
