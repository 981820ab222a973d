"""Sentence vectors from token vectors: frequent words count less, and what all texts share is removed.

The vector of a text is the mean of its tokens' vectors with the weights a / (a + p), where p is the probability of a
word in a text that the pooling was fitted to; minus the mean vector of that text's sentences; minus its projection on
their first principal components (Arora et al. 2017; Mu and Viswanath 2018).

Shapes: N sentences, T tokens, D width, K components.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.atomic import atomic_file
from elmokit.embed.picking import Layer, Vectors
from elmokit.embed.sentences import Sentence
from elmokit.errors import InputError
from elmokit.weights.npz import read_arrays

# Chosen on the dev set of the STS benchmark with en-small (results/en-small-evidence.md).
SMOOTHING = 1e-4
NUM_COMPONENTS = 40
MIN_SENTENCES = 100  # fewer do not tell what all texts share


class TokenEncoder(Protocol):
    """Source of token vectors, such as an `Embedder`."""

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of a text."""

    def iter_tokens(self, sentences: Iterable[Sentence], *, layer: Layer, batch_size: int) -> Iterator[Vectors]:
        """Yield the vectors of each sentence in order, (T, D)."""


@dataclass(frozen=True, eq=False)
class SentencePooling:
    """A pooling that was fitted to a model and a text.

    Args:
        layer: Layer of the token vectors, or ``"mean"`` of all.
        probabilities: Probability of each word in the text.
        mean_D: Mean vector of the text's sentences.
        components_KD: Directions to remove, orthonormal.
    """

    layer: Layer
    probabilities: Mapping[str, float]
    mean_D: NDArray[np.float64]
    components_KD: NDArray[np.float64]

    @classmethod
    def fit(
        cls,
        embedder: TokenEncoder,
        texts: Iterable[Sentence],
        *,
        layer: Layer = 0,
        num_components: int = NUM_COMPONENTS,
        progress: Callable[[int], None] = lambda _: None,
    ) -> "SentencePooling":
        """Fit a pooling to sentences of any text; a few thousand are enough.

        Args:
            embedder: The model whose vectors are pooled.
            texts: Sentences, as strings or lists of tokens, of the kind of text to encode or of any other.
            layer: A layer's number (0 is the token layer, which does best, and -1 the top), or ``"mean"`` of all.
            num_components: Number of principal components to remove.
            progress: Called with the number of sentences that were embedded so far.
        """
        sentences = [embedder.tokenize(text) if isinstance(text, str) else list(text) for text in texts]
        sentences = [tokens for tokens in sentences if tokens]
        probabilities = count_probabilities(sentences)
        pooled = []
        for tokens, vectors_TD in zip(
            sentences, embedder.iter_tokens(sentences, layer=layer, batch_size=64), strict=True
        ):
            pooled.append(weighted_mean(probabilities, tokens, vectors_TD))
            progress(len(pooled))
        return cls.from_means(layer, probabilities, pooled, num_components=num_components)

    @classmethod
    def from_means(
        cls,
        layer: Layer,
        probabilities: Mapping[str, float],
        pooled: Sequence[NDArray[np.float64]],
        *,
        num_components: int = NUM_COMPONENTS,
    ) -> "SentencePooling":
        """Return the pooling of sentences whose weighted means are known.

        Args:
            layer: Layer of the token vectors.
            probabilities: Probability of each word in the sentences.
            pooled: Weighted mean of each sentence, (D,).
            num_components: Number of principal components to remove.
        """
        if len(pooled) < (least := max(MIN_SENTENCES, num_components + 1)):
            raise InputError(f"{len(pooled)} sentences to fit a pooling to; expected {least} or more")
        pooled_ND = np.array(pooled)
        mean_D = pooled_ND.mean(axis=0)
        # Eigenvectors of the covariance, the largest eigenvalues first.
        _, vectors_DD = np.linalg.eigh(np.cov((pooled_ND - mean_D).T))
        return cls(layer, probabilities, mean_D, np.ascontiguousarray(vectors_DD[:, ::-1][:, :num_components].T))

    def pool(self, sentences: Sequence[Sequence[str]], vectors_TD: NDArray[np.floating[Any]]) -> Vectors:
        """Return the vector of a text, (D,); zeros if it has no token.

        Args:
            sentences: The tokens of each of the text's sentences.
            vectors_TD: The vectors of all tokens, of this pooling's layer.
        """
        tokens = [token for sentence in sentences for token in sentence]
        if not tokens:
            return np.zeros(len(self.mean_D), dtype=np.float32)
        if vectors_TD.shape[1] != len(self.mean_D):
            raise InputError(
                f"vectors of width {vectors_TD.shape[1]}, but the pooling was fitted to width {len(self.mean_D)}; fit "
                "it to this model"
            )
        vector_D = weighted_mean(self.probabilities, tokens, vectors_TD) - self.mean_D
        return (vector_D - self.components_KD.T @ (self.components_KD @ vector_D)).astype(np.float32)

    def save(self, path: str | Path) -> None:
        """Write the pooling to an ``.npz`` file."""
        with atomic_file(Path(path)) as part, part.open("wb") as file:
            np.savez_compressed(
                file,
                layer=np.array(str(self.layer)),
                words=np.array(list(self.probabilities)),
                probabilities=np.array(list(self.probabilities.values())),
                mean=self.mean_D,
                components=self.components_KD,
            )

    @classmethod
    def load(cls, path: str | Path) -> "SentencePooling":
        """Read a pooling that `save` wrote."""
        try:
            arrays = read_arrays(path, ("layer", "words", "probabilities", "mean", "components"))
            if arrays["mean"].ndim != 1 or arrays["components"].shape[1:] != arrays["mean"].shape:
                raise ValueError(f"a mean of shape {arrays['mean'].shape}, components {arrays['components'].shape}")
            layer = str(arrays["layer"])
            return cls(
                "mean" if layer == "mean" else int(layer),
                dict(zip(arrays["words"].tolist(), arrays["probabilities"].tolist(), strict=True)),
                arrays["mean"],
                arrays["components"],
            )
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: no saved pooling ({error}); expected a file of SentencePooling.save") from error


def count_probabilities(sentences: Iterable[Sequence[str]]) -> dict[str, float]:
    """Return the probability of each word."""
    counts = Counter(token for tokens in sentences for token in tokens)
    total = counts.total()
    return {word: count / total for word, count in counts.items()}


def weighted_mean(
    probabilities: Mapping[str, float], tokens: Sequence[str], vectors_TD: NDArray[np.floating[Any]]
) -> NDArray[np.float64]:
    """Return the mean of tokens in which frequent words count less, (D,)."""
    weights_T = np.array([SMOOTHING / (SMOOTHING + probabilities.get(token, 0.0)) for token in tokens])
    mean_D: NDArray[np.float64] = weights_T @ vectors_TD.astype(np.float64) / weights_T.sum()
    return mean_D
