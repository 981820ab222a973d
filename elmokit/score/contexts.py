"""Hidden states from which each direction predicts the words of a sentence.

A sentence is ``<S> w1 … wn </S>``. Forward reads all but the last word and predicts all but the first. Backward reads
all but the first, from the right, and predicts all but the last. So each direction has n + 1 steps, and no step has
seen the word that it predicts.

Shapes: W distinct words, C characters per word, B sentences, N words of B sentences with their boundaries, M = N - B
steps of them, in the order of the text, P width.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.embed.state import StartStates
from elmokit.model.bilm import BiLM
from elmokit.model.directions import run_both
from elmokit.model.lstm import LSTMStack, LSTMState
from elmokit.model.packing import invert, plan_packing
from elmokit.text.grouping import batches_by_length

WINDOW_WORDS = 2**15  # read together: each distinct word is encoded once, and batches have similar lengths
MOST_POSITIONS = 16_384  # per batch: bounds memory for sentences of any length


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences as indices into their distinct words."""

    char_ids_WC: NDArray[np.int64]
    target_ids_W: NDArray[np.int64]
    """Vocabulary ids of the distinct words."""
    words: list[NDArray[np.int64]]
    """Words of every sentence, boundaries included."""


@dataclass(frozen=True, eq=False)
class Contexts:
    """Hidden states of both directions for a batch of sentences, and the targets."""

    indices: list[int]
    """Indices of the sentences."""
    num_steps: list[int]
    """Number of steps of each sentence."""
    forward_MP: Tensor
    backward_MP: Tensor
    forward_targets_M: Tensor
    backward_targets_M: Tensor


def read_contexts(
    bilm: BiLM, sentences: Sentences, states: StartStates, *, batch_size: int, executor: Executor | None
) -> Iterator[Contexts]:
    """Yield the contexts of all sentences, in batches of similar length."""
    device = bilm.device
    with torch.no_grad():
        tokens_WP = bilm.encode_tokens(torch.from_numpy(sentences.char_ids_WC).to(device))
    target_ids_W = torch.from_numpy(sentences.target_ids_W).to(device)
    lengths = [len(words) for words in sentences.words]
    for indices in batches_by_length(lengths, batch_size=batch_size, max_positions=MOST_POSITIONS):
        words_N = torch.from_numpy(np.concatenate([sentences.words[index] for index in indices])).to(device)
        num_steps = [lengths[index] - 1 for index in indices]
        packing = plan_packing(num_steps, device)
        # Step m of the batch is between two words. Each sentence before it has one word more than it has steps.
        steps_B = torch.tensor(num_steps, device=device)
        left_M = torch.arange(sum(num_steps), device=device) + torch.arange(
            len(indices), device=device
        ).repeat_interleave(steps_B)
        left_words_M, right_words_M = words_N[left_M], words_N[left_M + 1]
        start = states.begin(bilm, len(indices))
        forward_MP, backward_MP = run_both(
            executor,
            _read,
            (bilm.forward_lstm, tokens_WP[left_words_M], packing.forward_N, packing.batch_sizes, start.forward),
            (bilm.backward_lstm, tokens_WP[right_words_M], packing.backward_N, packing.batch_sizes, start.backward),
        )
        yield Contexts(
            indices, num_steps, forward_MP, backward_MP, target_ids_W[right_words_M], target_ids_W[left_words_M]
        )


@torch.no_grad()  # here, because the setting is per thread
def _read(stack: LSTMStack, inputs_MP: Tensor, order_M: Tensor, batch_sizes: list[int], start: LSTMState) -> Tensor:
    """Return the top layer at every step, in the order of the text; all rows start in the same state."""
    run = stack(inputs_MP[order_M], batch_sizes, start)
    top_MP: Tensor = run.outputs[-1][invert(order_M)]
    return top_MP
