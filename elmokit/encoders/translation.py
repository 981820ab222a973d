"""An attentional translation model, which CoVe's encoder is trained in.

The decoder is a two-layer LSTM with input feeding and global attention (Luong et al. 2015). Per target position s:

    h_s = LSTM([y_s-1; a_s-1], h_s-1)                       a_0 = 0
    e_st = h_s' W x_t                                       x_t: upper layer of the encoder
    a_s = tanh(U [sum over t of softmax(e_s)_t x_t; h_s])
    p(y_s) = softmax(V a_s + b)

Shapes: B pairs, T source tokens, S target positions, D width of encoder and decoder, V target words, N targets.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmokit.encoders.cove import CoVeEncoder, EncodedSource
from elmokit.model.softmax import Softmax, full_loss
from elmokit.nn.basic import Dropout, masked_softmax

INIT_RANGE = 0.1


class AttentionDecoder(nn.Module):
    """Predicts a target sentence word by word, looking at the source through attention.

    Args:
        num_words: Target vocabulary.
        width: Width of the encoder's layers, and of the decoder.
        embedding_dim: Width of the target words' vectors.
        dropout: Share dropped between the layers and before the output.
    """

    def __init__(self, num_words: int, width: int, *, embedding_dim: int = 300, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, embedding_dim)
        self.lower = nn.LSTMCell(embedding_dim + width, width)
        self.upper = nn.LSTMCell(width, width)
        self.attention = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.output = Softmax(num_words, width)
        self.dropout = Dropout(dropout)

    def forward(self, words_BS: Tensor, source: EncodedSource, mask_BT: Tensor) -> Tensor:
        """Return the attentional vectors after each of the given words, (B, S, D)."""
        context_BTD = source.layers_LBTD[-1]
        keys_BTD = self.attention(context_BTD)
        lower, upper = ((source.hidden_LBD[layer], source.cell_LBD[layer]) for layer in range(2))
        fed_BD = torch.zeros_like(lower[0])
        found = []
        for embedded_BE in self.embedding(words_BS).unbind(dim=1):
            lower = self.lower(torch.cat([embedded_BE, fed_BD], dim=1), lower)
            upper = self.upper(self.dropout(lower[0]), upper)
            scores_BT = torch.einsum("btd,bd->bt", keys_BTD, upper[0])
            read_BD = torch.einsum("bt,btd->bd", masked_softmax(scores_BT, mask_BT), context_BTD)
            fed_BD = self.dropout(torch.tanh(self.combine(torch.cat([read_BD, upper[0]], dim=1))))
            found.append(fed_BD)
        return torch.stack(found, dim=1)


class TranslationModel(nn.Module):
    """Encoder and decoder. All weights begin uniformly between -0.1 and 0.1."""

    def __init__(self, encoder: CoVeEncoder, decoder: AttentionDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -INIT_RANGE, INIT_RANGE)

    def loss(self, inputs_BTE: Tensor, mask_BT: Tensor, words_BS: Tensor, lengths: list[int]) -> Tensor:
        """Return the negative log-likelihood of all targets, summed; arguments are those of `target_losses`.

        Under autocast, products are in bfloat16.
        """
        hidden_ND, targets_N = self._decode(inputs_BTE, mask_BT, words_BS, lengths)
        output = self.decoder.output
        mixed = torch.is_autocast_enabled(hidden_ND.device.type)
        loss: Tensor = _FullLoss.apply(  # type: ignore[no-untyped-call]
            hidden_ND.to(output.weight.dtype), output.weight, output.bias, output, targets_N, mixed
        )
        return loss

    def target_losses(self, inputs_BTE: Tensor, mask_BT: Tensor, words_BS: Tensor, lengths: list[int]) -> Tensor:
        """Return the negative log-likelihood of each target, (N,), sentence after sentence.

        Args:
            inputs_BTE: Word vectors of the source sentences.
            mask_BT: True on source tokens.
            words_BS: Target words, boundaries included, padded at the end with any word.
            lengths: Words per target sentence, boundaries included.
        """
        hidden_ND, targets_N = self._decode(inputs_BTE, mask_BT, words_BS, lengths)
        logits_NV = functional.linear(hidden_ND, self.decoder.output.weight, self.decoder.output.bias)
        return functional.cross_entropy(logits_NV, targets_N, reduction="none")

    def _decode(
        self, inputs_BTE: Tensor, mask_BT: Tensor, words_BS: Tensor, lengths: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Return the attentional vectors before all targets, (N, D), and the targets."""
        hidden_BSD = self.decoder(words_BS[:, :-1], self.encoder(inputs_BTE, mask_BT), mask_BT)
        steps = torch.arange(words_BS.shape[1] - 1, device=words_BS.device)
        is_target_BS = steps < torch.tensor(lengths, device=words_BS.device)[:, None] - 1
        return hidden_BSD[is_target_BS], words_BS[:, 1:][is_target_BS]


class _FullLoss(torch.autograd.Function):
    # `full_loss` returns its gradients, which are scaled by that of the sum.
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,  # noqa: ARG004  the softmax has both; named to get gradients
        bias_V: Tensor,  # noqa: ARG004
        softmax: Softmax,
        targets_N: Tensor,
        mixed: bool,  # noqa: FBT001  autograd passes no names
    ) -> Tensor:
        found = full_loss(softmax, hidden_ND, targets_N, mixed=mixed)
        ctx.save_for_backward(found.hidden_NP, found.weight_RP, found.bias_R)
        return found.loss.to(hidden_ND.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *(grad * of_one for of_one in ctx.saved_tensors), None, None, None
