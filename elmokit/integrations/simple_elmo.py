"""A drop-in replacement for simple_elmo's model class: same names and arguments.

Change ``from simple_elmo import ElmoModel`` to ``from elmokit.integrations.simple_elmo import ElmoModel``.

Shapes: N texts, L layers, T tokens of the longest text, D width, X an axis of L layers, or no axis.
"""
# ruff: noqa: FBT001, FBT002 - positional flags are simple_elmo's signatures.

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layers, Vectors, pick_layers, pool_tokens
from elmokit.errors import ElmokitWarning, InputError
from elmokit.score.results import Candidate
from elmokit.score.scoring import Scorer
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import load_saved

Text = str | Sequence[str]
LayerChoice = Literal["average", "top", "all"]

LAYERS: dict[LayerChoice, Layers] = {"average": "mean", "top": -1, "all": "all"}
OPTIONS, WEIGHTS = "options.json", "model.hdf5"


class ElmoModel:
    """A model from a directory or a zip archive that returns padded arrays.

    A text is a list of tokens, or a string of tokens separated by white space. With ``warmup`` every text starts from
    the settled state of the LSTMs, without it from zero. Either way, a text's vectors depend on the text alone.
    """

    def __init__(self) -> None:
        self._saved: SavedBiLM | None = None
        self._embedders: dict[bool, Embedder] = {}
        self._scorer: Scorer | None = None
        self._max_batch_size = 0
        self._limit = 0
        self._warned = False

    def load(self, directory: str | Path, max_batch_size: int = 32, limit: int = 100, full: bool = False) -> None:
        """Load a model.

        Args:
            directory: A directory with ``options.json`` and ``model.hdf5``, or else the first ``*.hdf5``; or an archive
                or folder of any format that elmokit loads.
            max_batch_size: Texts per batch.
            limit: Maximum number of tokens; longer texts are cut, with a warning.
            full: Also load the output layer, which `get_elmo_substitutes` needs. A folder saved by elmokit can have
                one, and a TensorFlow checkpoint with its vocabulary; other published weights come without it.
        """
        if max_batch_size < 1 or limit < 1:
            raise InputError(f"max_batch_size is {max_batch_size}, limit is {limit}; expected 1 or more for both")
        path = Path(directory)
        self._saved = load_saved(path if path.is_file() else _source(path))
        self._embedders = {}
        self._scorer = Scorer.from_pretrained(path) if full else None
        self._max_batch_size, self._limit, self._warned = max_batch_size, limit, False

    @property
    def vector_size(self) -> int:
        """Width of a vector."""
        return self._embedder(warmup=True).width

    @property
    def n_layers(self) -> int:
        """Number of layers, the token layer included."""
        return self._embedder(warmup=True).num_layers

    @property
    def batch_size(self) -> int:
        """Texts per batch, as given to `load`."""
        return self._max_batch_size

    def get_elmo_vectors(
        self, texts: Sequence[Text], warmup: bool = True, layers: LayerChoice = "average", session: None = None
    ) -> Vectors:
        """Return the vectors of tokens, (N, T, D), or (N, L, T, D) for all layers; zeros on padding."""
        found = list(self._embed(texts, warmup, layers, session))
        num_tokens = max((vectors_XTD.shape[-2] for vectors_XTD in found), default=0)
        *kept, width = self._vector_shape(warmup, layers)
        padded_NXTD = np.zeros((len(found), *kept, num_tokens, width), dtype=np.float32)
        for row, vectors_XTD in enumerate(found):
            padded_NXTD[row, ..., : vectors_XTD.shape[-2], :] = vectors_XTD
        return padded_NXTD

    def get_elmo_vector_average(
        self, texts: Sequence[Text], warmup: bool = True, layers: LayerChoice = "average", session: None = None
    ) -> Vectors:
        """Return the mean of each text's tokens, scaled to length 1: (N, D), or (N, L, D) for all layers.

        A text without tokens gives zeros.
        """
        means = [pool_tokens(vectors, "mean") for vectors in self._embed(texts, warmup, layers, session)]
        means_NXD = np.array(means, dtype=np.float32).reshape(len(means), *self._vector_shape(warmup, layers))
        length_NX1 = np.linalg.norm(means_NXD, axis=-1, keepdims=True)
        means_NXD /= np.where(length_NX1 > 0, length_NX1, 1)
        return means_NXD

    def get_elmo_substitutes(
        self, raw_sentences: Sequence[Text], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[dict[str, Any]]]:
        """Return, for every word of every sentence, the ``topn`` likeliest words in its place, per direction.

        Each word is a dict of ``word``, ``forward`` and ``backward``. A direction has ``candidates`` (vocabulary ids),
        ``candidate_words`` and ``logp`` (log-probabilities; simple_elmo had logits under this name).
        """
        if self._scorer is None:
            raise InputError("no output layer is loaded; call load(folder, full=True) with a folder that has one")
        if not nodelimiters:
            raise InputError("nodelimiters is False; expected True: there are no substitutes for <S> and </S>")
        _check_texts(raw_sentences)
        sentences = self._cut(list(map(_split, raw_sentences)))
        found = self._scorer.predict(sentences, top_k=topn)
        return [
            [
                {"word": place.token, "forward": self._side(place.forward), "backward": self._side(place.backward)}
                for place in places
            ]
            for places in found
        ]

    def _side(self, candidates: Sequence[Candidate]) -> dict[str, Any]:
        assert self._scorer is not None
        return {
            "candidates": [self._scorer.vocab.id(candidate.word) for candidate in candidates],
            "candidate_words": [candidate.word for candidate in candidates],
            "logp": [candidate.logprob for candidate in candidates],
        }

    def _embed(self, texts: Sequence[Text], warmup: bool, layers: LayerChoice, session: None) -> Iterator[Vectors]:
        """Yield the chosen layers of each text, (L, T, D) or (T, D)."""
        if layers not in LAYERS:
            raise InputError(f"layers {layers!r}; expected 'average', 'top' or 'all'")
        if session is not None:
            raise InputError(f"session is a {type(session).__name__}; expected None, since elmokit has no sessions")
        _check_texts(texts)
        embedder = self._embedder(warmup)
        sentences = self._cut(list(map(_split, texts)))
        for layers_LTD in embedder.iter_layers(sentences, batch_size=self._max_batch_size):
            yield pick_layers(layers_LTD, LAYERS[layers])

    def _embedder(self, warmup: bool) -> Embedder:
        if self._saved is None:
            raise InputError("no model is loaded; call load(directory_or_zip) first")
        if warmup not in self._embedders:
            # Both embedders share their tensors.
            self._embedders[warmup] = Embedder.from_saved(self._saved, state="warm" if warmup else "reset")
        return self._embedders[warmup]

    def _vector_shape(self, warmup: bool, layers: LayerChoice) -> tuple[int, ...]:
        """Return the shape of one token's vectors: (L, D) or (D,)."""
        embedder = self._embedder(warmup)
        return (embedder.num_layers, embedder.width) if layers == "all" else (embedder.width,)

    def _cut(self, sentences: list[Sequence[str]]) -> list[Sequence[str]]:
        num_cut = sum(len(sentence) > self._limit for sentence in sentences)
        if num_cut and not self._warned:
            self._warned = True
            warnings.warn(
                f"{num_cut:,} of {len(sentences):,} texts are longer than {self._limit} tokens and were cut; "
                "load the model with a larger limit to embed them whole",
                ElmokitWarning,
                stacklevel=4,
            )
        return [sentence[: self._limit] for sentence in sentences]


def _source(folder: Path) -> Path | tuple[Path, Path]:
    """Return the options with ``model.hdf5``, or else the first ``*.hdf5``, as simple_elmo did; or else the folder."""
    weights = sorted(folder.glob("*.hdf5"), key=lambda path: (path.name != WEIGHTS, path.name))
    if not weights or not (folder / OPTIONS).is_file():
        return folder
    return folder / OPTIONS, weights[0]


def _check_texts(texts: Sequence[Text]) -> None:
    if isinstance(texts, str):
        raise InputError(f"texts is the string {texts[:40]!r}; expected a list of texts, such as [{texts[:40]!r}]")
    if not isinstance(texts, Iterable):
        raise InputError(f"texts is {texts!r}; expected a list of texts, each a string or a list of tokens")


def _split(text: Text) -> Sequence[str]:
    if not isinstance(text, Iterable):
        raise InputError(f"a text is {text!r}; expected a string or a list of tokens")
    return text.split() if isinstance(text, str) else text
