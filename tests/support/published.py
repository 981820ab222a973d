"""Write small random models in the published format: options.json beside weights.hdf5.

The weights are larger than a trained model's, so that gates open and close, and the clips cut many values.

Shapes: C cells, P outputs of a layer, F filters.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

NUM_CHAR_ROWS = 261

Arrays = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class PublishedModel:
    """A model in the published format, on disk and in memory."""

    options_path: Path
    weights_path: Path
    options: dict[str, Any]
    arrays: Arrays = field(repr=False)

    @property
    def pair(self) -> tuple[Path, Path]:
        """Both paths, as ``Embedder.from_pretrained`` takes them."""
        return self.options_path, self.weights_path


def make_published(
    folder: Path,
    *,
    seed: int = 0,
    dim: int = 24,
    projection_dim: int = 8,
    n_layers: int = 2,
    filters: Sequence[tuple[int, int]] = ((1, 4), (2, 6), (3, 8)),
    n_highway: int = 2,
    char_dim: int = 5,
    activation: str = "relu",
    cell_clip: float | None = 1.5,
    proj_clip: float | None = 1.5,
    use_skip: bool = True,
    max_chars: int = 50,
    scale: float = 1.0,
) -> PublishedModel:
    """Write options.json and weights.hdf5 into ``folder``; a clip of None is left out of the options.

    ``scale`` multiplies the LSTM's weights: larger, and more values reach the clips.
    """
    lstm = {"dim": dim, "projection_dim": projection_dim, "n_layers": n_layers, "use_skip_connections": use_skip}
    clips = {"cell_clip": cell_clip, "proj_clip": proj_clip}
    options = {
        "lstm": lstm | {name: clip for name, clip in clips.items() if clip is not None},
        "char_cnn": {
            "activation": activation,
            "filters": [list(pair) for pair in filters],
            "n_highway": n_highway,
            "embedding": {"dim": char_dim},
            "n_characters": NUM_CHAR_ROWS + 1,
            "max_characters_per_token": max_chars,
        },
    }
    arrays = _draw_arrays(np.random.default_rng(seed), options, scale)
    options_path, weights_path = folder / "options.json", folder / "weights.hdf5"
    folder.mkdir(parents=True, exist_ok=True)
    options_path.write_text(json.dumps(options, indent=2), encoding="utf-8")
    with h5py.File(weights_path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return PublishedModel(options_path, weights_path, options, arrays)


def read_published(options_path: Path, weights_path: Path) -> PublishedModel:
    """Read a model in the published format as it is, without any check."""
    arrays: Arrays = {}

    def keep(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[...]

    with h5py.File(weights_path, "r") as file:
        file.visititems(keep)
    options = json.loads(options_path.read_text(encoding="utf-8"))
    return PublishedModel(options_path, weights_path, options, arrays)


def _draw_arrays(rng: np.random.Generator, options: dict[str, Any], scale: float) -> Arrays:
    def draw(*shape: int, std: float) -> NDArray[np.float32]:
        return rng.normal(scale=std, size=shape).astype(np.float32)

    cnn, lstm = options["char_cnn"], options["lstm"]
    char_dim, cells, outputs = cnn["embedding"]["dim"], lstm["dim"], lstm["projection_dim"]
    total = sum(count for _, count in cnn["filters"])
    arrays = {"char_embed": draw(NUM_CHAR_ROWS, char_dim, std=1.0)}
    for i, (width, count) in enumerate(cnn["filters"]):
        arrays[f"CNN/W_cnn_{i}"] = draw(1, width, char_dim, count, std=0.5 / np.sqrt(width * char_dim))
        arrays[f"CNN/b_cnn_{i}"] = draw(count, std=0.2)
    for k in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            arrays[f"CNN_high_{k}/W_{part}"] = draw(total, total, std=1.0 / np.sqrt(total))
            arrays[f"CNN_high_{k}/b_{part}"] = draw(total, std=0.5)
    if total != outputs:
        arrays["CNN_proj/W_proj"] = draw(total, outputs, std=1.5 / np.sqrt(total))
        arrays["CNN_proj/b_proj"] = draw(outputs, std=0.2)
    for direction in range(2):
        for layer in range(lstm["n_layers"]):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            # Weak recurrence: with a strong one a sentence's rounding errors would grow from token to token.
            from_input = draw(outputs, 4 * cells, std=1.3 * scale / np.sqrt(outputs))
            from_state = draw(outputs, 4 * cells, std=0.4 * scale / np.sqrt(outputs))
            arrays[f"{cell}/W_0"] = np.concatenate([from_input, from_state])
            arrays[f"{cell}/B"] = draw(4 * cells, std=1.0)
            if outputs != cells:
                arrays[f"{cell}/W_P_0"] = draw(cells, outputs, std=2.4 * scale / np.sqrt(cells))
    return arrays
