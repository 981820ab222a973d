"""ELMo in spaCy: a pipeline component, and a frozen ``Tok2Vec`` architecture that other components train on.

``nlp.add_pipe("elmo")`` finds the component by its entry point. It reads spaCy's tokens as they are, sentence by
sentence where the document has sentences. White-space tokens have zeros.

Shapes: L layers, T tokens, D width.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layer, Vectors, check_layer, pick_layers
from elmokit.embed.pickling import PickledEmbedder
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.extras import require
from elmokit.integrations.loading import load_embedder

language = require("spacy.language", extra="spacy")
tokens = require("spacy.tokens", extra="spacy")
registry = require("spacy.util", extra="spacy").registry
minibatch = require("spacy.util", extra="spacy").minibatch
srsly = require("srsly", extra="spacy")
thinc_model = require("thinc.model", extra="spacy").Model

EXTENSION = "elmo_layers"
FOLDER = "bilm"


class ElmoPipe:
    """A component that sets ``doc.tensor``, the vectors of documents, spans and tokens, and ``doc._.elmo_layers``.

    Args:
        model: a model, as `elmokit.Embedder.from_pretrained` takes it; loaded at first use.
        layers: layer of ``doc.tensor``: a number (0 is the token layer, -1 the top), or ``"mean"`` of all.
        state: where the LSTMs start a sentence, ``"warm"`` or ``"reset"``.
        batch_size: sentences that are run together at most.
        store_layers: set ``doc._.elmo_layers``, float32 of shape (L, T, D).
        name: name of the component in the pipeline.
    """

    def __init__(
        self,
        model: str = "en-small",
        *,
        layers: Layer = "mean",
        state: State = "warm",
        batch_size: int = 64,
        store_layers: bool = True,
        name: str = "elmo",
    ) -> None:
        if state == "carry":
            raise InputError("state is 'carry', under which a vector depends on other documents; use 'reset' or 'warm'")
        self.model, self.layers, self.state, self.name = model, layers, state, name
        self.batch_size, self.store_layers = batch_size, store_layers
        self._loaded: Embedder | None = None
        if not tokens.Doc.has_extension(EXTENSION):
            tokens.Doc.set_extension(EXTENSION, default=None)

    @property
    def embedder(self) -> Embedder:
        """The model."""
        found = self._loaded or load_embedder(self.model, state=self.state)
        check_layer(self.layers, found.num_layers)
        return found

    def __call__(self, doc: Any) -> Any:
        """Set the vectors of one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Any], *, batch_size: int = 128) -> Iterator[Any]:
        """Set the vectors of documents, in batches.

        Args:
            stream: the documents.
            batch_size: documents that are held in memory together.
        """
        for docs in minibatch(stream, size=batch_size):
            for doc, layers_LTD in zip(docs, embed_docs(self.embedder, docs, self.batch_size), strict=True):
                self._set(doc, layers_LTD)
                yield doc

    def _set(self, doc: Any, layers_LTD: Vectors) -> None:
        doc.tensor = pick_layers(layers_LTD, self.layers)
        if self.store_layers:
            doc._.set(EXTENSION, layers_LTD)
        for hooks in (doc.user_hooks, doc.user_span_hooks):
            hooks |= {"vector": _mean_vector, "has_vector": _has_vector, "similarity": _similarity}
        doc.user_token_hooks |= {"vector": _token_vector, "has_vector": _has_vector, "similarity": _similarity}

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the model as a folder, so that the pipeline needs nothing else."""
        del exclude
        Path(path).mkdir(parents=True, exist_ok=True)
        self.embedder.save_pretrained(Path(path) / FOLDER)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "ElmoPipe":
        """Load the model that `to_disk` saved."""
        del exclude
        self._loaded = Embedder.from_pretrained(Path(path) / FOLDER, state=self.state)
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the model with its weights."""
        del exclude
        packed = self.embedder.pack(with_weights=True)
        found: bytes = srsly.msgpack_dumps({"text": packed.text, "tensors": packed.tensors})
        return found

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> "ElmoPipe":
        """Load the model that `to_bytes` returned."""
        del exclude
        self._loaded = Embedder.unpack(PickledEmbedder(**srsly.msgpack_loads(data)))
        return self


