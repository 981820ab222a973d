"""The reference of the benchmarks: a biLM that runs as AllenNLP's ``Elmo`` does.

- The character encoder reads every token of the padded batch, including repeated words and padding, and convolves over
  the maximum number of characters.
- The LSTMs run step by step in Python. Every step has one product for its input and one for its state, and a separate
  activation per gate. Sentences that have ended leave the batch, and the directions run one after the other.

It was written for these benchmarks from that description, in plain torch with its default number of threads. AllenNLP
also carries states from batch to batch, at no cost; here every sentence starts from zero.

Shapes: B sentences, b of them alive at a step, T positions with both boundaries, K characters per word, W = B T words,
E character width, F filters, P width of a token vector, C cells, G = 4 C gates, L layers, D = 2 P.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from elmokit.config import BiLMConfig, LSTMConfig
from elmokit.text.chars import BOS_WORD, EOS_WORD, pad_sentences

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
FORGET_BIAS = 1.0
PARTS = ("weight", "bias")


@dataclass(frozen=True)
class NaiveLayer:
    """One LSTM layer of one direction."""

    config: LSTMConfig
    input_weight_GP: Tensor
    recurrent_weight_GP: Tensor
    bias_G: Tensor  # including the forget bias
    projection_PC: Tensor

    def run(self, inputs_BTP: Tensor, lengths: Sequence[int], *, backward: bool) -> Tensor:
        """Read padded sentences, the longest first; return the outputs (B, T, P), zero on padding."""
        num_rows, num_steps, width = inputs_BTP.shape
        outputs_BTP = inputs_BTP.new_zeros(num_rows, num_steps, width)
        hidden_BP = inputs_BTP.new_zeros(num_rows, width)
        cell_BC = inputs_BTP.new_zeros(num_rows, self.config.cell_dim)
        for step in reversed(range(num_steps)) if backward else range(num_steps):
            num_alive = sum(length > step for length in lengths)
            hidden_bP, cell_bC = self._step(
                inputs_BTP[:num_alive, step], hidden_BP[:num_alive].clone(), cell_BC[:num_alive].clone()
            )
            hidden_BP[:num_alive] = hidden_bP
            cell_BC[:num_alive] = cell_bC
            outputs_BTP[:num_alive, step] = hidden_bP
        return outputs_BTP

    def _step(self, inputs_bP: Tensor, hidden_bP: Tensor, cell_bC: Tensor) -> tuple[Tensor, Tensor]:
        from_input = functional.linear(inputs_bP, self.input_weight_GP).chunk(4, dim=1)
        from_state = functional.linear(hidden_bP, self.recurrent_weight_GP, self.bias_G).chunk(4, dim=1)
        let_in = torch.sigmoid(from_input[0] + from_state[0])
        forget = torch.sigmoid(from_input[1] + from_state[1])
        let_out = torch.sigmoid(from_input[2] + from_state[2])
        candidate = torch.tanh(from_input[3] + from_state[3])
        cell_bC = let_in * candidate + forget * cell_bC
        if self.config.cell_clip is not None:
            cell_bC = cell_bC.clamp(-self.config.cell_clip, self.config.cell_clip)
        hidden_bP = functional.linear(let_out * torch.tanh(cell_bC), self.projection_PC)
        if self.config.proj_clip is not None:
            hidden_bP = hidden_bP.clamp(-self.config.proj_clip, self.config.proj_clip)
        return hidden_bP, cell_bC


class NaiveBiLM:
    """A biLM with projections, over the tensors of ``elmokit.model.bilm.BiLM``."""

    def __init__(self, config: BiLMConfig, tensors: Mapping[str, Tensor]) -> None:
        assert config.lstm.has_projection
        assert config.has_token_projection
        self.config = config
        self._tensors = tensors
        self._embedding_KE = functional.pad(tensors["char_encoder.char_embedding"], (0, 0, 1, 0))
        highways = [f"char_encoder.highways.{k}" for k in range(config.char_encoder.num_highway)]
        # Both halves of a highway are one product, as in AllenNLP.
        self._highways = [
            tuple(torch.cat([tensors[f"{name}.{half}.{part}"] for half in ("transform", "gate")]) for part in PARTS)
            for name in highways
        ]
        self._forward, self._backward = (
            [self._layer(f"{direction}_lstm.layers.{index}") for index in range(config.lstm.num_layers)]
            for direction in ("forward", "backward")
        )

    @torch.inference_mode()
    def embed_layers(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """Return one array (layers, tokens, width) per sentence, computed as one batch."""
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        bounded = [[BOS_WORD, *sentences[index], EOS_WORD] for index in order]
        lengths = [len(sentence) for sentence in bounded]
        char_ids_BTK = torch.from_numpy(pad_sentences(bounded, max_chars=self.config.char_encoder.max_chars))
        tokens_BTP = self._encode(char_ids_BTK.flatten(0, 1)).unflatten(0, char_ids_BTK.shape[:2])
        layers_LBTD = torch.stack(list(self._run(tokens_BTP, lengths))).numpy()
        found = {index: layers_LBTD[:, row, 1 : lengths[row] - 1].copy() for row, index in enumerate(order)}
        return [found[index] for index in range(len(sentences))]

    def _encode(self, char_ids_WK: Tensor) -> Tensor:
        chars_WEK = functional.embedding(char_ids_WK, self._embedding_KE).transpose(1, 2)
        activate = ACTIVATIONS[self.config.char_encoder.activation]
        pooled = []
        for index in range(len(self.config.char_encoder.filters)):
            weight, bias = (self._tensors[f"char_encoder.convs.{index}.{part}"] for part in PARTS)
            pooled.append(activate(functional.conv1d(chars_WEK, weight, bias).amax(dim=2)))
        words_WF = torch.cat(pooled, dim=1)
        for weight, bias in self._highways:
            transformed_WF, gate_WF = functional.linear(words_WF, weight, bias).chunk(2, dim=1)
            gate_WF = torch.sigmoid(gate_WF)
            words_WF = gate_WF * torch.relu(transformed_WF) + (1 - gate_WF) * words_WF
        return functional.linear(words_WF, *(self._tensors[f"char_encoder.projection.{part}"] for part in PARTS))

    def _run(self, tokens_BTP: Tensor, lengths: Sequence[int]) -> Iterator[Tensor]:
        """Yield every layer's vectors, (B, T, D)."""
        yield torch.cat([tokens_BTP, tokens_BTP], dim=2)
        forward_BTP = backward_BTP = tokens_BTP
        for index, (forward, backward) in enumerate(zip(self._forward, self._backward, strict=True)):
            below = forward_BTP, backward_BTP
            forward_BTP = forward.run(forward_BTP, lengths, backward=False)
            backward_BTP = backward.run(backward_BTP, lengths, backward=True)
            if self.config.lstm.skip_connections and index > 0:
                forward_BTP, backward_BTP = forward_BTP + below[0], backward_BTP + below[1]
            yield torch.cat([forward_BTP, backward_BTP], dim=2)

    def _layer(self, name: str) -> NaiveLayer:
        bias_G = self._tensors[f"{name}.bias"].clone()
        bias_G.view(4, -1)[1] += FORGET_BIAS
        weights = (self._tensors[f"{name}.{part}"] for part in ("input_weight", "recurrent_weight"))
        return NaiveLayer(self.config.lstm, *weights, bias_G, self._tensors[f"{name}.projection"])
