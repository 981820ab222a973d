"""Build a biLM as an ONNX graph, equal to `elmokit.model.bilm.BiLM` for batches of any shape.

The graph is written node by node. An exporter that traces PyTorch would fix the number of LSTM steps; here each layer
of a direction is a Scan. Rows run with their padding. It follows their last position in both directions, so it changes
nothing before it, and it is cut off at the end.

Shapes: B sentences, T tokens of the longest, S = T + 2 positions with boundaries, C character ids per word,
W distinct words, K leading characters of a word, E character width, F filters of all widths, P width of a token vector,
H cells, G = 4 H gates, L layers of vectors, D = 2 P.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from elmokit.config import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, PAD_CHAR, BiLMConfig, LSTMConfig

# Opset 17 and its IR version: ONNX Runtime supports them since 1.12 (June 2022).
OPSET, IR_VERSION = 17, 8
LAST = 2**63 - 1  # end of a slice that has no end

Weights = Mapping[str, NDArray[np.float32]]


class _Nodes:
    """Builder of a graph: every call adds a node and returns the name of its output.

    A graph and its subgraphs share a namespace, so each has a prefix.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        """Add a named tensor."""
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def ints(self, *values: int) -> str:
        """Add integers as a tensor, (n,)."""
        return self.constant(self.prefix + "_".join(["ints", *map(str, values)]), np.array(values, dtype=np.int64))

    def number(self, value: int | float) -> str:
        """Add a scalar: int64 for an int, float32 for a float."""
        dtype = np.int64 if isinstance(value, int) else np.float32
        return self.constant(f"{self.prefix}number_{value}", np.array(value, dtype=dtype))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation with one output."""
        return self.add_many(op, *inputs, num_outputs=1, **attributes)[0]

    def add_many(self, op: str, *inputs: str, num_outputs: int, **attributes: Any) -> list[str]:
        """Add an operation with several outputs."""
        first = f"{self.prefix}{op}_{len(self.nodes)}"
        outputs = [first, *(f"{first}_{index}" for index in range(1, num_outputs))]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=first, **attributes))
        return outputs

    def size(self, tensor: str, axis: int) -> str:
        """Add the size of a tensor along an axis, (1,)."""
        return self.add("Shape", tensor, start=axis, end=axis + 1)

    def shape(self, *parts: str | int) -> str:
        """Add a shape made of constant and computed sizes."""
        return self.add("Concat", *(part if isinstance(part, str) else self.ints(part) for part in parts), axis=0)


def build_model(config: BiLMConfig, weights: Weights, start: Weights) -> onnx.ModelProto:
    """Return the model with input ``char_ids`` (B, T, C) and outputs ``layers`` (B, L, T, D) and ``mask`` (B, T).

    ``weights`` is a biLM's state dict; ``start`` is every sentence's start state, each part (layers, width).
    """
    graph = _Nodes()
    max_chars = config.char_encoder.max_chars
    mask_BT = graph.add("Greater", graph.add("ReduceMax", "char_ids", axes=[2], keepdims=0), graph.number(0))
    lengths_B = graph.add("ReduceSum", graph.add("Cast", mask_BT, to=onnx.TensorProto.INT64), graph.ints(1), keepdims=0)
    spans_B = graph.add("Add", lengths_B, graph.number(2))
    words_BSC = _add_boundaries(graph, spans_B, max_chars)
    tokens_SBP = _encode_tokens(graph, words_BSC, config, weights)
    reversed_SBP = _reverse(graph, tokens_SBP, spans_B)
    forward = _run_stack(graph, tokens_SBP, "forward", config.lstm, weights, start)
    backward = _run_stack(graph, reversed_SBP, "backward", config.lstm, weights, start)
    layers = [graph.add("Concat", tokens_SBP, tokens_SBP, axis=2)]
    for ahead_SBP, behind_SBP in zip(forward, backward, strict=True):
        layers.append(graph.add("Concat", ahead_SBP, _reverse(graph, behind_SBP, spans_B), axis=2))
    _finish(graph, layers, mask_BT, lengths_B)
    char_ids = helper.make_tensor_value_info("char_ids", onnx.TensorProto.INT64, ["batch", "tokens", max_chars])
    outputs = [
        helper.make_tensor_value_info(
            "layers", onnx.TensorProto.FLOAT, ["batch", config.num_layers, "tokens", config.width]
        ),
        helper.make_tensor_value_info("mask", onnx.TensorProto.BOOL, ["batch", "tokens"]),
    ]
    made = helper.make_graph(graph.nodes, "bilm", [char_ids], outputs, list(graph.constants.values()))
    return helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="elmokit"
    )


def _add_boundaries(graph: _Nodes, spans_B: str, max_chars: int) -> str:
    """Add boundaries to every sentence, (B, S, C); positions after them hold padding characters."""
    begin, end = (np.full(max_chars, PAD_CHAR, dtype=np.int64) for _ in range(2))
    begin[:3], end[:3] = (BEGIN_WORD, BEGIN_SENTENCE, END_WORD), (BEGIN_WORD, END_SENTENCE, END_WORD)
    batch = graph.size("char_ids", 0)
    begin_B1C = graph.add("Expand", graph.constant("begin_sentence", begin), graph.shape(batch, 1, max_chars))
    end_C = graph.constant("end_sentence", end)
    end_B1C = graph.add("Expand", end_C, graph.shape(batch, 1, max_chars))
    words_BSC = graph.add("Concat", begin_B1C, "char_ids", end_B1C, axis=1)
    count = graph.add("Squeeze", graph.size(words_BSC, 1), graph.ints(0))
    position_S1 = graph.add("Unsqueeze", graph.add("Range", graph.number(0), count, graph.number(1)), graph.ints(1))
    spans_B11 = graph.add("Unsqueeze", spans_B, graph.ints(1, 2))
    is_real_BS1 = graph.add("Less", position_S1, spans_B11)
    is_end_BS1 = graph.add("Equal", position_S1, graph.add("Sub", spans_B11, graph.number(1)))
    ended_BSC = graph.add("Where", is_end_BS1, end_C, words_BSC)
    return graph.add("Where", is_real_BS1, ended_BSC, graph.number(PAD_CHAR))


def _encode_tokens(graph: _Nodes, words_BSC: str, config: BiLMConfig, weights: Weights) -> str:
    """Add the token layer, (S, B, P); every distinct word is encoded once."""
    max_chars = config.char_encoder.max_chars
    words_SBC = graph.add("Transpose", words_BSC, perm=[1, 0, 2])
    flat_NC = graph.add("Reshape", words_SBC, graph.ints(-1, max_chars))
    # A boundary in front, which all but an empty batch have anyway: the convolutions always get at least one word.
    begin_1C = graph.add("Unsqueeze", "begin_sentence", graph.ints(0))
    more_NC = graph.add("Concat", begin_1C, flat_NC, axis=0)
    distinct_WC, _, more_place_N, _ = graph.add_many("Unique", more_NC, num_outputs=4, axis=0)
    place_N = graph.add("Slice", more_place_N, graph.ints(1), graph.ints(LAST), graph.ints(0))
    vectors_WF = _pool_filters(graph, distinct_WC, config, weights)
    for index in range(config.char_encoder.num_highway):
        vectors_WF = _highway(graph, vectors_WF, f"char_encoder.highways.{index}", weights)
    if config.has_token_projection:
        vectors_WF = _linear(graph, vectors_WF, "char_encoder.projection", weights)
    shape = graph.shape(graph.size(words_SBC, 0), graph.size(words_SBC, 1), config.lstm.proj_dim)
    return graph.add("Reshape", graph.add("Gather", vectors_WF, place_N), shape, allowzero=1)


def _pool_filters(graph: _Nodes, words_WC: str, config: BiLMConfig, weights: Weights) -> str:
    """Add the maximum of every filter over each word, (W, F)."""
    encoder = config.char_encoder
    widest = max(width for width, _ in encoder.filters)
    # Windows inside a word's padding are all equal: the characters of the longest word and one such window are enough.
    position_C = graph.constant("position", np.arange(1, encoder.max_chars + 1))
    is_pad_WC = graph.add("Equal", words_WC, graph.number(PAD_CHAR))
    longest_11 = graph.add("ReduceMax", graph.add("Where", is_pad_WC, graph.number(0), position_C), axes=[0, 1])
    kept = graph.add("Reshape", graph.add("Add", longest_11, graph.number(widest)), graph.ints(1))
    words_WK = graph.add("Slice", words_WC, graph.ints(0), kept, graph.ints(1))
    rows = weights["char_encoder.char_embedding"]
    # Id 0 has no row in the table. Inside a word its vector is zero.
    table = graph.constant("char_encoder.char_embedding", np.concatenate([np.zeros_like(rows[:1]), rows]))
    chars_WEK = graph.add("Transpose", graph.add("Gather", table, words_WK), perm=[0, 2, 1])
    strongest = []
    for index in range(len(encoder.filters)):
        names = (f"char_encoder.convs.{index}.{part}" for part in ("weight", "bias"))
        answers_WFK = graph.add("Conv", chars_WEK, *(graph.constant(name, weights[name]) for name in names))
        strongest.append(graph.add("ReduceMax", answers_WFK, axes=[2], keepdims=0))
    activation = {"relu": "Relu", "tanh": "Tanh"}[encoder.activation]
    return graph.add(activation, graph.add("Concat", *strongest, axis=1))


def _highway(graph: _Nodes, inputs_WF: str, name: str, weights: Weights) -> str:
    gate_WF = graph.add("Sigmoid", _linear(graph, inputs_WF, f"{name}.gate", weights))
    transform_WF = graph.add("Relu", _linear(graph, inputs_WF, f"{name}.transform", weights))
    change_WF = graph.add("Mul", gate_WF, graph.add("Sub", transform_WF, inputs_WF))
    return graph.add("Add", inputs_WF, change_WF)


def _linear(graph: _Nodes, inputs: str, name: str, weights: Weights) -> str:
    parts = (graph.constant(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias"))
    return graph.add("Gemm", inputs, *parts, transB=1)


def _reverse(graph: _Nodes, vectors_SBP: str, spans_B: str) -> str:
    """Reverse every sentence, and leave its padding after it."""
    return graph.add("ReverseSequence", vectors_SBP, spans_B, time_axis=0, batch_axis=1)


def _run_stack(
    graph: _Nodes, inputs_SBP: str, direction: str, config: LSTMConfig, weights: Weights, start: Weights
) -> list[str]:
    """Add one direction's layers, each (S, B, P), in reading order."""
    outputs = []
    below_SBP = inputs_SBP
    for index in range(config.num_layers):
        name = f"{direction}_lstm.layers.{index}"
        state = {part: start[f"{direction}.{part}"][index] for part in ("hidden", "cell")}
        above_SBP = _run_layer(graph, below_SBP, name, config, weights, state)
        if config.skip_connections and index > 0:
            above_SBP = graph.add("Add", above_SBP, below_SBP)
        outputs.append(above_SBP)
        below_SBP = above_SBP
    return outputs


