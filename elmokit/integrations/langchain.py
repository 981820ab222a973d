"""ELMo as LangChain's Embeddings."""

from typing import Unpack

from elmokit.embed.embedder import Embedder
from elmokit.embed.options import EmbedderOptions
from elmokit.embed.picking import Layer, Pooling
from elmokit.extras import require
from elmokit.weights.source import Source

embeddings = require("langchain_core.embeddings", extra="langchain")


class ElmoEmbeddings(embeddings.Embeddings):  # type: ignore[name-defined, misc]
    """One vector per text. LangChain's asynchronous methods work too.

    Args:
        model: a model, as `elmokit.Embedder.from_pretrained` takes it.
        layer: a layer's number, or ``"mean"`` of all.
        pooling: ``"mean"`` or ``"max"`` over the tokens of a text.
        normalize: scale vectors to length 1.
        options: ``state``, ``precision``, ``language`` and ``device``, as for `elmokit.Embedder`.
    """

    def __init__(
        self,
        model: Source = "en-small",
        *,
        layer: Layer = "mean",
        pooling: Pooling = "mean",
        normalize: bool = True,
        **options: Unpack[EmbedderOptions],
    ) -> None:
        self.embedder = Embedder.from_pretrained(model, **options)
        self.layer: Layer = layer
        self.pooling: Pooling = pooling
        self.normalize = normalize

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text.

        Args:
            texts: the texts.
        """
        found: list[list[float]] = self.embedder.encode(
            texts, layer=self.layer, pooling=self.pooling, normalize_embeddings=self.normalize
        ).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query.

        Args:
            text: the query.
        """
        return self.embed_documents([text])[0]
