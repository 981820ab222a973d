"""The bidirectional language model: from character ids to every layer's vectors.

Shapes: B sentences, T positions of the longest, C characters per word, W distinct words, N positions of all
sentences one after the other (ragged), L layers of vectors (the token layer, then the LSTMs'), P width of a
token vector, D = 2 P width of a layer's vectors.
"""

import copy
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.config import BEGIN_ID, END_ID, NUM_SPECIAL_CHARS, BiLMConfig
from elmokit.errors import InputError
from elmokit.kernels.stack import Precision, run_stack
from elmokit.model.char_encoder import CharEncoder
from elmokit.model.directions import call_both, run_both
from elmokit.model.lstm import LSTMStack, LSTMState, PackedRun, StackRun
from elmokit.model.packing import Packing, invert, plan_packing
from elmokit.model.uncompiled import uncompiled


@dataclass(frozen=True)
class BiLMState:
    """The LSTM states of both directions, for every row of a batch."""

    forward: LSTMState
    backward: LSTMState

    def select(self, rows: Tensor) -> "BiLMState":
        """Return the state of some rows, in the order given."""
        return BiLMState(self.forward.select(rows), self.backward.select(rows))

    def parts(self) -> dict[str, Tensor]:
        """Return its tensors by name, each (layers, rows, width)."""
        return {
            "forward.hidden": self.forward.hidden_LBP,
            "forward.cell": self.forward.cell_LBC,
            "backward.hidden": self.backward.hidden_LBP,
            "backward.cell": self.backward.cell_LBC,
        }

    @classmethod
    def from_parts(cls, parts: Mapping[str, Tensor]) -> "BiLMState":
        """Return the state of the tensors that `parts` returned."""
        return cls(
            LSTMState(parts["forward.hidden"], parts["forward.cell"]),
            LSTMState(parts["backward.hidden"], parts["backward.cell"]),
        )


@dataclass(frozen=True)
class RaggedLayers:
    """Every layer at every position of ragged sentences, boundaries included."""

    layers_LND: Tensor
    final: BiLMState  # after the last position of every sentence


@dataclass(frozen=True)
class PaddedLayers:
    """Every layer at every position of padded sentences, boundaries included; zero on padding."""

    layers_BLTD: Tensor
    mask_BT: Tensor  # true where there is a token or a boundary
    final: BiLMState