def _run_layer(graph: _Nodes, inputs_SBP: str, name: str, config: LSTMConfig, weights: Weights, state: Weights) -> str:
    """Add an LSTM layer that starts all rows from one state; the input half is one matrix product for all steps."""
    num_gates = 4 * config.cell_dim
    bias_G = weights[f"{name}.bias"].copy()
    bias_G[config.cell_dim : 2 * config.cell_dim] += 1.0  # the forget gate's bias, which files omit
    flat_NP = graph.add("Reshape", inputs_SBP, graph.ints(-1, config.proj_dim))
    weight_GP = graph.constant(f"{name}.input_weight", weights[f"{name}.input_weight"])
    gates_NG = graph.add("Gemm", flat_NP, weight_GP, graph.constant(f"{name}.bias", bias_G), transB=1)
    steps, batch = graph.size(inputs_SBP, 0), graph.size(inputs_SBP, 1)
    gates_SBG = graph.add("Reshape", gates_NG, graph.shape(steps, batch, num_gates), allowzero=1)
    begin = [
        graph.add("Expand", graph.constant(f"{name}.start_{part}", values), graph.shape(batch, len(values)))
        for part, values in state.items()
    ]
    for part in ("recurrent_weight", "projection"):
        if f"{name}.{part}" in weights:  # the steps refer to these by name
            graph.constant(f"{name}.{part}", weights[f"{name}.{part}"])
    _, _, outputs_SBP = graph.add_many(
        "Scan", *begin, gates_SBG, num_outputs=3, body=_step(name, config), num_scan_inputs=1
    )
    return outputs_SBP


