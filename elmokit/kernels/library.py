"""Compiled kernels for what torch is slow at on a CPU.

They are plain C without any tie to torch's own library, compiled when the package is built (``hatch_build.py``)
and called through ctypes, which lets other Python threads run meanwhile. A package built without a compiler has
none; then ``load`` gives None and the caller does the same in torch. ``ELMOKIT_KERNELS=off`` asks for that.

Shapes: b rows alive at a step; C cells; G = 4 C gates, or the outputs of a matrix; P its inputs; W words,
K character ids a word, F filters together; n rows of logits over V words.
"""

import ctypes
import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.config import NUM_CHARS
from elmokit.errors import ConfigError, InputError
from elmokit.kernels.packed import (
    CharTables,
    ConvGradients,
    Int8Weight,
    PanelWeight,
    build_char_tables,
    conv_gradients,
    quantize,
    round_to_int8,
)

__all__ = [
    "CharTables",
    "ConvGradients",
    "Int8Weight",
    "Kernels",
    "PanelWeight",
    "available",
    "build_char_tables",
    "conv_gradients",
    "load",
    "quantize",
    "round_to_int8",
]

INTERFACE_VERSION = 13  # of isa.c
LARGEST_WORD = 2**15 - 1  # the number of a window has 16 bits in char_pool.c

_POINTER, _LONG, _FLOAT, _INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int
_REPACKING = "pack_rows", "unpack_rows", "pack_columns", "unpack_columns"
_ARGUMENTS: dict[str, list[Any]] = {
    "cell_forward": [_POINTER, _LONG, *[_POINTER] * 3, *[_LONG] * 2, _FLOAT, _INT],
    "cell_backward": [*[_POINTER] * 2, _LONG, *[_POINTER] * 4, *[_LONG] * 3, _FLOAT],
    "char_pool": [*[_POINTER] * 2, *[_LONG] * 2, *[_POINTER] * 4, _LONG, *[_POINTER] * 2, _INT],
    "char_pool_backward": [*[_POINTER] * 2, *[_LONG] * 2, *[_POINTER] * 2, _LONG, *[_POINTER] * 2],
    "highway_forward": [*[_POINTER] * 4, _LONG],
    "highway_backward": [*[_POINTER] * 7, _LONG],
    "matmul_panels": [_POINTER, _LONG, *[_POINTER] * 2, *[_LONG] * 4, _INT],
    "powers": [_POINTER, *[_LONG] * 3, *[_POINTER] * 2],
    "drop": [*[_POINTER] * 3, _LONG, _INT, _FLOAT],
    "stack_room": [_POINTER],
    "stack_forward": [_POINTER],
    "layer_forward": [_POINTER],
    "layer_backward": [_POINTER],
    "bilstm_forward": [_POINTER],
    "bilstm_backward": [_POINTER],
    "bigru_forward": [_POINTER],
    "bigru_backward": [_POINTER],
    "cross_entropy": [_POINTER],
    "adam": [_POINTER],
    "half_products": [*[_POINTER] * 3, *[_LONG] * 2],
    "outer_panels": [_POINTER, _LONG, _POINTER, *[_LONG] * 3, *[_POINTER] * 2],
    **{name: [_POINTER, *[_LONG] * 3, _POINTER, *[_LONG] * 3] for name in _REPACKING},
}
_IN_BF16 = "matmul_panels", "layer_forward", "layer_backward", "cross_entropy", "outer_panels", *_REPACKING[::2]
_ARGUMENTS |= {f"{name}_bf16": _ARGUMENTS[name] for name in _IN_BF16}
_RESULTS = {"char_pool": _INT, "stack_room": ctypes.c_int64}


@dataclass(frozen=True)
class HighwayGradients:
    """The gradients of what a highway mixes."""

    gate_WF: Tensor  # before squashing
    transform_WF: Tensor
    inputs_WF: Tensor  # the part that comes neither through gates nor transforms


