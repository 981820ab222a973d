"""One direction of LSTM layers with projections, clipped as in the published models.

Sequences come packed: time-major, rows by falling length, so that step t is the next ``batch_sizes[t]``
rows and no work is done on padding. The input half of a layer is one matrix product for all its steps.

Shapes: N positions of all rows, packed; B rows; b rows alive at a step; P width of inputs and outputs;
C cells; G = 4 C gates, in blocks of input, forget, output, candidate; L layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.config import LSTMConfig
from elmokit.kernels.library import Kernels, round_to_int8
from elmokit.kernels.panels import BF16, FP32
from elmokit.kernels.stack import PackedStack, Precision, StackLayer, run_stack
from elmokit.model.cell import advance_cell, cell_backward, stop_at_clip
from elmokit.model.gate_room import chunks_of, gate_room
from elmokit.model.layer_kernel import KernelLayer
from elmokit.model.packing import steps_of
from elmokit.model.products import (
    MixedProduct,
    Product,
    TorchProduct,
    exact_product,
    kernels_for,
    learns,
)
from elmokit.model.stack_kernel import StackCache, limit, with_forget_bias
from elmokit.model.uncompiled import uncompiled

Drop = Callable[[Tensor], Tensor]
PackedRun = tuple[Kernels, PackedStack]


@dataclass(frozen=True)
class LSTMState:
    """LSTM state of every row and layer, in one direction."""

    hidden_LBP: Tensor
    cell_LBC: Tensor

    def select(self, rows: Tensor) -> "LSTMState":
        """Return the state of some rows, in the order given."""
        return LSTMState(self.hidden_LBP[:, rows], self.cell_LBC[:, rows])

    def contiguous(self) -> "LSTMState":
        """Return the state in memory without gaps; the same tensors where they have none."""
        return LSTMState(self.hidden_LBP.contiguous(), self.cell_LBC.contiguous())

    def pair(self) -> tuple[Tensor, Tensor]:
        """Return hidden and cell state."""
        return self.hidden_LBP, self.cell_LBC


@dataclass(frozen=True)
class StackRun:
    """One direction's answer: every layer's outputs, and where its state ended."""

    outputs: list[Tensor]  # one (N, P) a layer
    final: LSTMState


class LSTMStack(nn.Module):
    """The LSTM layers of one direction."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(LSTMLayer(config) for _ in range(config.num_layers))
        self._cache = StackCache()

    def zero_state(self, num_rows: int) -> LSTMState:
        """Return the state of rows that have read nothing."""
        first = self.layers[0]
        assert isinstance(first, LSTMLayer)
        like = first.bias  # by its name: a replica of DataParallel has no parameters()
        return LSTMState(
            like.new_zeros(self.config.num_layers, num_rows, self.config.proj_dim),
            like.new_zeros(self.config.num_layers, num_rows, self.config.cell_dim),
        )

    def mix_precision(self) -> None:
        """From now on, learn with products in bfloat16; cells, clips and weights stay in float32."""
        for layer in self.layers:
            assert isinstance(layer, LSTMLayer)
            layer.mixed = True

    def pack_weights(self, precision: Precision) -> None:
        """Run with weights packed in this precision wherever no gradient is asked for, from now on."""
        self._cache.keeps, self._cache.precision = True, precision
        for layer in self.layers:
            assert isinstance(layer, LSTMLayer)
            layer.rounded = precision == "int8"

    def packed(self, inputs_NP: Tensor) -> PackedRun | None:
        """Return what runs these inputs in one C call; None if a gradient is asked for, or without kernels."""
        layers = cast("list[LSTMLayer]", list(self.layers))
        kernels = None if any(layer.learns(inputs_NP) for layer in layers) else kernels_for(inputs_NP)
        if kernels is None or not all(kernels_for(layer.bias) for layer in layers):
            return None
        weights, num_positions = [layer.weights() for layer in layers], len(inputs_NP)
        has_skip = self.config.skip_connections
        stack = self._cache.get(kernels, weights, has_skip=has_skip, num_positions=num_positions)
        return None if stack is None else (kernels, stack)

    def forward(
        self, inputs_NP: Tensor, batch_sizes: Sequence[int], start: LSTMState, *, drop: Drop | None = None
    ) -> StackRun:
        """Read packed rows from ``start``. In pretraining ``drop`` is laid on every layer's input."""
        ready = None if drop is not None else self.packed(inputs_NP)
        if ready is not None:
            return _run_by_kernel(*ready, inputs_NP, batch_sizes, start)
        return self.run_layers(inputs_NP, batch_sizes, start, drop=drop)

    def run_layers(
        self, inputs_NP: Tensor, batch_sizes: Sequence[int], start: LSTMState, *, drop: Drop | None = None
    ) -> StackRun:
        """Do the same layer by layer."""
        outputs, hiddens, cells = [], [], []
        below_NP = inputs_NP
        for index, layer in enumerate(self.layers):
            if drop is not None:
                below_NP = drop(below_NP)
            above_NP, hidden_BP, cell_BC = layer(below_NP, batch_sizes, start.hidden_LBP[index], start.cell_LBC[index])
            if self.config.skip_connections and index > 0:
                # The residual is added to what goes up, not to what the layer remembers, and it is
                # the dropped input that is added; layer 0 has none: all three as in bilm-tf.
                above_NP = above_NP + below_NP
            outputs.append(above_NP)
            hiddens.append(hidden_BP)
            cells.append(cell_BC)
            below_NP = above_NP
        return StackRun(outputs, LSTMState(torch.stack(hiddens), torch.stack(cells)))