class BiLM(nn.Module):
    """Two stacks of LSTMs, one per direction, over one character encoder (Peters et al. 2018, section 3).

    Args:
        config: the sizes. Weights are drawn with torch's global generator; `Embedder` and `Elmo` load trained ones.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.char_encoder = CharEncoder(config.char_encoder, config.lstm.proj_dim, words=config.words)
        self.forward_lstm = LSTMStack(config.lstm)
        self.backward_lstm = LSTMStack(config.lstm)

    def view(self) -> "BiLM":
        """Return another module over the same tensors, frozen and in evaluation mode.

        Packing or rounding one of the two does not change the other.
        """
        shared = {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in self.parameters()}
        return copy.deepcopy(self, shared).eval()

    def pack_weights(self, precision: Precision = "fp32") -> None:
        """Run with weights packed for this machine's kernels from now on, wherever no gradient is asked for.

        For the owner of a model that runs often. Weights that change are packed again, unless they are written
        through ``.data``.

        Args:
            precision: of the LSTMs' products. ``"bf16"`` needs compiled kernels.
        """
        self.char_encoder.pack_weights()
        self.forward_lstm.pack_weights(precision)
        self.backward_lstm.pack_weights(precision)

    def mix_precision(self) -> None:
        """From now on, train with products in bfloat16; weights, cells and clips stay in float32."""
        self.char_encoder.mix_precision()
        self.forward_lstm.mix_precision()
        self.backward_lstm.mix_precision()

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def zero_state(self, num_rows: int) -> BiLMState:
        """Return the state before the first token.

        Args:
            num_rows: the number of sentences.
        """
        return BiLMState(self.forward_lstm.zero_state(num_rows), self.backward_lstm.zero_state(num_rows))

    @uncompiled
    def encode_tokens(self, char_ids_WC: Tensor) -> Tensor:
        """Return the token layer of words, (W, P).

        Args:
            char_ids_WC: ids of each word, without the zero that stands for padding: its characters, after the word id
                if the model has a word table.
        """
        expected = self.config.ids_per_word
        if char_ids_WC.ndim != 2 or char_ids_WC.shape[1] != expected:
            raise InputError(
                f"character ids have shape {tuple(char_ids_WC.shape)}; this model takes (words, {expected})"
            )
        vectors_WP: Tensor = self.char_encoder(char_ids_WC)
        return vectors_WP

    @uncompiled
    def run(
        self, tokens_NP: Tensor, lengths: Sequence[int], start: BiLMState, *, executor: Executor | None = None
    ) -> RaggedLayers:
        """Run ragged sentences in both directions.

        Args:
            tokens_NP: token vectors of all sentences one after the other, boundaries included.
            lengths: positions of each sentence; they sum to N.
            start: the state in which each sentence starts.
            executor: runs each direction as a call of its own, without gradients.
        """
        packing = plan_packing(lengths, tokens_NP.device)
        begin = start.select(packing.rows_B)
        packed_forward, packed_backward = self.forward_lstm.packed(tokens_NP), self.backward_lstm.packed(tokens_NP)
        if packed_forward is not None and packed_backward is not None:
            return _run_packed(packed_forward, packed_backward, tokens_NP, packing, begin, executor)
        calls = (
            (self.forward_lstm, tokens_NP, packing.forward_N, packing.batch_sizes, begin.forward),
            (self.backward_lstm, tokens_NP, packing.backward_N, packing.batch_sizes, begin.backward),
        )
        forward, backward = run_both(executor, _read if executor is None else _read_only, *calls)
        final = BiLMState(forward.final, backward.final).select(invert(packing.rows_B))
        return RaggedLayers(_gather_layers(tokens_NP, forward.outputs, backward.outputs, packing), final)

    @uncompiled
    def forward(self, char_ids_BTC: Tensor, start: BiLMState | None = None) -> PaddedLayers:
        """Run padded sentences.

        Args:
            char_ids_BTC: character ids without boundaries, zero on padding; the result has T + 2 positions.
            start: the state in which each sentence starts; zero if None.
        """
        mask_BT = sentence_mask(char_ids_BTC)
        lengths_B = mask_BT.sum(dim=1) + 2
        with_boundaries_BT = torch.arange(mask_BT.shape[1] + 2, device=mask_BT.device) < lengths_B[:, None]
        words_NC = add_boundaries(char_ids_BTC, lengths_B, self.config)[with_boundaries_BT]
        distinct_WC, word_N = words_NC, torch.arange(len(words_NC), device=words_NC.device)
        if len(words_NC):  # torch finds no distinct rows among none
            distinct_WC, word_N = words_NC.unique(dim=0, return_inverse=True)
        tokens_NP = self.encode_tokens(distinct_WC)[word_N]
        start = start or self.zero_state(len(lengths_B))
        ragged = self.run(tokens_NP, lengths_B.tolist(), start)
        num_layers, _, width = ragged.layers_LND.shape
        padded_BTLD = ragged.layers_LND.new_zeros(*with_boundaries_BT.shape, num_layers, width)
        padded_BTLD[with_boundaries_BT] = ragged.layers_LND.transpose(0, 1)
        return PaddedLayers(padded_BTLD.transpose(1, 2), with_boundaries_BT, ragged.final)


def _run_packed(
    forward: PackedRun,
    backward: PackedRun,
    tokens_NP: Tensor,
    packing: Packing,
    begin: BiLMState,
    executor: Executor | None,
) -> RaggedLayers:
    """Run both directions in one C call each, which write every vector once, where it belongs."""
    (num_positions, width), num_layers = tokens_NP.shape, len(begin.forward.hidden_LBP)
    tokens_NP = tokens_NP.detach()
    layers_LND = tokens_NP.new_empty(1 + num_layers, num_positions, 2 * width)
    layers_LND[0] = tokens_NP.repeat(1, 2)
    # Contiguous copies, which the calls overwrite: selecting rows has copied already.
    final = BiLMState(begin.forward.contiguous(), begin.backward.contiguous())
    sizes = packing.batch_sizes
    call_both(
        executor,
        run_stack,
        (*forward, tokens_NP, packing.forward_N, sizes, final.forward.pair(), layers_LND[1:, :, :width]),
        (*backward, tokens_NP, packing.backward_N, sizes, final.backward.pair(), layers_LND[1:, :, width:]),
    )
    return RaggedLayers(layers_LND, final.select(invert(packing.rows_B)))


def _gather_layers(tokens_NP: Tensor, forward: list[Tensor], backward: list[Tensor], packing: Packing) -> Tensor:
    """Put both directions' packed outputs side by side in sentence order, after the token layer: (L, N, D)."""
    num_positions, width = tokens_NP.shape
    if torch.is_grad_enabled() and any(outputs_NP.requires_grad for outputs_NP in (tokens_NP, *forward, *backward)):
        from_forward_N, from_backward_N = invert(packing.forward_N), invert(packing.backward_N)
        pairs = zip(forward, backward, strict=True)
        halves = [(left_NP[from_forward_N], right_NP[from_backward_N]) for left_NP, right_NP in pairs]
        return torch.stack([torch.cat(pair, dim=1) for pair in [(tokens_NP, tokens_NP), *halves]])
    # Without gradients each value is written once, where it belongs: layers are the largest thing in memory.
    layers_LND = tokens_NP.new_empty(1 + len(forward), num_positions, 2 * width)
    layers_LND[0, :, :width] = tokens_NP
    layers_LND[0, :, width:] = tokens_NP
    for layer_ND, forward_NP, backward_NP in zip(layers_LND[1:], forward, backward, strict=True):
        layer_ND[:, :width].index_copy_(0, packing.forward_N, forward_NP)
        layer_ND[:, width:].index_copy_(0, packing.backward_N, backward_NP)
    return layers_LND


