"""All LSTM layers of one direction in one C call (``stack.c``), without gradients.

Shapes: N positions of all rows, packed; B rows; P width; C cells; G = 4 C gates; L layers; b blocks of PANEL cells.
"""

import ctypes
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from elmokit.errors import ConfigError, InputError
from elmokit.kernels.layer import GATES, check_sizes
from elmokit.kernels.library import Kernels, quantize
from elmokit.kernels.packed import PANEL, pack_bf16, quantize_to_bytes
from elmokit.kernels.panels import num_panels, pack_rows, repack, room

Precision = Literal["fp32", "int8", "bf16"]
PRECISIONS = get_args(Precision)
Form = Literal["fp32", "int8", "bf16", "bytes"]
FORMS = get_args(Form)  # by the numbers that stack.c has for them
INT8_INPUTS = "ELMOKIT_INT8_INPUTS"
ROOM_KEPT = 4 * 2**20  # numbers of a thread's room that are kept for its next call


class _Matrix(ctypes.Structure):
    _fields_ = [("packed", ctypes.c_void_p), ("scales", ctypes.c_void_p)]


class _LayerWeights(ctypes.Structure):
    _fields_ = [("input", _Matrix), ("recurrent", _Matrix), ("projection", _Matrix), ("bias", ctypes.c_void_p)]


class _Stack(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("batch_sizes", "order")],
        *[(name, ctypes.c_int64) for name in ("num_steps", "num_rows", "width", "num_cells", "num_layers")],
        *[(name, ctypes.c_int64) for name in ("token_stride", "layer_stride", "output_stride")],
        *[(name, ctypes.c_int64) for name in ("has_skip", "precision")],
        *[(name, ctypes.c_float) for name in ("cell_clip", "proj_clip")],
        *[(name, ctypes.c_void_p) for name in ("layers", "tokens", "outputs", "hidden", "cells", "room")],
    ]


@dataclass(frozen=True)
class StackLayer:
    """Weights of a layer in the layout of its module. A clip of NaN disables clipping."""

    input_GP: Tensor
    recurrent_GP: Tensor
    bias_G: Tensor
    projection_PC: Tensor | None
    cell_clip: float
    proj_clip: float


@dataclass(frozen=True)
class PackedStack:
    """The weights of one direction in the kernel's layout: copies, which do not follow later changes."""

    layers: ctypes.Array[_LayerWeights]
    parts: list[Tensor]  # the memory that ``layers`` points to
    width: int
    num_cells: int
    cell_clip: float
    proj_clip: float
    has_skip: bool
    form: Form


def choose_form(kernels: Kernels, precision: Precision) -> Form:
    """Return the form in which these kernels multiply fastest in a precision.

    With int8 weights the inputs have eight bits on CPUs with VNNI, else sixteen. ``ELMOKIT_INT8_INPUTS``, 8 or 16, asks
    for one of the two, to compare with vectors from another kind of CPU.
    """
    wanted = os.environ.get(INT8_INPUTS, "")
    if wanted not in ("", "8", "16"):
        raise ConfigError(f"{INT8_INPUTS} is {wanted!r}; expected '8', '16' or nothing")
    if precision != "int8":
        return precision
    return "bytes" if wanted == "8" or (kernels.has_vnni and not wanted) else "int8"


