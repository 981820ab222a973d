"""Encoders of the evaluations by their names in the plan."""

from collections.abc import Mapping
from typing import Any

from elmokit.embed.sources import COVE, open_layer_source, split_pair
from elmokit.encoders.layer_sources import LayerSource
from elmokit.encoders.training import read_result


def open_source(name: str, sources: Mapping[str, str], vectors: str) -> LayerSource:
    """Return the layers of an encoder of the plan: one of ``sources``, an untrained biLM, or static vectors."""
    if name == "glove":
        return open_layer_source(f"glove:{vectors}")
    if name == "untrained":
        return open_layer_source(f"untrained:{sources['bilm']}")
    return open_layer_source(sources[name])


def read_training(name: str, sources: Mapping[str, str]) -> dict[str, Any] | None:
    """Return how an encoder of the plan was trained, if that stands beside it: its `EncoderResult` as JSON values."""
    spec = sources.get(name)
    if spec is None:
        return None
    return read_result(split_pair(spec)[0] if spec.startswith(COVE) else spec)
