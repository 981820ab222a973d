"""Embedders that several objects of one process share: workers, clones, pipelines."""

from functools import lru_cache
from typing import Unpack

from elmokit.embed.embedder import Embedder
from elmokit.embed.options import EmbedderOptions
from elmokit.weights.source import Source


@lru_cache(maxsize=2)
def load_embedder(source: Source, **options: Unpack[EmbedderOptions]) -> Embedder:
    """Load a model, or return the one that was loaded with the same arguments."""
    return Embedder.from_pretrained(source, **options)