def pack_stack(kernels: Kernels, layers: Sequence[StackLayer], *, has_skip: bool, form: Form) -> PackedStack:
    """Pack the layers of one direction."""
    parts: list[Tensor] = []

    def keep(*tensors: Tensor) -> _Matrix:
        parts.extend(tensors)
        return _Matrix(*[tensor.data_ptr() for tensor in tensors])

    def pack(weight: Tensor) -> _Matrix:
        if form == "bf16":
            return keep(pack_bf16(weight))
        found = quantize(weight) if form == "int8" else quantize_to_bytes(weight)
        return keep(found.packed, found.scales)

    def pack_gates(weight_GP: Tensor) -> _Matrix:
        return keep(_gate_panels(kernels, weight_GP)) if form == "fp32" else pack(_by_blocks(weight_GP))

    packed = (_LayerWeights * len(layers))()
    for to, layer in zip(packed, layers, strict=True):
        _check_layer(layer)
        to.input, to.recurrent = pack_gates(layer.input_GP), pack_gates(layer.recurrent_GP)
        if layer.projection_PC is not None:
            projection_PC = layer.projection_PC.detach().contiguous()
            to.projection = keep(pack_rows(kernels, projection_PC)) if form == "fp32" else pack(projection_PC)
        to.bias = keep(_by_blocks(layer.bias_G[:, None]).flatten()).packed
    num_gates, width = layers[0].input_GP.shape
    first = layers[0]
    return PackedStack(packed, parts, width, num_gates // GATES, first.cell_clip, first.proj_clip, has_skip, form)


def run_stack(
    kernels: Kernels,
    stack: PackedStack,
    tokens_NP: Tensor,
    order_N: Tensor,
    batch_sizes: Sequence[int],
    state: tuple[Tensor, Tensor],
    outputs_LNP: Tensor,
) -> None:
    """Run all steps of a packed batch: read and write row ``order_N[p]`` at packed position p.

    ``state``, hidden (L, B, P) and cells (L, B, C), is where every row starts and is overwritten by where it ended.
    ``outputs_LNP`` may be a part of wider rows.
    """
    hidden_LBP, cell_LBC = state
    num_rows, sizes = hidden_LBP.shape[1], torch.tensor(batch_sizes, dtype=torch.int64, device="cpu")
    _check(stack, tokens_NP, order_N, hidden_LBP, cell_LBC, outputs_LNP)
    check_sizes(batch_sizes, len(order_N), num_rows)
    job = _Stack(
        batch_sizes=sizes.data_ptr(),
        order=order_N.data_ptr(),
        num_steps=len(batch_sizes),
        num_rows=num_rows,
        width=stack.width,
        num_cells=stack.num_cells,
        num_layers=len(stack.layers),
        token_stride=tokens_NP.stride(0),
        layer_stride=outputs_LNP.stride(0),
        output_stride=outputs_LNP.stride(1),
        has_skip=stack.has_skip,
        precision=FORMS.index(stack.form),
        cell_clip=stack.cell_clip,
        proj_clip=stack.proj_clip,
        layers=ctypes.addressof(stack.layers),
        tokens=tokens_NP.data_ptr(),
        outputs=outputs_LNP.data_ptr(),
        hidden=hidden_LBP.data_ptr(),
        cells=cell_LBC.data_ptr(),
    )
    kept = _rooms.of(kernels.call("stack_room", ctypes.byref(job)))
    job.room = kept.data_ptr()
    kernels.call("stack_forward", ctypes.byref(job))


class _Rooms(threading.local):
    """A thread's memory for intermediate results, kept: the system takes long to hand out new memory."""

    def __init__(self) -> None:
        self._kept: Tensor | None = None

    def of(self, num_values: int) -> Tensor:
        """Return room for so many values, to be overwritten by the thread's next call."""
        if num_values > ROOM_KEPT:
            return torch.empty(num_values, dtype=torch.float32, device="cpu")
        if self._kept is None or len(self._kept) < num_values:
            with torch.inference_mode(mode=False):
                self._kept = torch.empty(num_values, dtype=torch.float32, device="cpu")
        return self._kept


_rooms = _Rooms()


def _gate_panels(kernels: Kernels, weight_GP: Tensor) -> Tensor:
    """Return `_by_blocks` in panels, without the copy in between: (b, 4, P, PANEL)."""
    gates_4CP = weight_GP.detach().contiguous().unflatten(0, (GATES, -1))
    _, num_cells, width = gates_4CP.shape
    panels = room(num_panels(num_cells), GATES, width, PANEL)
    for gate, gate_CP in enumerate(gates_4CP):
        repack(kernels, "pack_rows", gate_CP, panels[:, gate], width, 0, GATES)
    return panels


def _by_blocks(weight_GP: Tensor) -> Tensor:
    """Order rows by blocks of PANEL cells, each with its four gates; fill up the last block with zeros."""
    gates_4CP = weight_GP.detach().unflatten(0, (GATES, -1))
    padded = functional.pad(gates_4CP, (0, 0, 0, -gates_4CP.shape[1] % PANEL))
    blocks: Tensor = padded.unflatten(1, (-1, PANEL)).transpose(0, 1).flatten(0, 2)
    return blocks.contiguous()


def _check_layer(layer: StackLayer) -> None:
    # A wrong shape would make a kernel read other memory, so this is never left out.
    num_gates, width = layer.input_GP.shape
    expected = [(layer.recurrent_GP, (num_gates, width)), (layer.bias_G, (num_gates,))]
    if layer.projection_PC is not None:
        expected.append((layer.projection_PC, (width, num_gates // GATES)))
    elif width != num_gates // GATES:
        raise InputError(f"{num_gates // GATES} cells without a projection, but a width of {width}; expected the same")
    for tensor, shape in [(layer.input_GP, (num_gates, width)), *expected]:
        if tensor.shape != shape or tensor.dtype != torch.float32 or not tensor.is_cpu:
            raise InputError(
                f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; "
                f"expected torch.float32 of shape {shape} on cpu"
            )


def _check(
    stack: PackedStack, tokens_NP: Tensor, order_N: Tensor, hidden_LBP: Tensor, cell_LBC: Tensor, outputs_LNP: Tensor
) -> None:
    (num_layers, num_rows, _), num_positions = hidden_LBP.shape, len(order_N)
    for tensor, shape, dtype in (
        (tokens_NP, (num_positions, stack.width), torch.float32),
        (order_N, (num_positions,), torch.int64),
        (hidden_LBP, (len(stack.layers), num_rows, stack.width), torch.float32),
        (cell_LBC, (num_layers, num_rows, stack.num_cells), torch.float32),
        (outputs_LNP, (num_layers, num_positions, stack.width), torch.float32),
    ):
        if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_cpu:
            raise InputError(
                f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; "
                f"expected {dtype} of shape {shape} on cpu"
            )
    for tensor in (order_N, hidden_LBP, cell_LBC):
        if not tensor.is_contiguous():
            raise InputError(f"a tensor has strides {tensor.stride()}; expected no gaps, call .contiguous()")
    for tensor in (tokens_NP, outputs_LNP):
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise InputError(f"rows have strides {tensor.stride()}; expected no gaps in a row, call .contiguous()")
    if num_positions and not (int(order_N.min()) >= 0 and int(order_N.max()) < num_positions):
        found = f"{int(order_N.min())} to {int(order_N.max())}"
        raise InputError(f"the order goes from {found}; expected 0 to {num_positions - 1}")