class Kernels:
    """The kernels of one instruction set.

    They take float32 tensors in CPU memory with contiguous rows and reject others. They know nothing of autograd.
    """

    def __init__(self, library: ctypes.CDLL, isa: str) -> None:
        self.isa = isa
        self._functions: dict[str, Any] = {}
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, f"{name}_{isa}")
            function.argtypes, function.restype = arguments, _RESULTS.get(name)
            self._functions[name] = function

    @property
    def has_bf16(self) -> bool:
        """True on machines with instructions for bfloat16; elsewhere such products are slower than in float32."""
        return self.isa.endswith("bf16")

    @property
    def has_vnni(self) -> bool:
        """True on machines with instructions for sums of four products of bytes."""
        return self.isa.startswith(("avx512", "amx"))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a C function by name. The caller checks its arguments."""
        return self._functions[name](*arguments)

    def cell_forward(
        self,
        gates_bG: Tensor,
        before_bC: Tensor,
        after_bC: Tensor,
        squashed_bC: Tensor,
        *,
        clip: float | None,
        keep_gates: bool,
    ) -> None:
        """Advance the cells of every row: write the new cells and what they let out.

        ``gates_bG`` are blocks of input, forget, output and candidate before squashing, biases added; with
        ``keep_gates`` they are squashed in place. ``before_bC`` and ``after_bC`` may be one tensor.
        """
        num_rows, num_cells = before_bC.shape
        self._functions["cell_forward"](
            *_rows(gates_bG, num_rows, 4 * num_cells),
            *[_whole(part, num_rows, num_cells) for part in (before_bC, after_bC, squashed_bC)],
            num_rows,
            num_cells,
            math.nan if clip is None else clip,
            keep_gates,
        )

    def cell_backward(
        self,
        grad_bC: Tensor,
        gates_bG: Tensor,
        after_bC: Tensor,
        before_bC: Tensor,
        cell_grad_bC: Tensor,
        gates_grad_bG: Tensor,
        *,
        clip: float | None,
    ) -> None:
        """From the gradient of what the cells let out to those of their gates; moves ``cell_grad_bC`` one step back.

        ``gates_bG`` are squashed, as ``cell_forward`` keeps them.
        """
        num_rows, num_cells = before_bC.shape
        self._functions["cell_backward"](
            _whole(grad_bC, num_rows, num_cells),
            *_rows(gates_bG, num_rows, 4 * num_cells),
            *[_whole(part, num_rows, num_cells) for part in (after_bC, before_bC, cell_grad_bC)],
            *_rows(gates_grad_bG, num_rows, 4 * num_cells),
            num_rows,
            num_cells,
            math.nan if clip is None else clip,
        )

    def char_pool(self, char_ids_WK: Tensor, tables: CharTables) -> Tensor:
        """Every filter's strongest answer anywhere in each word, (W, F)."""
        return self._char_pool(char_ids_WK, tables, winners_WF=None)

    def char_pool_learning(self, char_ids_WK: Tensor, tables: CharTables) -> tuple[Tensor, Tensor]:
        """Return the result of `char_pool` and the window of each maximum, which `char_pool_backward` needs."""
        shape = len(char_ids_WK), len(tables.bias)
        winners_WF = torch.empty(shape, dtype=torch.int16, device="cpu")
        return self._char_pool(char_ids_WK, tables, winners_WF=winners_WF), winners_WF

    def _char_pool(self, char_ids_WK: Tensor, tables: CharTables, *, winners_WF: Tensor | None) -> Tensor:
        num_words, num_chars = char_ids_WK.shape
        _check_windows(num_chars, int(tables.widths.max()))
        lengths_W = torch.empty(num_words, dtype=torch.int64, device="cpu")
        # Written out: a program may have set other defaults than C writes.
        pooled_WF = torch.empty(num_words, tables.bias.shape[0], dtype=torch.float32, device="cpu")
        failed = self._functions["char_pool"](
            _whole(char_ids_WK, num_words, num_chars, dtype=torch.int64),
            lengths_W.data_ptr(),
            num_words,
            num_chars,
            tables.table.data_ptr(),
            tables.bias.data_ptr(),
            tables.widths.data_ptr(),
            tables.counts.data_ptr(),
            len(tables.widths),
            pooled_WF.data_ptr(),
            None if winners_WF is None else winners_WF.data_ptr(),
            tables.activation == "tanh",
        )
        if failed:
            found = f"{int(char_ids_WK.min())} to {int(char_ids_WK.max())}"
            raise InputError(f"character ids go from {found}; expected 0 to {NUM_CHARS}")
        return pooled_WF

    def char_pool_backward(
        self, char_ids_WK: Tensor, winners_WF: Tensor, grad_WF: Tensor, tables: CharTables
    ) -> Tensor:
        """Return the gradient of ``tables.table``, given that of the filters' maxima before bias and activation.

        ``char_ids_WK`` and ``winners_WF`` are those of `char_pool_learning`, and are not looked at again.
        """
        num_words, num_chars = char_ids_WK.shape
        num_filters = tables.bias.shape[0]
        table_grad = torch.zeros_like(tables.table)
        self._functions["char_pool_backward"](
            _whole(char_ids_WK, num_words, num_chars, dtype=torch.int64),
            _whole(winners_WF, num_words, num_filters, dtype=torch.int16),
            num_words,
            num_chars,
            tables.widths.data_ptr(),
            tables.counts.data_ptr(),
            len(tables.widths),
            _whole(grad_WF, num_words, num_filters),
            table_grad.data_ptr(),
        )
        return table_grad

    def highway_forward(self, gate_WF: Tensor, transform_WF: Tensor, inputs_WF: Tensor) -> Tensor:
        """Return the mix of a highway's inputs and their transforms, (W, F).

        ``gate_WF`` and ``transform_WF`` come as the products gave them, biases added, and are squashed in place.
        """
        mixed_WF = torch.empty_like(inputs_WF)
        self._functions["highway_forward"](
            *[_whole(part, *inputs_WF.shape) for part in (gate_WF, transform_WF, inputs_WF, mixed_WF)],
            inputs_WF.numel(),
        )
        return mixed_WF

    def highway_backward(
        self, grad_WF: Tensor, gate_WF: Tensor, transform_WF: Tensor, inputs_WF: Tensor
    ) -> HighwayGradients:
        """From the gradient of a highway's mix to those of what was mixed.

        ``gate_WF`` and ``transform_WF`` are squashed, as ``highway_forward`` leaves them.
        """
        found = HighwayGradients(*(torch.empty_like(inputs_WF) for _ in range(3)))
        parts = grad_WF, gate_WF, transform_WF, inputs_WF, found.gate_WF, found.transform_WF, found.inputs_WF
        self._functions["highway_backward"](*[_whole(part, *inputs_WF.shape) for part in parts], inputs_WF.numel())
        return found

    def drop(self, inputs_nD: Tensor, drawn_nD: Tensor, *, least: int, scale: float) -> Tensor:
        """Return the inputs times ``scale``, zero where the 16 bits drawn are less than ``least``, (n, D)."""
        shape = inputs_nD.shape
        outputs_nD = torch.empty_like(inputs_nD)
        parts = _whole(inputs_nD, *shape), _whole(drawn_nD, *shape, dtype=torch.int16), outputs_nD.data_ptr()
        self._functions["drop"](*parts, inputs_nD.numel(), least, scale)
        return outputs_nD

    def matmul_panels(self, out_bG: Tensor, inputs_bP: Tensor, weight: PanelWeight, *, accumulate: bool) -> None:
        """Write ``inputs . weight^T`` to ``out_bG``, or add it."""
        num_rows = inputs_bP.shape[0]
        self._functions["matmul_panels"](
            *_rows(inputs_bP, num_rows, weight.num_inputs),
            weight.panels.data_ptr(),
            *_rows(out_bG, num_rows, weight.num_outputs),
            num_rows,
            weight.num_inputs,
            weight.num_outputs,
            accumulate,
        )

    def powers(self, logits_nV: Tensor, top_n: Tensor) -> Tensor:
        """Put e to the power of each logit less its row's largest in place of the logits; return each row's sum.

        ``top_n`` holds a logit of every row that is not among these, and gets the largest of all.
        """
        num_rows, num_words = logits_nV.shape
        total_n = torch.empty_like(top_n)
        self._functions["powers"](
            *_rows(logits_nV, num_rows, num_words),
            num_rows,
            num_words,
            _whole(top_n[:, None], num_rows, 1),
            total_n.data_ptr(),
        )
        return total_n