def _step(name: str, config: LSTMConfig) -> onnx.GraphProto:
    """Return one step of a layer: from the state and the input half of the gates to the next state and the output."""
    graph = _Nodes(f"{name}.step.")
    num_cells = config.cell_dim
    hidden_BP, cell_BH, gates_BG = (f"{graph.prefix}{part}" for part in ("hidden", "cell", "gates"))
    inputs = [_floats(hidden_BP, config.proj_dim), _floats(cell_BH, num_cells), _floats(gates_BG, 4 * num_cells)]
    gates_BG = graph.add("Gemm", hidden_BP, f"{name}.recurrent_weight", gates_BG, transB=1)
    sizes = graph.ints(3 * num_cells, num_cells)
    let_B3H, candidate_BH = graph.add_many("Split", gates_BG, sizes, num_outputs=2, axis=1)
    let_in, forget, let_out = graph.add_many("Split", graph.add("Sigmoid", let_B3H), num_outputs=3, axis=1)
    new_BH = graph.add("Mul", let_in, graph.add("Tanh", candidate_BH))
    cell_BH = _clip(graph, graph.add("Add", graph.add("Mul", forget, cell_BH), new_BH), config.cell_clip)
    hidden_BP = graph.add("Mul", let_out, graph.add("Tanh", cell_BH))
    if config.has_projection:  # only projected outputs are clipped
        hidden_BP = graph.add("Gemm", hidden_BP, f"{name}.projection", transB=1)
        hidden_BP = _clip(graph, hidden_BP, config.proj_clip)
    output_BP = graph.add("Identity", hidden_BP)  # each output needs its own name
    outputs = [_floats(hidden_BP, config.proj_dim), _floats(cell_BH, num_cells), _floats(output_BP, config.proj_dim)]
    return helper.make_graph(graph.nodes, "step", inputs, outputs, list(graph.constants.values()))


