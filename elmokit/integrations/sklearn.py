"""ELMo vectors as scikit-learn transformers.

An estimator holds plain settings. The model is loaded at the first ``fit`` or ``transform`` and shared by all
estimators of the process with the same settings; pickles and clones contain no weights.

Shapes: N texts, T tokens, D width.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer, Pooling, Vectors, check_layer, check_pooling
from elmokit.embed.sentences import Sentence
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.extras import require
from elmokit.integrations.loading import load_embedder
from elmokit.kernels.stack import Precision
from elmokit.text.checks import check_sentences
from elmokit.weights.source import Source

base = require("sklearn.base", extra="sklearn")


class ElmoVectorizer(base.TransformerMixin, base.BaseEstimator):  # type: ignore[name-defined, misc]
    """A transformer from texts to one vector per text.

    It takes a list, an array, a pandas Series or a frame with one column, and needs no training.

    Args:
        model: a model, as `elmokit.Embedder.from_pretrained` takes it.
        layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all.
        pooling: ``"mean"`` or ``"max"`` over the tokens of a text.
        normalize: scale vectors to length 1.
        batch_size: sentences that are run together at most.
        state: where the LSTMs start a sentence, ``"warm"`` or ``"reset"``.
        precision: ``"fp32"`` or ``"int8"``.
        language: the language of the texts, for the tokenizer.
    """

    def __init__(
        self,
        model: Source = "en-small",
        *,
        layer: Layer = "mean",
        pooling: Pooling = "mean",
        normalize: bool = False,
        batch_size: int = 64,
        state: State = "warm",
        precision: Precision = "fp32",
        language: str = "en",
    ) -> None:
        self.model = model
        self.layer = layer
        self.pooling = pooling
        self.normalize = normalize
        self.batch_size = batch_size
        self.state = state
        self.precision = precision
        self.language = language

    def fit(self, X: Any, y: Any = None) -> "ElmoVectorizer":
        """Check the settings and load the model; nothing is trained.

        Args:
            X: N texts.
            y: ignored, as scikit-learn's transformers do.
        """
        del y
        as_texts(X)
        check_layer(self.layer, _embedder(self).num_layers)
        check_pooling(self.pooling)
        return self

    def transform(self, X: Any) -> Vectors:
        """Return one vector per text, (N, D).

        Args:
            X: N texts.
        """
        return _embedder(self).encode(
            as_texts(X),
            layer=self.layer,
            pooling=self.pooling,
            normalize_embeddings=self.normalize,
            batch_size=self.batch_size,
        )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the D columns: elmo0, elmo1, ….

        Args:
            input_features: ignored; the names do not depend on the input.
        """
        del input_features
        return np.array([f"elmo{number}" for number in range(_embedder(self).width)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        return _text_tags(super().__sklearn_tags__())

    def __sklearn_is_fitted__(self) -> bool:
        return True


class ElmoTokenVectorizer(  # type: ignore[call-arg]
    base.TransformerMixin,  # type: ignore[name-defined, misc]
    base.BaseEstimator,  # type: ignore[name-defined, misc]
    auto_wrap_output_keys=None,
):
    """A transformer from sentences to one array of token vectors per sentence, for sequence models.

    A sentence is a list of tokens, taken as they are, or a string, which is tokenized.

    Args:
        model: a model, as `elmokit.Embedder.from_pretrained` takes it.
        layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all.
        batch_size: sentences that are run together at most.
        state: where the LSTMs start a sentence, ``"warm"`` or ``"reset"``.
        precision: ``"fp32"`` or ``"int8"``.
        language: the language of strings, for the tokenizer.
    """

    def __init__(
        self,
        model: Source = "en-small",
        *,
        layer: Layer = "mean",
        batch_size: int = 64,
        state: State = "warm",
        precision: Precision = "fp32",
        language: str = "en",
    ) -> None:
        self.model = model
        self.layer = layer
        self.batch_size = batch_size
        self.state = state
        self.precision = precision
        self.language = language

    def fit(self, X: Iterable[Sentence], y: Any = None) -> "ElmoTokenVectorizer":
        """Check the settings and load the model; nothing is trained.

        Args:
            X: N sentences.
            y: ignored, as scikit-learn's transformers do.
        """
        del y
        check_sentences(X)
        check_layer(self.layer, _embedder(self).num_layers)
        return self

    def transform(self, X: Iterable[Sentence]) -> list[Vectors]:
        """Return one array (T, D) per sentence.

        Args:
            X: N sentences.
        """
        return _embedder(self).embed_tokens(X, layer=self.layer, batch_size=self.batch_size)

    def __sklearn_tags__(self) -> Any:
        return _text_tags(super().__sklearn_tags__())

    def __sklearn_is_fitted__(self) -> bool:
        return True


def as_texts(X: Any) -> list[str]:
    """Return the texts of a list, an array, a Series or a frame with one column."""
    check_sentences(X)
    values = X.to_numpy() if hasattr(X, "to_numpy") else X
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise InputError(f"texts of shape {values.shape}; expected one column, choose it with a ColumnTransformer")
    texts = list(values)
    for number, text in enumerate(texts):
        if isinstance(text, Sequence) and len(text) == 1 and not isinstance(text, str):
            texts[number] = text = text[0]
        if not isinstance(text, str):
            raise InputError(
                f"row {number} is {text!r}, of type {type(text).__name__}; expected a text, fill gaps first"
            )
    return texts


def _embedder(settings: Any) -> Embedder:
    if settings.state == "carry":
        raise InputError("state is 'carry', under which a vector depends on other rows; use 'reset' or 'warm'")
    return load_embedder(settings.model, state=settings.state, precision=settings.precision, language=settings.language)


def _text_tags(tags: Any) -> Any:
    tags.input_tags.string, tags.input_tags.two_d_array, tags.requires_fit = True, False, False
    return tags
