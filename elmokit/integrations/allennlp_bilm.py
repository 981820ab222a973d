"""``_ElmoBiLm`` of AllenNLP: the biLM with the attributes that scripts reach into.

Shapes: B sentences, T tokens, C character ids per word, P width of a token vector, L layers, D = 2 P, S any leading
sizes, V cached words.
"""
# ruff: noqa: FBT001, FBT002 - names and positional flags are AllenNLP's.

import warnings
from collections.abc import Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from elmokit.embed.elmo import read_layers
from elmokit.embed.state import StartStates, State
from elmokit.errors import ElmokitWarning, InputError
from elmokit.integrations.allennlp_files import ModelFile, find_model_files
from elmokit.integrations.allennlp_indexer import MAX_CHARS, batch_to_ids
from elmokit.integrations.allennlp_mask import old_mask
from elmokit.integrations.allennlp_weights import from_allennlp, to_allennlp
from elmokit.model.bilm import BiLM, BiLMState, add_boundaries, sentence_mask
from elmokit.model.lstm import LSTMState
from elmokit.weights.saved import check_reads_bytes
from elmokit.weights.source import build_bilm, load_saved
from elmokit.weights.start_state import stored_state


class Activations(TypedDict):
    """Result of `_ElmoBiLm`."""

    activations: list[Tensor]  # one (B, T + 2, D) per layer, with the boundaries, zero on padding
    mask: Tensor  # (B, T + 2)


