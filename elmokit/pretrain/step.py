"""Losses and gradients of one training step.

The two directions share only the token layer and the softmax, so each runs on its own thread, forward and backward.
Each starts from a detached copy of the token layer's output; their gradients are added there.

Shapes: N positions, W distinct words, P width, R rows of the softmax.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.directions import run_both
from elmokit.model.language_model import LanguageModel
from elmokit.model.lstm import Drop, LSTMStack, LSTMState
from elmokit.model.products import kernels_for
from elmokit.model.softmax import LossGrads, Softmax, full_loss, sampled_loss
from elmokit.pretrain.batches import DirectionBatch, PretrainBatch
from elmokit.pretrain.optimizer import RowGradients
from elmokit.pretrain.recipe import TrainedDirection

NUM_HALVES = 2  # of a batch's words, each encoded on one core


@dataclass(frozen=True)
class StepResult:
    """Losses, softmax gradient and final state of this rank's rows; other gradients are in the parameters."""

    forward_loss: Tensor  # summed over positions
    backward_loss: Tensor
    softmax_rows: RowGradients | None  # None if the softmax has a whole gradient
    final: BiLMState


@dataclass(frozen=True)
class _DirectionRun:
    softmax: LossGrads
    tokens_grad_WP: Tensor | None  # None if the biLM is frozen
    final: LSTMState


def compute_gradients(
    model: LanguageModel,
    batch: PretrainBatch,
    start: BiLMState,
    *,
    drop: Callable[[str], Drop],
    scale: float,
    executor: Executor | None,
    mixed: bool = False,
    frozen_bilm: bool = False,
    direction: TrainedDirection = "both",
) -> StepResult:
    """Set every parameter's gradient to that of ``scale`` times the two directions' summed losses.

    With ``mixed`` the softmax and the token layer compute products in bfloat16, as LSTMs do after `BiLM.mix_precision`.
    With ``frozen_bilm`` only the softmax gets a gradient; parameters without one are neither shared nor updated.
    A single ``direction`` leaves the other one's LSTMs without a gradient.
    """
    model.zero_grad(set_to_none=True)
    encoded = _encode(model.bilm, batch.char_ids_WC, executor, mixed=mixed, frozen_bilm=frozen_bilm)
    tokens_WP = torch.cat([part.detach() for part in encoded])
    parts = (
        (model.bilm.forward_lstm, batch.forward, start.forward, drop("forward")),
        (model.bilm.backward_lstm, batch.backward, start.backward, drop("backward")),
    )
    calls = [(model.softmax, tokens_WP, *part, scale, mixed, frozen_bilm) for part in parts]
    forward = backward = None
    if direction == "both":
        forward, backward = run_both(executor, _run_direction, *calls)
    elif direction == "forward":
        forward = _run_direction(*calls[0])
    else:
        backward = _run_direction(*calls[1])
    grads = [run.tokens_grad_WP for run in (forward, backward) if run is not None and run.tokens_grad_WP is not None]
    if grads:
        _learn_encoding(encoded, grads[0] if len(grads) == 1 else grads[0] + grads[1], executor)
    rows = _softmax_gradients(
        model.softmax,
        [
            (part, run.softmax)
            for part, run in ((batch.forward, forward), (batch.backward, backward))
            if run is not None
        ],
        scale,
    )
    none = tokens_WP.new_zeros((), dtype=torch.double)
    return StepResult(
        forward_loss=none if forward is None else forward.softmax.loss,
        backward_loss=none if backward is None else backward.softmax.loss,
        softmax_rows=rows,
        final=BiLMState(
            start.forward if forward is None else forward.final, start.backward if backward is None else backward.final
        ),
    )


def _encode(
    bilm: BiLM, char_ids_WC: Tensor, executor: Executor | None, *, mixed: bool, frozen_bilm: bool
) -> list[Tensor]:
    """Return the token layer of the words, in two halves computed in parallel where torch uses two threads."""
    by_torch = mixed and kernels_for(bilm.zero_state(0).forward.cell_LBC) is None

    def encode(part_WC: Tensor) -> Tensor:
        # Set inside the thread, because these settings are per thread.
        autocast = torch.autocast(part_WC.device.type, dtype=torch.bfloat16, enabled=by_torch)
        with autocast, torch.set_grad_enabled(not frozen_bilm):
            return bilm.encode_tokens(part_WC)

    if executor is None or torch.get_num_threads() != NUM_HALVES:
        return [encode(char_ids_WC)]
    first_WC, second_WC = char_ids_WC.tensor_split(NUM_HALVES)
    return list(run_both(executor, encode, (first_WC,), (second_WC,)))


def _learn_encoding(encoded: list[Tensor], grad_WP: Tensor, executor: Executor | None) -> None:
    """Set the gradients of the encoder. The halves may add theirs in either order: a sum of two terms commutes."""
    if len(encoded) == 1:
        encoded[0].backward(grad_WP)
        return
    grads = grad_WP.split([len(part) for part in encoded])
    run_both(executor, Tensor.backward, (encoded[0], grads[0]), (encoded[1], grads[1]))


def _run_direction(
    softmax: Softmax,
    tokens_WP: Tensor,
    stack: LSTMStack,
    batch: DirectionBatch,
    start: LSTMState,
    drop: Drop,
    scale: float,
    mixed: bool,  # noqa: FBT001  called by an executor
    frozen_bilm: bool,  # noqa: FBT001
) -> _DirectionRun:
    tokens_WP = tokens_WP.detach().requires_grad_(not frozen_bilm)
    num_rows = start.hidden_LBP.shape[1]
    num_steps = len(batch.words_N) // num_rows
    with torch.set_grad_enabled(not frozen_bilm):  # here, because the setting is per thread
        run = stack(functional.embedding(batch.words_N, tokens_WP), [num_rows] * num_steps, start, drop=drop)
        top_NP = drop(run.outputs[-1])
    if batch.candidates is None:
        found = full_loss(softmax, top_NP.detach(), batch.targets_N, mixed=mixed)
    else:
        found = sampled_loss(softmax, top_NP.detach(), batch.targets_N, batch.candidates, mixed=mixed)
    if not frozen_bilm:
        top_NP.backward(found.hidden_NP * scale)
    return _DirectionRun(found, tokens_WP.grad, run.final)


def _softmax_gradients(
    softmax: Softmax, parts: Sequence[tuple[DirectionBatch, LossGrads]], scale: float
) -> RowGradients | None:
    """Return one row per word that any rank used; with the full softmax, set the whole gradient instead."""
    used = [batch.rows for batch, _ in parts if batch.rows is not None]
    rows_R = torch.cat(used).unique() if used else torch.arange(len(softmax.bias), device=softmax.bias.device)
    weight_RP = softmax.weight.new_zeros(len(rows_R), softmax.weight.shape[1])
    bias_R = softmax.bias.new_zeros(len(rows_R))
    for _, part in parts:
        place = torch.searchsorted(rows_R, part.rows_R)
        weight_RP.index_add_(0, place, part.weight_RP, alpha=scale)
        bias_R.index_add_(0, place, part.bias_R, alpha=scale)
    if used:
        return RowGradients(rows_R, weight_RP, bias_R)
    softmax.weight.grad, softmax.bias.grad = weight_RP, bias_R
    return None
