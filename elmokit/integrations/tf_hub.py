"""ELMo with the call of the TF-Hub module: two signatures and five outputs, on torch.

Change ``elmo = hub.Module("https://tfhub.dev/google/elmo/3", trainable=True)`` to ``elmo = Module(source)``, and
``hub.load(…).signatures["default"]`` to ``load(source).signatures["default"]``. Results are tensors of torch.

Shapes: B sentences, T tokens of the longest, P width of a token vector, D = 2 P.
"""
# ruff: noqa: FBT001, FBT002 - positional flags are TF-Hub's signatures.

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elmokit.embed.elmo import Elmo, read_layers
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.weights.saved import Source

Signature = Literal["default", "tokens"]


class Module(nn.Module):
    """A biLM with one trained mix of its layers.

    Args:
        spec: A model, as for `elmokit.Embedder.from_pretrained`; None for the bundled one.
        trainable: Train the mix: three weights and gamma.
        state: State in which a sentence starts.
    """

    def __init__(self, spec: Source | None = None, trainable: bool = False, *, state: State = "reset") -> None:
        super().__init__()
        self.elmo = Elmo.from_pretrained(spec, dropout=0.0, trainable_mix=trainable, state=state)
        self.signatures: dict[str, Callable[..., dict[str, Tensor]]] = {
            "default": partial(self._run, "default"),
            "tokens": partial(self._run, "tokens"),
        }

    def forward(
        self,
        inputs: Sequence[str] | Mapping[str, Any],
        signature: Signature = "default",
        as_dict: bool = False,
    ) -> Tensor | dict[str, Tensor]:
        """Run sentences; return all five outputs, or ``default`` alone.

        Args:
            inputs: For ``default``, strings that are split at white space. For ``tokens``, ``tokens`` (lists of tokens,
                padded with any text) and ``sequence_len`` (the number of real ones in each).
            signature: ``"default"`` or ``"tokens"``.
            as_dict: Return a dict: ``word_emb`` (B, T, P), ``lstm_outputs1``, ``lstm_outputs2`` and ``elmo``
                (B, T, D), zero on padding, and ``default`` (B, D), the mean of ``elmo`` over a sentence's tokens.
        """
        found = self._run(signature, inputs)
        return found if as_dict else found["default"]

    def _run(
        self, signature: Signature, inputs: Any = None, *, tokens: Any = None, sequence_len: Any = None
    ) -> dict[str, Tensor]:
        if tokens is not None:
            inputs = {"tokens": tokens, "sequence_len": sequence_len}
        sentences = _read_inputs(inputs, signature)
        char_ids_BTC = self.elmo.char_ids(sentences)
        padded = read_layers(self.elmo.bilm, char_ids_BTC, self.elmo._states)
        mask_BT = padded.mask_BT[:, 2:]
        layers_BLTD = padded.layers_BLTD[:, :, 1:-1] * mask_BT[:, None, :, None]
        mixed_BTD = self.elmo.mixes[0](layers_BLTD, mask_BT)
        num_tokens_B1 = mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        outputs = {f"lstm_outputs{k}": layers_BLTD[:, k] for k in range(1, layers_BLTD.shape[1])}
        return {
            "word_emb": layers_BLTD[:, 0, :, : self.elmo.width // 2],
            **outputs,
            "elmo": mixed_BTD,
            "default": mixed_BTD.sum(dim=1) / num_tokens_B1,
        }


def load(spec: Source | None = None, *, state: State = "reset") -> Module:
    """Load a model for ``load(spec).signatures["default"](strings)``, as ``hub.load`` of TensorFlow 2."""
    return Module(spec, state=state)


def _read_inputs(inputs: Any, signature: Signature) -> list[list[str]]:
    if signature == "default":
        if isinstance(inputs, str | Mapping) or not isinstance(inputs, Sequence):
            raise InputError(f"inputs is {str(inputs)[:40]!r}; expected a list of strings for the signature 'default'")
        return [_as_text(text).split() for text in inputs]
    if signature != "tokens":
        raise InputError(f"signature {signature!r}; expected 'default' or 'tokens'")
    if not isinstance(inputs, Mapping) or set(inputs) != {"tokens", "sequence_len"}:
        raise InputError("inputs of the signature 'tokens' are a dict of tokens and sequence_len")
    lengths = torch.as_tensor(inputs["sequence_len"]).tolist()
    rows = [[_as_text(token) for token in row] for row in inputs["tokens"]]
    if len(rows) != len(lengths) or any(not 0 <= n <= len(row) for n, row in zip(lengths, rows, strict=False)):
        raise InputError(f"sequence_len is {lengths}; expected one length per row of tokens, at most the row's own")
    return [row[:length] for row, length in zip(rows, lengths, strict=True)]


def _as_text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
