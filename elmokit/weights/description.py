"""Description of a saved biLM, in words and numbers."""

from typing import Any

from elmokit.config import BiLMConfig
from elmokit.weights.known_files import published_name
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import Source, file_hashes, list_paths, load_saved


def describe_model(source: Source) -> dict[str, dict[str, Any]]:
    """Return facts about a model under headings, as JSON values. Loading the model checks it."""
    saved = load_saved(source)
    config, encoder, lstm = saved.config, saved.config.char_encoder, saved.config.lstm
    return {
        "model": {
            "layers": config.num_layers,
            "width": config.width,
            "published": saved.options is not None,
        },
        "character_encoder": {
            "character_width": encoder.char_dim,
            "filters": [{"width": width, "count": count} for width, count in encoder.filters],
            "highway_layers": encoder.num_highway,
            "activation": encoder.activation,
            **_describe_reading(config),
        },
        "lstm": {
            "layers": lstm.num_layers,
            "cells": lstm.cell_dim,
            "outputs": lstm.proj_dim,
            "cell_clip": lstm.cell_clip,
            "output_clip": lstm.proj_clip,
            "skip_connections": lstm.skip_connections,
        },
        "states": {
            "warm": "every sentence begins from a settled state (default), "
            + ("stored" if saved.start_state else "computed at first use; `elmokit convert` stores it"),
            "reset": "every sentence begins from zero",
            "carry": "a sentence begins where the one before it ended",
        },
        "parameters": _count_parameters(saved),
        "files": _describe_files(source),
    }


def _describe_reading(config: BiLMConfig) -> dict[str, int]:
    encoder = config.char_encoder
    if config.reads_bytes:
        return {"max_bytes_per_word": encoder.max_chars - 2}
    described: dict[str, int] = {}
    if encoder.filters:
        described |= {"characters": encoder.num_chars, "max_characters_per_word": encoder.max_chars - 2}
    if config.words:
        described |= {"words": config.words.num_words, "word_width": config.words.dim}
    return described


def _count_parameters(saved: SavedBiLM) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, tensor in saved.tensors.items():
        parts = name.split(".")
        part = parts[1] if parts[0] == "char_encoder" else parts[0]
        counts[part] = counts.get(part, 0) + tensor.numel()
    return {**counts, "all": sum(counts.values())}


def _describe_files(source: Source) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    hashes = file_hashes(source)
    for path in list_paths(source):
        name, num_bytes, sha256 = path.name, path.stat().st_size, hashes[path.name]
        found[name] = {"bytes": num_bytes, "sha256": sha256, "published_as": published_name(sha256, num_bytes)}
    return found