def _read(
    stack: LSTMStack, tokens_NP: Tensor, order_N: Tensor, batch_sizes: Sequence[int], start: LSTMState
) -> StackRun:
    run: StackRun = stack(tokens_NP[order_N], batch_sizes, start)
    return run


@torch.inference_mode()
def _read_only(
    stack: LSTMStack, tokens_NP: Tensor, order_N: Tensor, batch_sizes: Sequence[int], start: LSTMState
) -> StackRun:
    return _read(stack, tokens_NP, order_N, batch_sizes, start)  # every thread has its own grad mode


def sentence_mask(char_ids_BTC: Tensor) -> Tensor:
    """Return the mask of real tokens, (B, T); reject a gap inside a sentence."""
    if char_ids_BTC.ndim != 3:
        raise InputError(
            f"character ids have shape {tuple(char_ids_BTC.shape)}; expected (sentences, tokens, characters)"
        )
    mask_BT = (char_ids_BTC > 0).any(dim=2)
    if bool((mask_BT[:, 1:] & ~mask_BT[:, :-1]).any()):
        raise InputError("a sentence has padding (all-zero character ids) before its last token; pad on the right only")
    return mask_BT


def add_boundaries(char_ids_BTC: Tensor, lengths_B: Tensor, config: BiLMConfig) -> Tensor:
    """Put begin-of-sentence before and end-of-sentence after every sentence: (B, T + 2, C)."""
    num_rows, num_tokens, num_chars = char_ids_BTC.shape
    bounded_BTC = char_ids_BTC.new_zeros(num_rows, num_tokens + 2, num_chars)
    if num_chars != config.ids_per_word:
        return bounded_BTC  # rejected by `encode_tokens`, which reports the shape
    begin_C, end_C = (char_ids_BTC.new_tensor(ids) for ids in boundary_ids(config))
    bounded_BTC[:, 0] = begin_C
    bounded_BTC[:, 1:-1] = char_ids_BTC
    bounded_BTC[torch.arange(num_rows, device=char_ids_BTC.device), lengths_B - 1] = end_C
    return bounded_BTC


def boundary_ids(config: BiLMConfig) -> tuple[list[int], list[int]]:
    """Return the ids of the tokens that begin and end a sentence."""
    # The last rows of a character table: begin and end of sentence, begin and end of word, padding.
    first = config.char_encoder.num_chars - NUM_SPECIAL_CHARS + 1
    begin_sentence, end_sentence, begin_word, end_word, pad = range(first, first + NUM_SPECIAL_CHARS)
    num_ids = config.char_encoder.num_ids
    begin, end = (
        [begin_word, kind, end_word, *[pad] * (num_ids - 3)][:num_ids] for kind in (begin_sentence, end_sentence)
    )
    return ([BEGIN_ID, *begin], [END_ID, *end]) if config.words else (begin, end)
