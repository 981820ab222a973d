"""``Elmo`` and ``ElmoTokenEmbedder`` of AllenNLP as modules over our biLM.

Shapes: B sentences, T tokens, C character ids per word, L layers, D width, S any leading sizes.
"""
# ruff: noqa: FBT001, FBT002 - positional flags are AllenNLP's signatures.

from collections.abc import Sequence
from typing import Any, TypedDict, cast

from torch import Tensor, nn

from elmokit.embed.elmo import drop_boundaries
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.integrations.allennlp_bilm import _ElmoBiLm
from elmokit.integrations.allennlp_files import ModelFile
from elmokit.integrations.allennlp_mask import old_mask
from elmokit.integrations.allennlp_mix import ScalarMix
from elmokit.integrations.allennlp_params import read_params
from elmokit.model.bilm import BiLM


class ElmoRepresentations(TypedDict):
    """Result of `Elmo`."""

    elmo_representations: list[Tensor]  # one (*S, T, D) per mix, zero on padding
    mask: Tensor  # (*S, T), true where there is a token


class Elmo(nn.Module):
    """A biLM and ``num_output_representations`` mixes of its layers, as ``allennlp.modules.elmo.Elmo``.

    Weights saved by AllenNLP load with ``load_state_dict``.

    Args:
        options_file: Path of ``options.json``; None with ``module``.
        weight_file: Path of the ``.hdf5`` weights; None with ``module``.
        num_output_representations: Number of mixes.
        requires_grad: Train the biLM too.
        do_layer_norm: Normalize the layers before the mix, over the whole batch.
        dropout: Dropout on the mixed vectors, active until ``eval()``.
        vocab_to_cache: The words that ``word_inputs`` refers to by index. It does not save time, since every distinct
            word of a batch is encoded once anyway.
        keep_sentence_boundaries: Return the vectors of the boundary tokens too.
        scalar_mix_parameters: Mix weights before the softmax; they are not trained.
        module: An `elmokit.BiLM` or an ``_ElmoBiLm`` to use instead of the two files.
        state: State in which a sentence starts; ``"carry"`` is AllenNLP's way.
    """

    def __init__(
        self,
        options_file: ModelFile,
        weight_file: ModelFile,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: BiLM | _ElmoBiLm | None = None,
        *,
        state: State = "carry",
    ) -> None:
        super().__init__()
        if num_output_representations < 1:
            raise InputError(f"num_output_representations {num_output_representations}; expected 1 or more")
        given = _given_bilm(module, options_file, weight_file, state)
        self._elmo_lstm = given or _ElmoBiLm(options_file, weight_file, state=state)
        self._elmo_lstm.requires_grad_(requires_grad)
        if vocab_to_cache:
            self._elmo_lstm.create_cached_cnn_embeddings(vocab_to_cache)
        bilm = self._elmo_lstm.bilm
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        self._num_mixes = num_output_representations
        for k in range(num_output_representations):
            mix = ScalarMix(
                bilm.config.num_layers, do_layer_norm, scalar_mix_parameters, trainable=scalar_mix_parameters is None
            )
            self.add_module(f"scalar_mix_{k}", mix)
        self.register_load_state_dict_pre_hook(_rename_bilm)  # type: ignore[no-untyped-call]

    @classmethod
    def from_params(cls, params: Any) -> "Elmo":
        """Build it from AllenNLP's ``Params``, or from a dict of the arguments."""
        return cls(**read_params(params, cls))

    @property
    def bilm(self) -> BiLM:
        """The biLM."""
        return self._elmo_lstm.bilm

    @property
    def _scalar_mixes(self) -> list[ScalarMix]:
        return [cast("ScalarMix", self.get_submodule(f"scalar_mix_{k}")) for k in range(self._num_mixes)]

    def get_output_dim(self) -> int:
        """Width of a mixed vector."""
        return self.bilm.config.width

    def reset_state(self) -> None:
        """Discard the state carried from batch to batch."""
        self._elmo_lstm.states.reset()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> ElmoRepresentations:
        """Return the mixed layers of a batch.

        Args:
            inputs: Character ids without boundary tokens, (*S, T, C), as `batch_to_ids` returns them.
            word_inputs: Indices into ``vocab_to_cache``, (*S, T). If both are given, the words are taken from here.
                As in AllenNLP, index 0 is padding, and a batch with an unknown index is read from ``inputs``.
        """
        found = self._elmo_lstm(inputs, word_inputs)
        leading = inputs.shape[:-2] if word_inputs is None else word_inputs.shape[:-1]
        mixed, mask_BT = [], found["mask"].as_subclass(Tensor)
        for mix in self._scalar_mixes:
            vectors_BTD = mix(found["activations"], mask_BT)
            mixed.append(vectors_BTD if self._keep_sentence_boundaries else drop_boundaries(vectors_BTD, mask_BT))
        if not self._keep_sentence_boundaries:
            mask_BT = mask_BT[:, 2:]
        return {
            "elmo_representations": [self._dropout(part).reshape(*leading, *part.shape[1:]) for part in mixed],
            "mask": old_mask(mask_BT.reshape(*leading, -1)),
        }


class ElmoTokenEmbedder(nn.Module):
    """`Elmo` with one mix, and a linear projection of it if ``projection_dim`` is given."""

    def __init__(
        self,
        options_file: ModelFile = None,
        weight_file: ModelFile = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        *,
        state: State = "carry",
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            state=state,
        )
        width = self._elmo.get_output_dim()
        self._projection = nn.Linear(width, projection_dim) if projection_dim else None
        self.output_dim = projection_dim or width

    @classmethod
    def from_params(cls, *arguments: Any, params: Any = None) -> "ElmoTokenEmbedder":
        """Build it from AllenNLP's ``Params`` or a dict; a vocabulary before them, as AllenNLP has it, is not used."""
        return cls(**read_params(arguments[-1] if params is None else params, cls))

    def get_output_dim(self) -> int:
        """Width of the vectors that are returned."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """Return the vectors, (*S, T, output_dim), of sentences given as character ids."""
        vectors: Tensor = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)


def _given_bilm(module: object, options_file: ModelFile, weight_file: ModelFile, state: State) -> _ElmoBiLm | None:
    """Return the biLM that was given as a module; None if files were given instead."""
    if module is None:
        return None
    if not isinstance(module, BiLM | _ElmoBiLm):
        raise InputError(
            f"module is a {type(module).__name__}; expected an elmokit.BiLM or an _ElmoBiLm, or None and the two files"
        )
    if options_file is not None or weight_file is not None:
        raise InputError("both module and options_file or weight_file are given; pass None for the files")
    return module if isinstance(module, _ElmoBiLm) else _ElmoBiLm(None, None, bilm=module, state=state)


def _rename_bilm(_module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Accept state dicts that elmokit 0.1 wrote, where the biLM was called ``bilm``."""
    for name in [name for name in state_dict if name.startswith(f"{prefix}bilm.")]:
        state_dict[f"{prefix}_elmo_lstm.{name.removeprefix(prefix)}"] = state_dict.pop(name)
