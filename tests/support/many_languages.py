"""ELMoForManyLangs in plain NumPy, and tiny random models in its format.

Written from the description of that program, apart from the package. ``MISTAKES`` are what a re-implementation gets
wrong; switching one on shows that a comparison would notice it.

Shapes: T tokens with both boundaries, F filters, C cells, P outputs of a layer.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

MISTAKES = (
    "markers not swapped",
    "bytes for characters",
    "padding row zero",
    "word looked up before the cut",
    "word lower-cased",
    "characters before the word",
    "highway halves swapped",
    "highway gate opens the transform",
    "forget bias added",
    "gates in another order",
    "cell clip missing",
    "projection clip missing",
    "no residual",
    "residual in the state",
    "ideographic space lost",
)
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "bank", "Bank", "\u3000", "x" * 8, "x" * 10, "的"]
CHARS = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", *"abknxB的é", "\u3000"]
SIZES: dict[str, Any] = {
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 4], [2, 5], [3, 6]],
        "n_highway": 2,
        "word_dim": 6,
        "char_dim": 5,
        "max_characters_per_token": 10,
    },
    "encoder": {"name": "elmo", "projection_dim": 8, "cell_clip": 1.2, "proj_clip": 1.2, "dim": 20, "n_layers": 2},
}

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ManyLanguages:
    """A model in memory and on disk."""

    folder: Path
    weights: dict[str, NDArray[np.float32]]

    def layers(self, sentence: Sequence[str], *mistakes: str) -> Array:
        """Return all layers of a sentence that starts in a zero state, (3, tokens, 2 P)."""
        tokens = np.stack([self._token(word, mistakes) for word in ["<bos>", *sentence, "<eos>"]])
        forward = self._direction("forward", tokens, mistakes)
        backward = [layer[::-1] for layer in self._direction("backward", tokens[::-1], mistakes)]
        pairs = zip([tokens, *forward], [tokens, *backward], strict=True)
        return np.stack([np.concatenate(pair, axis=1) for pair in pairs])[:, 1:-1]

    def _array(self, name: str) -> Array:
        return self.weights[name].astype(np.float64)

    def _token(self, word: str, mistakes: Sequence[str]) -> Array:
        embedder = SIZES["token_embedder"]
        limit = embedder["max_characters_per_token"] - 2
        full, word = word, word[:limit] if len(word) > limit else word
        looked_up = full if "word looked up before the cut" in mistakes else word
        looked_up = looked_up.lower() if "word lower-cased" in mistakes else looked_up
        words = [name for name in WORDS if name != "\u3000"] if "ideographic space lost" in mistakes else WORDS
        word_row = WORDS.index(looked_up if looked_up in words else "<oov>")
        word_vector = self._array("word_emb_layer.embedding.weight")[word_row]
        chars = self._array("char_emb_layer.embedding.weight")
        if "padding row zero" in mistakes:
            chars[CHARS.index("<pad>")] = 0
        rows = chars[self._char_rows(word, limit, mistakes)]
        pooled = []
        for index, (width, _) in enumerate(embedder["filters"]):
            kernel = self._array(f"convolutions.{index}.weight")  # (filters, chars, width)
            windows = [np.einsum("fcw,wc->f", kernel, rows[i : i + width]) for i in range(len(rows) - width + 1)]
            pooled.append(np.maximum(np.max(windows, axis=0) + self._array(f"convolutions.{index}.bias"), 0))
        spelled = np.concatenate(pooled)
        for index in range(embedder["n_highway"]):
            spelled = self._highway(spelled, index, mistakes)
        parts = [word_vector, spelled]
        joined = np.concatenate(parts[::-1] if "characters before the word" in mistakes else parts)
        return self._array("projection.weight") @ joined + self._array("projection.bias")

    def _char_rows(self, word: str, limit: int, mistakes: Sequence[str]) -> list[int]:
        begin, end = ("<bow>", "<eow>") if "markers not swapped" in mistakes else ("<eow>", "<bow>")
        spelling = [word] if word in ("<bos>", "<eos>") else list(word)
        if "bytes for characters" in mistakes and word not in ("<bos>", "<eos>"):
            spelling = [chr(byte) for byte in word.encode()][:limit]
        rows = [CHARS.index(char) if char in CHARS else CHARS.index("<oov>") for char in [begin, *spelling, end]]
        return rows + [CHARS.index("<pad>")] * (limit + 2 - len(rows))

    def _highway(self, vector: Array, index: int, mistakes: Sequence[str]) -> Array:
        both = self._array(f"highways._layers.{index}.weight") @ vector + self._array(f"highways._layers.{index}.bias")
        transform, gate = np.split(both, 2)
        if "highway halves swapped" in mistakes:
            transform, gate = gate, transform
        gate = _sigmoid(gate)
        if "highway gate opens the transform" in mistakes:
            gate = 1 - gate
        return gate * vector + (1 - gate) * np.maximum(transform, 0)

    def _direction(self, direction: str, inputs: Array, mistakes: Sequence[str]) -> list[Array]:
        encoder = SIZES["encoder"]
        layers = []
        for index in range(encoder["n_layers"]):
            name = f"{direction}_layer_{index}"
            from_input, from_state = (self._array(f"{name}.{part}_linearity.weight") for part in ("input", "state"))
            bias, projection = (
                self._array(f"{name}.state_linearity.bias"),
                self._array(f"{name}.state_projection.weight"),
            )
            state, cell, outputs = np.zeros(encoder["projection_dim"]), np.zeros(encoder["dim"]), []
            for vector in inputs:
                i, f, g, o = np.split(from_input @ vector + from_state @ state + bias, 4)
                if "gates in another order" in mistakes:
                    f, g = g, f
                f = f + 1 if "forget bias added" in mistakes else f
                cell = _sigmoid(i) * np.tanh(g) + _sigmoid(f) * cell
                if "cell clip missing" not in mistakes:
                    cell = np.clip(cell, -encoder["cell_clip"], encoder["cell_clip"])
                state = projection @ (_sigmoid(o) * np.tanh(cell))
                if "projection clip missing" not in mistakes:
                    state = np.clip(state, -encoder["proj_clip"], encoder["proj_clip"])
                output = state + vector if index and "no residual" not in mistakes else state
                state = output if "residual in the state" in mistakes else state
                outputs.append(output)
            inputs = np.stack(outputs)
            layers.append(inputs)
        return layers


def make_many_languages(folder: Path, *, seed: int = 0) -> ManyLanguages:
    """Write a random model as ELMoForManyLangs 2018 did: the old format of torch, and another machine's path."""
    folder.mkdir(parents=True, exist_ok=True)
    embedder, encoder = SIZES["token_embedder"], SIZES["encoder"]
    rng = np.random.default_rng(seed)
    filters, outputs, cells = sum(count for _, count in embedder["filters"]), encoder["projection_dim"], encoder["dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "word_emb_layer.embedding.weight": (len(WORDS), embedder["word_dim"]),
        "char_emb_layer.embedding.weight": (len(CHARS), embedder["char_dim"]),
        "projection.weight": (outputs, embedder["word_dim"] + filters),
        "projection.bias": (outputs,),
    }
    for index, (width, count) in enumerate(embedder["filters"]):
        shapes |= {f"convolutions.{index}.weight": (count, embedder["char_dim"], width)}
        shapes |= {f"convolutions.{index}.bias": (count,)}
    for index in range(embedder["n_highway"]):
        shapes |= {f"highways._layers.{index}.weight": (2 * filters, filters)}
        shapes |= {f"highways._layers.{index}.bias": (2 * filters,)}
    lstm: dict[str, tuple[int, ...]] = {}
    for direction in ("forward", "backward"):
        for index in range(encoder["n_layers"]):
            name = f"{direction}_layer_{index}"
            lstm |= {f"{name}.input_linearity.weight": (4 * cells, outputs)}
            lstm |= {f"{name}.state_linearity.weight": (4 * cells, outputs)}
            lstm |= {f"{name}.state_linearity.bias": (4 * cells,), f"{name}.state_projection.weight": (outputs, cells)}
    weights = {}
    for name, shape in (shapes | lstm).items():
        scale = {"state_linearity.weight": 0.4, "state_projection.weight": 2.5}.get(name.partition(".")[2], 1.0)
        fan_in = shape[-1] if len(shape) > 1 and "emb_layer" not in name else 1
        weights[name] = rng.normal(scale=scale / np.sqrt(fan_in), size=shape).astype(np.float32)
    for file, part in (("token_embedder.pkl", shapes), ("encoder.pkl", lstm)):
        tensors = {name: torch.from_numpy(weights[name]) for name in part}
        torch.save(tensors, folder / file, _use_new_zipfile_serialization=False)
    (folder / "config.json").write_text(json.dumps({"config_path": "/users4/someone/configs/tiny.json", "seed": 1}))
    (folder / "tiny.json").write_text(json.dumps(SIZES))
    for name, tokens in (("word.dic", WORDS), ("char.dic", CHARS)):
        (folder / name).write_text("".join(f"{token}\t{row}\n" for row, token in enumerate(tokens)), "utf-8")
    return ManyLanguages(folder, weights)


def _sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))
