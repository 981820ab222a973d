"""Gradients and LSTM states of all ranks.

The global batch, its dropout and its negatives do not depend on the number of ranks, so only rounding differs.
DistributedDataParallel is not used: it hooks into one backward pass, and a step here runs two, on threads.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from elmokit.model.bilm import BiLMState
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.optimizer import RowGradients
from elmokit.runs.world import World, translate_dist_errors


def sum_gradients(model: LanguageModel, rows: RowGradients | None, losses: Tensor, world: World) -> None:
    """Sum the gradients and losses of all ranks, in place, in one message."""
    if world.size == 1:
        return
    parts = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if rows is not None:
        parts += [rows.weight_RP, rows.bias_R]
    parts.append(losses)
    together = torch.cat([part.reshape(-1).float() for part in parts])
    with translate_dist_errors():
        dist.all_reduce(together, group=world.steps)
    for part, total in zip(parts, together.split([part.numel() for part in parts]), strict=True):
        part.copy_(total.view_as(part))


def gather_rows(state: BiLMState, world: World) -> BiLMState:
    """Return the rows of all ranks, in order."""
    if world.size == 1:
        return state
    parts = {}
    for name, part in state.parts().items():
        everyone = [torch.empty_like(part) for _ in range(world.size)]
        with translate_dist_errors():
            dist.all_gather(everyone, part.contiguous(), group=world.steps)
        parts[name] = torch.cat(everyone, dim=1)
    return BiLMState.from_parts(parts)
