"""Encoders of the evaluations by their names in the plan."""

from collections.abc import Mapping

from elmokit.embed.sources import open_layer_source
from elmokit.encoders.layer_sources import LayerSource


def open_source(name: str, sources: Mapping[str, str], vectors: str) -> LayerSource:
    """Return the layers of an encoder of the plan: one of ``sources``, an untrained biLM, or static vectors."""
    if name == "glove":
        return open_layer_source(f"glove:{vectors}")
    if name == "untrained":
        return open_layer_source(f"untrained:{sources['bilm']}")
    return open_layer_source(sources[name])
