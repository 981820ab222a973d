"""Sentences and model shapes that every implementation of the biLM is compared on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Batch = list[list[str]]

SENTENCES: Batch = [
    ["The", "bank", "closed", "early", "on", "Monday", ",", "and", "nobody", "knew", "why", "."],
    ["x"],
    ["Straße", "naïve", "北京市", "Ελλάδα", "🙂", "e\u0301"],
    ["Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft", "was", "here"],
    ["a" * 200, "a" + "é" * 40, "é" * 40, "😀" * 20],
    ["", "<S>", "</S>", "\ud800", "a\ud800b"],
    [f"word-{index}" for index in range(40)],
]

# The second batch lacks rows, which keep their state; the third has all of them again.
UNEVEN_BATCHES: list[Batch] = [SENTENCES[:3], SENTENCES[3:4], SENTENCES[4:7], SENTENCES[:2]]

VARIANTS: dict[str, dict[str, Any]] = {
    "usual": {},
    "1 layer": {"n_layers": 1},
    "3 layers": {"n_layers": 3},
    "1 layer, no skip": {"n_layers": 1, "use_skip": False},
    "2 layers, no skip": {"use_skip": False},
    "3 layers, no skip": {"n_layers": 3, "use_skip": False},
    "no highway": {"n_highway": 0},
    # The projection clip would cut here, so that a clip of what is not projected shows.
    "no projection": {"dim": 8, "projection_dim": 8, "proj_clip": 0.3},
    "no token projection": {"filters": ((1, 3), (2, 5))},
    "no projection at all": {"dim": 8, "projection_dim": 8, "filters": ((1, 3), (2, 5))},
    "tanh": {"activation": "tanh"},
    "no clips": {"cell_clip": None, "proj_clip": None},
    "no cell clip": {"cell_clip": None},
    "no projection clip": {"proj_clip": None},
    "clips at 0.7": {"cell_clip": 0.7, "proj_clip": 0.7},
    "12 characters": {"max_chars": 12},
    "64 characters": {"max_chars": 64},
    "window as wide as a word": {"max_chars": 12, "filters": ((1, 4), (12, 14))},
}


def largest_gap(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """The largest absolute difference in a list of arrays; infinite if a shape differs or a value is not a number."""
    assert len(found) == len(expected) > 0
    gaps = []
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            return np.inf
        gap = np.abs(one.astype(np.float64) - other).max()
        gaps.append(np.inf if np.isnan(gap) else float(gap))
    return max(gaps)