def _floats(name: str, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])


def _clip(graph: _Nodes, values: str, clip: float | None) -> str:
    return values if clip is None else graph.add("Clip", values, graph.number(-float(clip)), graph.number(float(clip)))


def _finish(graph: _Nodes, layers: list[str], mask_BT: str, lengths_B: str) -> None:
    """Stack the layers without boundaries, with zeros on padding.

    A graph cannot raise errors. A sentence with padding before its last token, which the package rejects, gets NaN.
    """
    tokens = [graph.add("Slice", layer, graph.ints(1), graph.ints(-1), graph.ints(0)) for layer in layers]
    tokens_LTBD = graph.add("Concat", *(graph.add("Unsqueeze", layer, graph.ints(0)) for layer in tokens), axis=0)
    tokens_BLTD = graph.add("Transpose", tokens_LTBD, perm=[2, 0, 1, 3])
    count = graph.add("Squeeze", graph.size(mask_BT, 1), graph.ints(0))
    position_T = graph.add("Range", graph.number(0), count, graph.number(1))
    lengths_B1 = graph.add("Unsqueeze", lengths_B, graph.ints(1))
    # With padding on the right only, a sentence's tokens are its first ones.
    is_astray_BT = graph.add("Xor", mask_BT, graph.add("Less", position_T, lengths_B1))
    num_astray_B1 = graph.add("ReduceSum", graph.add("Cast", is_astray_BT, to=onnx.TensorProto.INT64), graph.ints(1))
    is_broken_B111 = graph.add("Unsqueeze", graph.add("Greater", num_astray_B1, graph.number(0)), graph.ints(2, 3))
    mask_B1T1 = graph.add("Unsqueeze", mask_BT, graph.ints(1, 3))
    masked_BLTD = graph.add("Where", mask_B1T1, tokens_BLTD, graph.number(0.0))
    checked_BLTD = graph.add("Where", is_broken_B111, graph.number(float("nan")), masked_BLTD)
    graph.nodes.append(helper.make_node("Identity", [checked_BLTD], ["layers"]))
    graph.nodes.append(helper.make_node("Identity", [mask_BT], ["mask"]))
