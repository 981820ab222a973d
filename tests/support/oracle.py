"""The biLM in plain NumPy: one word, one step, one sentence at a time.

Written from the description of the published model alone, apart from the package, to be what the package is
compared with. It trades all speed for being easy to check. ``Oracle.mistakes`` switches on the faults that
re-implementations of ELMo make, so that a test can show that a comparison would notice each of them.

Shapes: T tokens (with both boundaries: T+2), N characters a word, E character width, F filters, C cells,
P outputs of a layer, L LSTM layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 256, 257, 258, 259, 260

MISTAKES = frozenset(
    {
        "no boundary tokens",
        "ids without +1",
        "word padding replaced by id 0",
        "tanh for relu",
        "highway gate swapped",
        "gates read i, f, j, o",
        "[h; x] for [x; h]",
        "forget bias missing",
        "cell clip missing",
        "projection clip missing",
        "no residual",
        "residual on layer 1 too",
        "residual fed into the recurrent state",
        "state reset between batches",
    }
)

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class CellState:
    """What one LSTM layer remembers after a token."""

    cell_C: Array
    output_P: Array


RowState = tuple[tuple[CellState, ...], tuple[CellState, ...]]
"""The states of a row of a batch: forward then backward, each one state a layer."""


@dataclass(frozen=True)
class Run:
    """The outcome for a batch of sentences."""

    layers: list[Array]
    """One (L+1, T, 2P) array a sentence, boundaries removed."""
    states: list[RowState]
    """The state of each row after its last token."""


@dataclass(frozen=True)
class Oracle:
    """A biLM over the arrays and options of a published model."""

    arrays: dict[str, NDArray[np.float32]]
    options: dict[str, Any]
    dtype: DTypeLike = np.float64
    mistakes: frozenset[str] = field(default=frozenset())

    def __post_init__(self) -> None:
        assert self.mistakes <= MISTAKES, self.mistakes - MISTAKES

    def token_vectors(self, words: Sequence[str]) -> Array:
        """Return the context-free vectors of the words, (T, P)."""
        return np.stack([self._token_vector(word) for word in words])

    def run_bilm(self, sentences: Sequence[Sequence[str]], *, initial_states: Sequence[RowState] = ()) -> Run:
        """Run each sentence by itself; row k starts from ``initial_states[k]``, or from zero if there is none."""
        layers, states = [], []
        for row, sentence in enumerate(sentences):
            start = initial_states[row] if row < len(initial_states) else self._zero_state()
            sentence_layers, end = self._run_sentence(sentence, start)
            layers.append(sentence_layers)
            states.append(end)
        return Run(layers, states)

    def run_carrying(self, batches: Sequence[Sequence[Sequence[str]]]) -> list[list[Array]]:
        """Run batches in order, row k starting where row k last ended; a row that a batch lacks keeps its state."""
        states: list[RowState] = []
        layers = []
        for batch in batches:
            if "state reset between batches" in self.mistakes:
                states = []
            run = self.run_bilm(batch, initial_states=states)
            states = run.states + states[len(run.states) :]
            layers.append(run.layers)
        return layers

    @cached_property
    def _cast_arrays(self) -> dict[str, Array]:
        return {name: array.astype(self.dtype) for name, array in self.arrays.items()}

    def _array(self, name: str) -> Array:
        return self._cast_arrays[name]

    def _char_ids(self, word: str) -> list[int]:
        """The shifted ids of a word: 0 is the mask, every other id is one more than in training."""
        length = self.options["char_cnn"]["max_characters_per_token"]
        if word == "<S>":
            spelling = [BEGIN_SENTENCE]
        elif word == "</S>":
            spelling = [END_SENTENCE]
        else:
            spelling = list(word.encode("utf-8", errors="ignore"))[: length - 2]
        ids = [BEGIN_WORD, *spelling, END_WORD]
        ids = ids + [PAD] * (length - len(ids))
        if "word padding replaced by id 0" in self.mistakes:
            return [0 if char_id == PAD else char_id + 1 for char_id in ids]
        if "ids without +1" in self.mistakes:
            return ids
        return [char_id + 1 for char_id in ids]

    def _token_vector(self, word: str) -> Array:
        options = self.options["char_cnn"]
        rows_E = self._array("char_embed")
        rows_E = np.concatenate([np.zeros_like(rows_E[:1]), rows_E])  # row 0 is the mask
        chars_NE = rows_E[self._char_ids(word)]
        pooled = [self._convolve(chars_NE, index) for index in range(len(options["filters"]))]
        vector_F = np.concatenate(pooled)
        for index in range(options["n_highway"]):
            vector_F = self._highway(vector_F, index)
        if len(vector_F) == self.options["lstm"]["projection_dim"]:
            return vector_F
        return vector_F @ self._array("CNN_proj/W_proj") + self._array("CNN_proj/b_proj")

    def _convolve(self, chars_NE: Array, index: int) -> Array:
        kernel = self._array(f"CNN/W_cnn_{index}")[0]  # (width, E, filters)
        num_windows = len(chars_NE) - len(kernel) + 1
        responses = np.zeros((num_windows, kernel.shape[2]), self.dtype)
        for offset, weights in enumerate(kernel):
            responses += chars_NE[offset : offset + num_windows] @ weights
        strongest: Array = responses.max(axis=0) + self._array(f"CNN/b_cnn_{index}")
        if self.options["char_cnn"]["activation"] == "tanh" or "tanh for relu" in self.mistakes:
            return np.tanh(strongest)
        return np.maximum(strongest, 0)

    def _highway(self, vector_F: Array, index: int) -> Array:
        name = f"CNN_high_{index}"
        gate_F = _sigmoid(vector_F @ self._array(f"{name}/W_carry") + self._array(f"{name}/b_carry"))
        new_F = np.maximum(vector_F @ self._array(f"{name}/W_transform") + self._array(f"{name}/b_transform"), 0)
        if "highway gate swapped" in self.mistakes:
            gate_F = 1 - gate_F
        return gate_F * new_F + (1 - gate_F) * vector_F

    def _zero_state(self) -> RowState:
        options = self.options["lstm"]
        zero = CellState(np.zeros(options["dim"], self.dtype), np.zeros(options["projection_dim"], self.dtype))
        return (zero,) * options["n_layers"], (zero,) * options["n_layers"]

    def _run_sentence(self, words: Sequence[str], start: RowState) -> tuple[Array, RowState]:
        bare = "no boundary tokens" in self.mistakes
        tokens_TP = self.token_vectors(words if bare else ["<S>", *words, "</S>"])
        forward, forward_end = self._run_direction(0, tokens_TP, start[0])
        backward, backward_end = self._run_direction(1, tokens_TP[::-1], start[1])
        layers = [np.concatenate([tokens_TP, tokens_TP], axis=1)]
        for ahead_TP, behind_TP in zip(forward, backward, strict=True):
            layers.append(np.concatenate([ahead_TP, behind_TP[::-1]], axis=1))
        stacked = np.stack(layers)
        return (stacked if bare else stacked[:, 1:-1]), (forward_end, backward_end)

    def _run_direction(
        self, direction: int, inputs_TP: Array, start: tuple[CellState, ...]
    ) -> tuple[list[Array], tuple[CellState, ...]]:
        outputs, ends = [], []
        for layer in range(self.options["lstm"]["n_layers"]):
            inputs_TP, end = self._run_layer(direction, layer, inputs_TP, start[layer])
            outputs.append(inputs_TP)
            ends.append(end)
        return outputs, tuple(ends)

    def _run_layer(self, direction: int, layer: int, inputs_TP: Array, state: CellState) -> tuple[Array, CellState]:
        name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        kernel, bias = self._array(f"{name}/W_0"), self._array(f"{name}/B")
        projects = self.options["lstm"]["projection_dim"] != self.options["lstm"]["dim"]
        projection = self._array(f"{name}/W_P_0") if projects else None
        adds_input = self._adds_input(layer)
        outputs = []
        for input_P in inputs_TP:
            state = self._step(input_P, state, kernel, bias, projection)
            output_P = state.output_P + input_P if adds_input else state.output_P
            if "residual fed into the recurrent state" in self.mistakes:
                state = CellState(state.cell_C, output_P)
            outputs.append(output_P)
        return np.stack(outputs), state

    def _adds_input(self, layer: int) -> bool:
        if "no residual" in self.mistakes or not self.options["lstm"]["use_skip_connections"]:
            return False
        return layer >= 1 or "residual on layer 1 too" in self.mistakes

    def _step(
        self, input_P: Array, state: CellState, kernel: Array, bias: Array, projection: Array | None
    ) -> CellState:
        joined = [input_P, state.output_P]
        if "[h; x] for [x; h]" in self.mistakes:
            joined.reverse()
        i, j, f, o = np.split(np.concatenate(joined) @ kernel + bias, 4)
        if "gates read i, f, j, o" in self.mistakes:
            j, f = f, j
        forget_bias = 0 if "forget bias missing" in self.mistakes else 1
        cell_C: Array = _sigmoid(f + forget_bias) * state.cell_C + _sigmoid(i) * np.tanh(j)
        if "cell clip missing" not in self.mistakes:
            cell_C = _clip(cell_C, self.options["lstm"].get("cell_clip"))
        hidden_C = _sigmoid(o) * np.tanh(cell_C)
        if projection is None:
            return CellState(cell_C, hidden_C)
        output_P: Array = hidden_C @ projection
        if "projection clip missing" not in self.mistakes:
            output_P = _clip(output_P, self.options["lstm"].get("proj_clip"))
        return CellState(cell_C, output_P)


def _sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def _clip(values: Array, limit: float | None) -> Array:
    return values if limit is None else np.clip(values, -limit, limit)
