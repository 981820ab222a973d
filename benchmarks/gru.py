"""Time a training step of the SQuAD model with our BiGRU and with torch's nn.GRU, in turn, on one thread.

    python benchmarks/gru.py --hidden-dim 90 --batch-size 45

The inputs are random: paragraphs of 100 to 159 tokens, questions of 6 to 19, static vectors and ELMo at both places.
Times are CPU seconds, so that other work on the machine weighs less.
"""

import argparse
import time
from statistics import median, quantiles
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmokit.nn.gru import BiGRU
from elmokit.tasks.inputs import Column, InputSizes, TokenEncoder
from elmokit.tasks.recipe import ElmoSettings
from elmokit.tasks.squad import SquadLabels, SquadModel, SquadSettings, SquadTarget
from elmokit.tasks.task import Batch

NUM_WORDS, WORD_DIM, NUM_LAYERS, LAYER_DIM = 5000, 100, 3, 256
WARM_UP = 2  # rounds


class TorchBiGRU(nn.Module):
    """The same layer by torch's packed GRU."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(input_dim, hidden_dim, batch_first=True, bidirectional=True)

    def forward(self, inputs_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return forward and backward outputs, (B, T, 2 H), zero on padding."""
        lengths_B = mask_BT.sum(dim=1)
        packed, _ = self.rnn(pack_padded_sequence(inputs_BTD, lengths_B, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(packed, batch_first=True, total_length=mask_BT.shape[1])[0]


def build(layer: type[nn.Module], hidden_dim: int) -> SquadModel:
    torch.manual_seed(0)
    sizes = InputSizes(torch.randn(NUM_WORDS, WORD_DIM), num_layers=NUM_LAYERS, layer_dim=LAYER_DIM)
    tokens = TokenEncoder(sizes, None, ElmoSettings(model="random", place="both", dropout=0.2))
    with patch("elmokit.tasks.squad.BiGRU", layer):
        return SquadModel(SquadSettings(hidden_dim=hidden_dim), SquadLabels(), tokens).train()


def make_column(lengths: list[int]) -> Column:
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    words_BT = torch.randint(1, NUM_WORDS, mask_BT.shape) * mask_BT
    return Column(mask_BT, words_BT=words_BT, layers_LND=torch.randn(NUM_LAYERS, sum(lengths), LAYER_DIM))


def make_batch(batch_size: int) -> Batch[SquadTarget]:
    rng = np.random.default_rng(0)
    columns = tuple(make_column(rng.integers(*bounds, batch_size).tolist()) for bounds in ((100, 160), (6, 20)))
    return Batch(columns, SquadTarget(torch.tensor([[2, 4]] * batch_size)))


def time_step(model: SquadModel, batch: Batch[SquadTarget]) -> float:
    start = time.process_time()
    model.zero_grad()
    model.loss(batch).backward()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-dim", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=45)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    batch = make_batch(options.batch_size)
    ours, theirs = (build(layer, options.hidden_dim) for layer in (BiGRU, TorchBiGRU))
    pairs = [(time_step(ours, batch), time_step(theirs, batch)) for _ in range(WARM_UP + options.rounds)][WARM_UP:]
    low, middle, high = quantiles([other / own for own, other in pairs], n=4)
    own_ms, other_ms = (1000 * median(times) for times in zip(*pairs, strict=True))
    print(f"BiGRU {own_ms:,.0f} ms per step, nn.GRU {other_ms:,.0f} ms, ", end="")
    print(f"{middle:.2f} times (quartiles {low:.2f}, {high:.2f})")


if __name__ == "__main__":
    main()
