"""Description of a saved biLM, in words and numbers."""

from pathlib import Path
from typing import Any

from elmokit.weights.bundled import find_model
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import Source, file_hashes, load_saved, published_name


def describe_model(source: Source) -> dict[str, dict[str, Any]]:
    """Facts about a model under headings, as values of JSON. Loading it checks it."""
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
            "most_bytes_a_word": encoder.max_chars - 2,
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


def _count_parameters(saved: SavedBiLM) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, tensor in saved.tensors.items():
        parts = name.split(".")
        part = parts[1] if parts[0] == "char_encoder" else parts[0]
        counts[part] = counts.get(part, 0) + tensor.numel()
    return {**counts, "all": sum(counts.values())}


def _describe_files(source: Source) -> dict[str, dict[str, Any]]:
    folders = [find_model(source)] if isinstance(source, str | Path) else [Path(path).parent for path in source]
    found: dict[str, dict[str, Any]] = {}
    for name, sha256 in file_hashes(source).items():
        path = next(folder / name for folder in folders if (folder / name).is_file())
        num_bytes = path.stat().st_size
        found[name] = {"bytes": num_bytes, "sha256": sha256, "published_as": published_name(sha256, num_bytes)}
    return found