class LSTMLayer(nn.Module):
    """An LSTM whose cells are clipped, projected, and clipped again. Its state is cut from the graph."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        num_gates = 4 * config.cell_dim
        self.cell_clip = config.cell_clip
        self.proj_clip = config.proj_clip if config.has_projection else None  # bilm-tf clips only what it projects
        self.input_weight = nn.Parameter(torch.empty(num_gates, config.proj_dim))
        self.recurrent_weight = nn.Parameter(torch.empty(num_gates, config.proj_dim))
        self.bias = nn.Parameter(torch.empty(num_gates))
        self.projection = nn.Parameter(torch.empty(config.proj_dim, config.cell_dim)) if config.has_projection else None
        self.mixed = False  # whether it learns with products in bfloat16
        self.rounded = False  # whether it runs with weights rounded to eight bits
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform over the kernel as a whole (inputs and recurrence together), as TensorFlow does."""
        num_gates, width = self.input_weight.shape
        limit = (6.0 / (2 * width + num_gates)) ** 0.5
        nn.init.uniform_(self.input_weight, -limit, limit)
        nn.init.uniform_(self.recurrent_weight, -limit, limit)
        nn.init.zeros_(self.bias)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def learns(self, inputs_NP: Tensor) -> bool:
        """Return whether the inputs or a weight need a gradient."""
        weights = (self.input_weight, self.recurrent_weight, self.bias, self.projection)
        return learns(inputs_NP, *[weight for weight in weights if weight is not None])

    def weights(self) -> StackLayer:
        """Return the weights as they are; the bias is without the forget bias."""
        clips = limit(self.cell_clip), limit(self.proj_clip)
        return StackLayer(self.input_weight, self.recurrent_weight, self.bias, self.projection, *clips)

    def forward(
        self, inputs_NP: Tensor, batch_sizes: Sequence[int], hidden_BP: Tensor, cell_BC: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs (N, P), and the hidden (B, P) and cell (B, C) state in which every row ended."""
        rows = _Rows(batch_sizes, hidden_BP, cell_BC)
        clips = _Clips(self.cell_clip, self.proj_clip)
        weights = (self.input_weight, self.recurrent_weight, self.bias, self.projection)
        if self.learns(inputs_NP):
            kernels = kernels_for(inputs_NP)
            if kernels is not None and self.projection is not None:
                return self._learn_by_kernel(kernels, inputs_NP, rows)
            outputs: tuple[Tensor, Tensor, Tensor] = _TrainableLSTM.apply(  # type: ignore[no-untyped-call]
                inputs_NP, *weights, rows, clips, self.mixed
            )
            return outputs
        return _run(inputs_NP, self._products(), self.bias, rows, clips)

    def _learn_by_kernel(self, kernels: Kernels, inputs_NP: Tensor, rows: "_Rows") -> tuple[Tensor, Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor, Tensor] = KernelLayer.apply(  # type: ignore[no-untyped-call]
            kernels,
            inputs_NP,
            self.input_weight,
            self.recurrent_weight,
            with_forget_bias(self.bias),
            self.projection,
            rows.batch_sizes,
            (rows.hidden_BP, rows.cell_BC),
            (limit(self.cell_clip), limit(self.proj_clip)),
            BF16 if self.mixed else FP32,
        )
        return outputs

    def _products(self) -> "_Products":
        make = (lambda weight: TorchProduct(round_to_int8(weight))) if self.rounded else TorchProduct
        projection = None if self.projection is None else make(self.projection)
        return _Products(make(self.input_weight), make(self.recurrent_weight), projection)


def _run_by_kernel(
    kernels: Kernels, stack: PackedStack, inputs_NP: Tensor, batch_sizes: Sequence[int], start: LSTMState
) -> StackRun:
    final = LSTMState(start.hidden_LBP.detach().clone(), start.cell_LBC.detach().clone()).contiguous()
    outputs_LNP = inputs_NP.new_empty(len(final.hidden_LBP), *inputs_NP.shape)
    in_order_N = torch.arange(len(inputs_NP), device="cpu")
    run_stack(kernels, stack, inputs_NP.detach(), in_order_N, batch_sizes, final.pair(), outputs_LNP)
    return StackRun(list(outputs_LNP), final)


@dataclass(frozen=True)
class _Rows:
    batch_sizes: Sequence[int]
    hidden_BP: Tensor
    cell_BC: Tensor


@dataclass(frozen=True)
class _Clips:
    cell: float | None
    projection: float | None


@dataclass(frozen=True)
class _Products:
    inputs: Product
    recurrent: Product
    projection: Product | None


def _run(
    inputs_NP: Tensor, products: _Products, bias_G: Tensor, rows: _Rows, clips: _Clips
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the forward pass without storing anything for a backward pass."""
    bias_G = with_forget_bias(bias_G)
    hidden_BP, cell_BC = rows.hidden_BP.clone(), rows.cell_BC.clone()
    squashed_BC = torch.empty_like(cell_BC)
    outputs_NP = inputs_NP.new_empty(inputs_NP.shape[0], hidden_BP.shape[1])
    chunks = list(chunks_of(rows.batch_sizes, bytes_a_row=4 * bias_G.shape[0]))
    most_positions = max((sum(sizes) for _, sizes in chunks), default=0)
    room_NG = gate_room.of(inputs_NP, most_positions * len(bias_G)).view(most_positions, len(bias_G))
    for first, sizes in chunks:
        num_positions = sum(sizes)
        gates_NG = room_NG[:num_positions].copy_(bias_G)
        products.inputs.add_to(gates_NG, inputs_NP[first : first + num_positions])
        offset = 0
        for size in sizes:
            gates_bG = gates_NG[offset : offset + size]
            cell_bC = cell_BC[:size]
            products.recurrent.add_to(gates_bG, hidden_BP[:size])
            squashed_bC = squashed_BC[:size]
            advance_cell(gates_bG, cell_bC, cell_bC, squashed_bC, clips.cell, keep_gates=False)
            hidden_bP = outputs_NP[first + offset : first + offset + size]
            _project(squashed_bC, products.projection, hidden_bP, clips.projection)
            hidden_BP[:size] = hidden_bP
            offset += size
    return outputs_NP, hidden_BP, cell_BC


class _TrainableLSTM(torch.autograd.Function):
    """The same with a backward pass: weight gradients are one matrix product over all steps.

    The states in which it starts and ends carry no gradient: training cuts them anyway.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs_NP: Tensor,
        input_weight_GP: Tensor,
        recurrent_weight_GP: Tensor,
        bias_G: Tensor,
        projection_PC: Tensor | None,
        rows: _Rows,
        clips: _Clips,
        mixed: bool,  # noqa: FBT001  autograd passes no names
    ) -> tuple[Tensor, Tensor, Tensor]:
        make = MixedProduct if mixed else exact_product
        products = _Products(
            (MixedProduct if mixed else TorchProduct)(input_weight_GP),
            make(recurrent_weight_GP),
            None if projection_PC is None else make(projection_PC),
        )
        hidden_BP, cell_BC = rows.hidden_BP.clone(), rows.cell_BC
        gates_NG = with_forget_bias(bias_G).repeat(len(inputs_NP), 1)
        products.inputs.add_to(gates_NG, inputs_NP)
        cells_NC = gates_NG.new_empty(gates_NG.shape[0], cell_BC.shape[1])
        squashed_NC = torch.empty_like(cells_NC)
        outputs_NP = gates_NG.new_empty(gates_NG.shape[0], hidden_BP.shape[1])
        before_bC = cell_BC
        for step in steps_of(rows.batch_sizes):
            size = step.stop - step.start
            products.recurrent.add_to(gates_NG[step], hidden_BP[:size])
            advance_cell(
                gates_NG[step], before_bC[:size], cells_NC[step], squashed_NC[step], clips.cell, keep_gates=True
            )
            _project(squashed_NC[step], products.projection, outputs_NP[step], clips.projection)
            hidden_BP[:size] = outputs_NP[step]
            before_bC = cells_NC[step]
        final_cell_BC = cell_BC.clone()
        for step in steps_of(rows.batch_sizes):  # rows that end early keep the cell of their own last step
            final_cell_BC[: step.stop - step.start] = cells_NC[step]
        ctx.save_for_backward(
            inputs_NP, input_weight_GP, recurrent_weight_GP, projection_PC, gates_NG, cells_NC, squashed_NC, outputs_NP
        )
        ctx.rows, ctx.clips, ctx.mixed = rows, clips, mixed
        ctx.mark_non_differentiable(hidden_BP, final_cell_BC)
        return outputs_NP, hidden_BP, final_cell_BC

    @staticmethod
    @once_differentiable
    @uncompiled
    def backward(ctx: Any, outputs_grad_NP: Tensor, *_state_grads: None) -> tuple[Tensor | None, ...]:
        inputs_NP, input_weight_GP, recurrent_weight_GP, projection_PC, gates_NG, cells_NC, squashed_NC, outputs_NP = (
            ctx.saved_tensors
        )
        rows, clips = ctx.rows, ctx.clips
        gates_grad_NG = torch.empty_like(gates_NG)
        projected_grad_NP = torch.empty_like(outputs_NP)  # at the projection, past its clip
        hidden_grad_BP = torch.zeros_like(rows.hidden_BP)
        cell_grad_BC = torch.zeros_like(rows.cell_BC)
        steps = list(steps_of(rows.batch_sizes))
        make = MixedProduct if ctx.mixed else exact_product
        through_recurrence = make(recurrent_weight_GP.t())
        through_projection = None if projection_PC is None else make(projection_PC.t())
        for index in reversed(range(len(steps))):
            step = steps[index]
            size = step.stop - step.start
            before_bC = cells_NC[steps[index - 1]][:size] if index else rows.cell_BC[:size]
            grad_bP = torch.add(outputs_grad_NP[step], hidden_grad_BP[:size], out=projected_grad_NP[step])
            stop_at_clip(grad_bP, outputs_NP[step], clips.projection)
            grad_bC = grad_bP
            if through_projection is not None:
                grad_bC = torch.empty_like(cells_NC[step])
                through_projection.write_to(grad_bC, grad_bP)
            cell_backward(
                grad_bC, gates_NG[step], cells_NC[step], before_bC, cell_grad_BC[:size], gates_grad_NG[step], clips.cell
            )
            through_recurrence.write_to(hidden_grad_BP[:size], gates_grad_NG[step])
        needs_input, needs_weights = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:5])
        inputs_grad = _multiply(gates_grad_NG, input_weight_GP, mixed=ctx.mixed) if needs_input else None
        if not needs_weights:
            return (inputs_grad, *[None] * 7)
        before_NP = _previous_outputs(outputs_NP, rows, steps)
        return (
            inputs_grad,
            _multiply(gates_grad_NG.t(), inputs_NP, mixed=ctx.mixed),
            _multiply(gates_grad_NG.t(), before_NP, mixed=ctx.mixed),
            gates_grad_NG.sum(dim=0),
            None if projection_PC is None else _multiply(projected_grad_NP.t(), squashed_NC, mixed=ctx.mixed),
            None,
            None,
            None,
        )


def _project(squashed_bC: Tensor, projection: Product | None, hidden_bP: Tensor, clip: float | None) -> None:
    """Write what a layer puts out into ``hidden_bP``."""
    if projection is None:
        hidden_bP.copy_(squashed_bC)
    else:
        projection.write_to(hidden_bP, squashed_bC)
    if clip is not None:
        hidden_bP.clamp_(-clip, clip)


def _multiply(left: Tensor, right: Tensor, *, mixed: bool) -> Tensor:
    """Return a product over all steps at once: the gradient of a weight, or of the inputs."""
    return (left.bfloat16() @ right.bfloat16()).float() if mixed else left @ right


def _previous_outputs(outputs_NP: Tensor, rows: _Rows, steps: list[slice]) -> Tensor:
    """Return the input of every position's recurrence: its row's output one step before."""
    earlier = [rows.hidden_BP[: rows.batch_sizes[0]]] if steps else []
    earlier += [outputs_NP[before][: now.stop - now.start] for before, now in pairwise(steps)]
    return torch.cat(earlier) if earlier else outputs_NP
