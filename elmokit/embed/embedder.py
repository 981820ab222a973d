"""Give every token of a sentence its vectors, from all layers of a biLM.

Shapes: L layers of vectors (the token layer, then the LSTMs'), T tokens, D width, N positions of a batch's
sentences one after the other, W distinct words.
"""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from elmokit.embed.engine import Engine, Precision
from elmokit.embed.picking import Layer, Pooling, Vectors, check_layer, check_pooling, pick_layers, pool_tokens
from elmokit.embed.state import StartStates, State
from elmokit.errors import ElmokitWarning, InputError
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.text.grouping import batches_by_length, windows
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import tokenize
from elmokit.weights.bundled import EN_SMALL
from elmokit.weights.source import Source, build_bilm, load_saved
from elmokit.weights.start_state import stored_state

Sentence = str | Sequence[str]

# Sentences looked at together to find batches of like length: so many, or fewer whose vectors take so much memory.
WINDOW, WINDOW_BYTES = 4096, 96 * 2**20
MOST_POSITIONS = 4096  # in one batch: bounds memory whatever the sentences' length


class Embedder:
    """A biLM that turns sentences into arrays.

    A sentence is a list of tokens, taken as they are, or a string, which is tokenised.
    Under ``state="warm"`` (the default) and ``"reset"`` a token's vectors depend on its sentence alone.
    """

    def __init__(
        self,
        bilm: BiLM,
        *,
        state: State = "warm",
        precision: Precision = "fp32",
        language: str = "en",
        warm: BiLMState | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = _device(device)
        self.language = language
        self._engine = Engine(bilm.to(self.device), precision=precision)
        self.bilm = self._engine.bilm
        self._states = StartStates(state, warm=warm)
        self._warned = False

    @classmethod
    def from_pretrained(
        cls,
        source: Source = EN_SMALL,
        *,
        state: State = "warm",
        precision: Precision = "fp32",
        language: str = "en",
        device: torch.device | str = "cpu",
    ) -> "Embedder":
        """Load a saved biLM; the English one that comes with elmokit, unless another is named.

        ``source`` is a folder of ours, a folder with ``options.json`` and one ``.hdf5``, or a pair of paths
        (options, weights) of a published model. ``precision="int8"`` rounds the LSTMs' weights to eight bits: faster
        on a CPU with compiled kernels, and nearly the same vectors. ``language`` is that of raw strings, which are
        tokenised by its rules.
        """
        saved = load_saved(source)
        return cls(
            build_bilm(saved),
            state=state,
            precision=precision,
            language=language,
            warm=stored_state(saved),
            device=device,
        )

    @property
    def num_layers(self) -> int:
        """Layers of vectors a token has."""
        return self.bilm.config.num_layers

    @property
    def width(self) -> int:
        """Width of a vector."""
        return self.bilm.config.width

    @property
    def state(self) -> State:
        """The policy for the state in which a sentence begins."""
        return self._states.policy

    @property
    def num_cut_words(self) -> int:
        """Words so far that were longer than the model reads, and so lost their end."""
        return self._engine.cut_words.num_cut

    @property
    def carried_state(self) -> BiLMState | None:
        """The state that ``state="carry"`` has reached, to go on from later; None at the beginning."""
        return self._states.carried

    @carried_state.setter
    def carried_state(self, state: BiLMState | None) -> None:
        self._states.carried = state

    def fingerprint(self) -> str:
        """A hash of all that vectors depend on besides their sentence: config, weights and start state."""
        settings = f"{self.bilm.config.model_dump_json()} {self.state} {self._engine.precision}"
        digest = hashlib.sha256(settings.encode())
        start = self._states.begin(self.bilm, 1).parts() if self.state == "warm" else {}
        for name, tensor in sorted({**self.bilm.state_dict(), **start}.items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def tokenize(self, sentence: str) -> list[str]:
        """The tokens that a raw sentence is embedded as."""
        return tokenize(sentence, language=self.language)

    def forget_words(self) -> None:
        """Forget the token vectors kept from earlier calls; they are computed again when they are needed."""
        self._engine.cache.clear()

    def reset_state(self) -> None:
        """Forget the state carried from batch to batch; it changes nothing unless ``state="carry"``."""
        self._states.reset()

    def embed_layers(self, sentences: Iterable[Sentence], *, batch_size: int = 64) -> list[Vectors]:
        """Return for every sentence an array (layers, tokens, width), unpadded, without boundary tokens."""
        return list(self.iter_layers(sentences, batch_size=batch_size))

    def iter_layers(self, sentences: Iterable[Sentence], *, batch_size: int = 64) -> Iterator[Vectors]:
        """Yield what `embed_layers` returns, in the sentences' order, reading them as it goes."""
        if isinstance(sentences, str):
            raise InputError(
                f"{sentences[:40]!r} is one string; give a list of sentences, such as [{sentences[:40]!r}]"
            )
        if batch_size < 1:
            raise InputError(f"batch_size {batch_size}; expected 1 or more")
        # Rows that carry their state must meet in the order given; all others are batched by length.
        tokenized = map(self._as_tokens, sentences)
        num_tokens = WINDOW_BYTES // (4 * self.num_layers * self.width)
        for window in (
            windows(tokenized, batch_size) if self.state == "carry" else _windows_by_size(tokenized, num_tokens)
        ):
            yield from self._embed_window(window, batch_size)
        self._warn_of_cut_words()

    def iter_unordered(self, sentences: Sequence[Sentence], *, batch_size: int = 64) -> Iterator[tuple[int, Vectors]]:
        """Yield (index, layers) of sentences as they are computed: batch by batch of like length."""
        for index, layers_LTD in self._iter_views([self._as_tokens(sentence) for sentence in sentences], batch_size):
            yield index, layers_LTD.copy()  # so that one kept sentence does not keep its whole batch in memory

    def _iter_views(self, sentences: Sequence[Sequence[str]], batch_size: int) -> Iterator[tuple[int, Vectors]]:
        if self.state == "carry":
            # Rows that carry their state must meet in the order given.
            batches = list(windows(range(len(sentences)), batch_size))
        else:
            lengths = [len(sentence) + 2 for sentence in sentences]
            batches = batches_by_length(lengths, batch_size=batch_size, max_positions=MOST_POSITIONS)
        for batch in batches:
            yield from zip(batch, self._embed_batch([sentences[index] for index in batch]), strict=True)

    def embed_tokens(
        self, sentences: Iterable[Sentence], *, layer: Layer = "mean", batch_size: int = 64
    ) -> list[Vectors]:
        """Return for every sentence an array (tokens, width): one layer, or the mean of all."""
        check_layer(layer, self.num_layers)
        found = self.iter_layers(sentences, batch_size=batch_size)
        return [pick_layers(layers_LTD, layer) for layers_LTD in found]

    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        batch_size: int = 64,
        show_progress_bar: bool = False,
        normalize_embeddings: bool = False,
        pooling: Pooling = "mean",
        layer: Layer = "mean",
    ) -> Vectors:
        """Return one vector a text, (texts, width): the mean or maximum over its tokens.

        A string may hold several sentences: each is run by itself, and all their tokens are pooled. A string on
        its own gives one vector, (width,). A text without tokens gives zeros.
        """
        if isinstance(sentences, str):
            alone_D: Vectors = self.encode(
                [sentences],
                batch_size=batch_size,
                show_progress_bar=show_progress_bar,
                normalize_embeddings=normalize_embeddings,
                pooling=pooling,
                layer=layer,
            )[0]
            return alone_D
        check_pooling(pooling)
        check_layer(layer, self.num_layers)
        texts = [self._as_sentences(text) for text in sentences]
        found = self.iter_layers((sentence for text in texts for sentence in text), batch_size=batch_size)
        pooled_ND = np.zeros((len(texts), self.width), dtype=np.float32)
        for row, text in enumerate(_progress(texts) if show_progress_bar else texts):
            tokens = [pick_layers(next(found), layer) for _ in text]
            if tokens:
                pooled_ND[row] = pool_tokens(np.concatenate(tokens), pooling)
        self._warn_of_cut_words()
        if normalize_embeddings:
            length_N1 = np.linalg.norm(pooled_ND, axis=1, keepdims=True)
            pooled_ND /= np.where(length_N1 > 0, length_N1, 1)
        return pooled_ND

    def _embed_window(self, window: list[Sequence[str]], batch_size: int) -> Iterator[Vectors]:
        # One block for the whole window: thousands of arrays that come and go between a batch's own would leave
        # holes in memory, and it would grow.
        ends = np.cumsum([len(sentence) for sentence in window])
        layers_LND = np.empty((self.num_layers, ends[-1], self.width), dtype=np.float32)
        places = [slice(end - len(sentence), end) for end, sentence in zip(ends, window, strict=True)]
        for index, layers_LTD in self._iter_views(window, batch_size):
            layers_LND[:, places[index]] = layers_LTD
        for place in places:
            yield layers_LND[:, place].copy()

    def _embed_batch(self, batch: list[Sequence[str]]) -> list[Vectors]:
        run = self._engine.run(batch, self._states.begin(self.bilm, len(batch)))
        self._states.end(run.ragged.final)
        layers_LND = run.ragged.layers_LND.cpu().numpy()
        ends = np.cumsum(run.lengths)
        return [layers_LND[:, end - length + 1 : end - 1] for end, length in zip(ends, run.lengths, strict=True)]

    def _as_tokens(self, sentence: Sentence) -> Sequence[str]:
        return self.tokenize(sentence) if isinstance(sentence, str) else _check_tokens(sentence)

    def _as_sentences(self, text: Sentence) -> list[Sentence]:
        return list(split_sentences(text, language=self.language)) if isinstance(text, str) else [text]

    def _warn_of_cut_words(self) -> None:
        message = self._engine.cut_words.message()
        if message and not self._warned:
            self._warned = True
            warnings.warn(message, ElmokitWarning, stacklevel=3)


def _device(name: torch.device | str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device {name!r}; expected 'cpu', or 'cuda' for a GPU") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {str(device)!r}, but torch sees no GPU here; use 'cpu'")
    return device


def _windows_by_size(sentences: Iterable[Sequence[str]], most_tokens: int) -> Iterator[list[Sequence[str]]]:
    window: list[Sequence[str]] = []
    num_tokens = 0
    for sentence in sentences:
        window.append(sentence)
        num_tokens += len(sentence)
        if len(window) == WINDOW or num_tokens >= most_tokens:
            yield window
            window, num_tokens = [], 0
    if window:
        yield window


def _check_tokens(sentence: Sequence[str]) -> Sequence[str]:
    for token in sentence:
        if not isinstance(token, str):
            raise InputError(f"a token is {token!r}, of type {type(token).__name__}; expected a string")
    return sentence


def _progress(texts: list[list[Sentence]]) -> Iterable[list[Sentence]]:
    from rich.console import Console
    from rich.progress import track

    return track(texts, description="embedding", console=Console(stderr=True))