class _ElmoBiLm(nn.Module):
    """A biLM that returns every layer with the boundary tokens.

    Args:
        options_file: Path of ``options.json``; None with ``bilm``.
        weight_file: Path of the ``.hdf5`` weights; None with ``bilm``.
        requires_grad: Train the biLM.
        vocab_to_cache: The words that ``word_inputs`` refers to by index.
        bilm: A biLM to use instead of the two files.
        state: State in which a sentence starts; ``"carry"`` is AllenNLP's way.
        states: The start states to share with another object, instead of ``state``.
    """

    def __init__(
        self,
        options_file: ModelFile,
        weight_file: ModelFile,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        bilm: BiLM | None = None,
        state: State = "carry",
        states: StartStates | None = None,
    ) -> None:
        super().__init__()
        warm = None
        if bilm is None:
            saved = load_saved(find_model_files(options_file, weight_file))
            check_reads_bytes(saved.config, purpose="AllenNLP's interface")
            bilm, warm = build_bilm(saved), stored_state(saved)
        self.bilm = bilm
        self.states = states or StartStates(state, warm=warm)
        self.num_layers = bilm.config.num_layers
        self._cached_char_ids: Tensor | None  # (V, C)
        self.register_buffer("_cached_char_ids", None, persistent=False)
        self.requires_grad_(requires_grad)
        if vocab_to_cache:
            self.create_cached_cnn_embeddings(vocab_to_cache)
        self.register_load_state_dict_pre_hook(_load_old_names)  # type: ignore[no-untyped-call]
        self.register_state_dict_post_hook(_save_old_names)  # type: ignore[no-untyped-call]

    @property
    def _elmo_lstm(self) -> "_ElmoLstm":
        return _ElmoLstm(self)

    @property
    def _token_embedder(self) -> "_ElmoCharacterEncoder":
        return _ElmoCharacterEncoder(self)

    def get_output_dim(self) -> int:
        """Width of a layer's vectors."""
        return self.bilm.config.width

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Let ``word_inputs`` refer to these words by index.

        It does not save time, since every distinct word of a batch is encoded once anyway.
        """
        self._cached_char_ids = batch_to_ids([tokens])[0].to(torch.int16).to(self.bilm.device)

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> Activations:
        """Return every layer of a batch.

        Args:
            inputs: Character ids without boundary tokens, (*S, T, C), as ``batch_to_ids`` returns them.
            word_inputs: Indices into ``vocab_to_cache``, (*S, T). If both are given, the words are taken from here.
                As in AllenNLP, index 0 is padding, and a batch with an unknown index is read from ``inputs``.
        """
        if word_inputs is not None:
            inputs = self._choose_inputs(inputs, word_inputs)
        check_inputs(inputs)
        padded = read_layers(self.bilm, inputs.reshape(-1, *inputs.shape[-2:]), self.states)
        return {"activations": list(padded.layers_BLTD.unbind(dim=1)), "mask": old_mask(padded.mask_BT)}

    def _choose_inputs(self, inputs: Tensor, word_inputs: Tensor) -> Tensor:
        """Return the character ids of the words in ``word_inputs``, or ``inputs`` if these words are not cached."""
        cached_VC = self._cached_char_ids
        if cached_VC is None:
            warnings.warn(
                "word_inputs is ignored, because this Elmo has no vocab_to_cache; the words are read from inputs",
                ElmokitWarning,
                stacklevel=3,
            )
            return inputs
        if word_inputs.ndim < 2 or word_inputs.is_floating_point():
            raise InputError(
                f"word_inputs is {word_inputs.dtype} of shape {tuple(word_inputs.shape)}; "
                "expected integers (sentences, tokens), ids of words in vocab_to_cache"
            )
        known = (word_inputs >= 0) & (word_inputs < len(cached_VC))
        if bool(known.all()):
            return cached_VC[word_inputs].long() * (word_inputs > 0)[..., None]
        if not bool(inputs.any()):
            raise InputError(
                f"word_inputs has the id {int(word_inputs[~known][0])}; expected 0 to {len(cached_VC) - 1}, since "
                f"vocab_to_cache has {len(cached_VC)} words. To read words outside it, pass their characters as inputs"
            )
        return inputs


class _ElmoLstm:
    """The LSTMs' settings under AllenNLP's names; they belong to the biLM."""

    def __init__(self, owner: _ElmoBiLm) -> None:
        self._owner = owner
        lstm = owner.bilm.config.lstm
        self.input_size = self.hidden_size = lstm.proj_dim
        self.cell_size, self.num_layers = lstm.cell_dim, lstm.num_layers

    @property
    def stateful(self) -> bool:
        """True if the state is carried from batch to batch; set it to False to start every sentence from zero."""
        return self._owner.states.policy == "carry"

    @stateful.setter
    def stateful(self, value: bool) -> None:
        self._owner.states.policy = "carry" if value else "reset"

    def reset_states(self) -> None:
        """Discard the state carried from batch to batch."""
        self._owner.states.reset()

    @property
    def _states(self) -> tuple[Tensor, Tensor] | None:
        """Carried outputs and cells, (layers, rows, both directions side by side); None before the first batch."""
        carried = self._owner.states.carried
        if carried is None:
            return None
        pairs = (
            (carried.forward.hidden_LBP, carried.backward.hidden_LBP),
            (carried.forward.cell_LBC, carried.backward.cell_LBC),
        )
        hidden, cell = (torch.cat(pair, dim=-1) for pair in pairs)
        return hidden, cell

    @_states.setter
    def _states(self, states: Sequence[Tensor] | None) -> None:
        if states is None:
            self.reset_states()
            return
        hidden, cell = (state.chunk(2, dim=-1) for state in states)
        forward, backward = (LSTMState(hidden[side], cell[side]) for side in (0, 1))
        self._owner.states.carried = BiLMState(forward, backward)


class _ElmoCharacterEncoder:
    """The token layer under AllenNLP's name."""

    def __init__(self, owner: _ElmoBiLm) -> None:
        self._owner = owner

    def get_output_dim(self) -> int:
        """Width of a token vector."""
        return self._owner.bilm.config.lstm.proj_dim

    def __call__(self, inputs: Tensor) -> dict[str, Tensor]:
        """Return ``token_embedding``, (B, T + 2, P), with the boundaries and zero on padding, and ``mask``."""
        check_inputs(inputs)
        bilm = self._owner.bilm
        lengths_B = sentence_mask(inputs).sum(dim=1) + 2
        mask_BT = torch.arange(inputs.shape[1] + 2, device=inputs.device) < lengths_B[:, None]
        words_NC = add_boundaries(inputs, lengths_B, bilm.config)[mask_BT]
        vectors_NP = bilm.encode_tokens(words_NC)
        padded_BTP = vectors_NP.new_zeros(*mask_BT.shape, vectors_NP.shape[1])
        padded_BTP[mask_BT] = vectors_NP
        return {"token_embedding": padded_BTP, "mask": old_mask(mask_BT)}


def check_inputs(inputs: Tensor) -> None:
    """Reject what cannot be character ids."""
    expected = f"expected character ids (sentences, tokens, {MAX_CHARS}), as batch_to_ids(sentences) returns them"
    if not isinstance(inputs, Tensor):
        raise InputError(f"inputs is a {type(inputs).__name__}; {expected}")
    if inputs.ndim < 3 or inputs.is_floating_point():
        raise InputError(f"inputs is {inputs.dtype} of shape {tuple(inputs.shape)}; {expected}")


def _load_old_names(module: _ElmoBiLm, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    from_allennlp(module.bilm.config, state_dict, prefix)


def _save_old_names(module: _ElmoBiLm, state_dict: dict[str, Any], prefix: str, _metadata: Any) -> None:
    to_allennlp(module.bilm.config, state_dict, prefix)