@cache
def load() -> Kernels | None:
    """Return the kernels for this machine, or None if there are none or they are switched off."""
    wanted = os.environ.get("ELMOKIT_KERNELS", "")
    if wanted not in ("", "off"):
        raise ConfigError(f"ELMOKIT_KERNELS is {wanted!r}; expected 'off' or nothing")
    library = None if wanted == "off" else open_library()
    if library is None:
        return None
    library.best_isa.restype = ctypes.c_char_p
    return Kernels(library, library.best_isa().decode())


def available() -> bool:
    """Return True if compiled kernels exist, run on this machine and are not switched off."""
    return load() is not None


def open_library(folder: Path = Path(__file__).parent) -> ctypes.CDLL | None:
    """Return the compiled library; None if it is absent, for another machine, or of another version."""
    for path in folder.glob("libelmokit_kernels.*"):
        try:
            library = ctypes.CDLL(str(path))
            version = library.interface_version()
        except (OSError, AttributeError):  # for another machine, or no library of ours
            continue
        if version == INTERFACE_VERSION:
            return library
    return None


def _check_windows(num_chars: int, widest: int) -> None:
    if widest > num_chars:
        raise InputError(f"words of {num_chars} character ids are shorter than the widest filter, {widest}")
    if num_chars > LARGEST_WORD:
        raise InputError(f"words of {num_chars} character ids are too long; expected at most {LARGEST_WORD}")


def _rows(tensor: Tensor, num_rows: int, num_columns: int) -> tuple[int, int]:
    """Return the address of a matrix and the stride of its rows."""
    _check(tensor, num_rows, num_columns, torch.float32)
    if num_columns > 1 and tensor.stride(1) != 1:
        raise InputError(f"a row's values lie {tensor.stride(1)} apart; expected 1, call .contiguous()")
    return tensor.data_ptr(), tensor.stride(0)


def _whole(tensor: Tensor, num_rows: int, num_columns: int, *, dtype: torch.dtype = torch.float32) -> int:
    """Return the address of a contiguous matrix."""
    _check(tensor, num_rows, num_columns, dtype)
    if not tensor.is_contiguous():
        raise InputError(f"a matrix has strides {tensor.stride()}; expected no gaps, call .contiguous()")
    return tensor.data_ptr()


def _check(tensor: Tensor, num_rows: int, num_columns: int, dtype: torch.dtype) -> None:
    # A wrong shape would make a kernel write over other memory, so this is never left out.
    if tensor.shape != (num_rows, num_columns) or tensor.dtype != dtype or not tensor.is_cpu:
        raise InputError(
            f"a kernel got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}; "
            f"expected {dtype} of shape {(num_rows, num_columns)} on cpu"
        )