@language.Language.factory(  # type: ignore[untyped-decorator]
    "elmo",
    assigns=["doc.tensor", f"doc._.{EXTENSION}"],
    default_config={"model": "en-small", "layers": "mean", "state": "warm", "batch_size": 64, "store_layers": True},
)
def make_elmo(
    nlp: Any, name: str, *, model: str, layers: Layer, state: State, batch_size: int, store_layers: bool
) -> ElmoPipe:
    """Make the component; spaCy calls it."""
    del nlp
    return ElmoPipe(model, layers=layers, state=state, batch_size=batch_size, store_layers=store_layers, name=name)


@registry.architectures("elmokit.ElmoTok2Vec.v1")  # type: ignore[untyped-decorator]
def build_tok2vec(model: str = "en-small", layers: Layer = "mean", width: int = 256, batch_size: int = 64) -> Any:
    """Build a frozen ``Tok2Vec``: ``Model[List[Doc], List[Floats2d]]``, for ``[components.tok2vec.model]``.

    Args:
        model: a model, as `elmokit.Embedder.from_pretrained` takes it.
        layers: a layer's number, or ``"mean"`` of all.
        width: width of the model's vectors, for the listeners; 256 for en-small.
        batch_size: sentences that are run together at most.
    """

    def forward(_: Any, docs: list[Any], is_train: bool) -> tuple[list[Vectors], Callable[[Any], list[Any]]]:  # noqa: FBT001
        del is_train
        embedder = load_embedder(model)
        if embedder.width != width:
            raise InputError(f"width {width}; {model} has {embedder.width}, set width = {embedder.width} in the config")
        found = [pick_layers(layers_LTD, layers) for layers_LTD in embed_docs(embedder, docs, batch_size)]
        return found, lambda _gradients: []

    return thinc_model("elmo_tok2vec", forward, dims={"nO": width})


def embed_docs(embedder: Embedder, docs: list[Any], batch_size: int = 64) -> list[Vectors]:
    """Return the layers of each document, (L, T, D); zeros for white-space tokens."""
    places = [(number, chosen) for number, doc in enumerate(docs) for chosen in _sentences(doc)]
    layers = [np.zeros((embedder.num_layers, len(doc), embedder.width), dtype=np.float32) for doc in docs]
    texts = [[docs[number][place].text for place in chosen] for number, chosen in places]
    for (number, chosen), layers_LTD in zip(places, embedder.iter_layers(texts, batch_size=batch_size), strict=True):
        layers[number][:, chosen] = layers_LTD
    return layers


def _sentences(doc: Any) -> Iterator[list[int]]:
    """Yield the places of the tokens of each sentence, without white space."""
    spans = doc.sents if doc.has_annotation("SENT_START") else [doc[:]]
    for span in spans:
        places = [token.i for token in span if not token.is_space]
        if places:
            yield places


def _mean_vector(part: Any) -> Vectors:
    """Return the mean of a document's or span's tokens, as spaCy computes it from ``doc.tensor``."""
    rows_TD = part.tensor
    if not len(rows_TD):
        return np.zeros(rows_TD.shape[1], dtype=np.float32)
    mean_D: Vectors = rows_TD.mean(axis=0)
    return mean_D


def _token_vector(token: Any) -> Vectors:
    vector_D: Vectors = token.doc.tensor[token.i]
    return vector_D


def _has_vector(_: Any) -> bool:
    return True


def _similarity(one: Any, other: Any) -> float:
    lengths = np.linalg.norm(one.vector) * np.linalg.norm(other.vector)
    return float(np.dot(one.vector, other.vector) / lengths) if lengths else 0.0
