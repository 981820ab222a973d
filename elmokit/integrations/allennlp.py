"""Drop-in replacements for AllenNLP's ELMo classes: same names, arguments and results.

Change ``from allennlp.modules.elmo import Elmo, batch_to_ids`` to ``from elmokit.integrations.allennlp import …``.
As in AllenNLP, the LSTMs carry their state from batch to batch by default, so a sentence's vectors depend on earlier
batches. Pass ``state="reset"`` to any class here to make them independent.

Shapes: B sentences, T tokens, C character ids per word, L layers, D width, S any leading sizes.
"""
# ruff: noqa: FBT001, FBT002 - positional flags are AllenNLP's signatures.

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Literal, TypedDict

import h5py
import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from elmokit.atomic import atomic_file
from elmokit.embed.elmo import drop_boundaries, read_layers
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layers, Vectors, pick_layers
from elmokit.embed.state import StartStates, State
from elmokit.errors import ElmokitWarning, InputError, WeightsError
from elmokit.integrations.allennlp_lines import read_lines, sentence_keys
from elmokit.integrations.allennlp_weights import rename_allennlp_weights
from elmokit.model import scalar_mix
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.text.chars import pad_sentences
from elmokit.weights.source import build_bilm, load_saved
from elmokit.weights.start_state import stored_state

MAX_CHARS = 50  # AllenNLP's fixed number of character ids per word
SENTENCE_TO_INDEX = "sentence_to_index"

ModelFile = str | Path | None
OutputFormat = Literal["all", "top", "average"]

LAYERS: dict[OutputFormat, Layers] = {"all": "all", "top": -1, "average": "mean"}


class ElmoRepresentations(TypedDict):
    """Result of `Elmo`."""

    elmo_representations: list[Tensor]  # one (*S, T, D) per mix, zero on padding
    mask: Tensor  # (*S, T), true where there is a token


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Return the character ids of tokenized sentences, (B, T, 50), right-padded with zeros."""
    return torch.from_numpy(pad_sentences(batch, max_chars=MAX_CHARS))


class ScalarMix(nn.Module):
    """`elmokit.ScalarMix` with AllenNLP's parameters: ``scalar_parameters``, one per layer, and ``gamma``, each (1,).

    ``do_layer_norm`` normalizes each layer by its mean and variance over the whole batch, as AllenNLP does, so a
    vector depends on its batch.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        self._layer_norm: scalar_mix.LayerNorm | None = "batch" if do_layer_norm else None
        start = scalar_mix.ScalarMix(mixture_size, initial_weights=initial_scalar_parameters).weights
        assert start is not None
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(weight.clone(), requires_grad=trainable) for weight in start.detach().split(1)
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix layers of one shape, (*S, D); zero where the mask, (*S), is false."""
        if len(tensors) != len(self.scalar_parameters):
            raise InputError(
                f"{len(tensors)} tensors for a mix of {len(self.scalar_parameters)} layers; expected one per layer"
            )
        shape = tensors[0].shape
        mask = torch.ones(shape[:-1], dtype=torch.bool, device=tensors[0].device) if mask is None else mask.bool()
        # The mix treats each token alone, so all tokens can form one sentence.
        layers_1LTD = torch.stack([tensor.reshape(-1, shape[-1]) for tensor in tensors])[None]
        # A new module per call: threads that share this one would overwrite the parameters of a shared one.
        mix = scalar_mix.ScalarMix(len(tensors), layer_norm=self._layer_norm)
        parameters = {"weights": torch.cat(list(self.scalar_parameters)), "gamma": self.gamma.squeeze(0)}
        mixed_1TD: Tensor = functional_call(mix, parameters, (layers_1LTD, mask.reshape(1, -1)))
        return mixed_1TD.reshape(shape)


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
        module: A `BiLM` to use instead of the two files.
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
        module: BiLM | None = None,
        *,
        state: State = "carry",
    ) -> None:
        super().__init__()
        if num_output_representations < 1:
            raise InputError(f"num_output_representations {num_output_representations}; expected 1 or more")
        bilm, warm = _load_bilm(options_file, weight_file, module)
        self.bilm = bilm.requires_grad_(requires_grad)
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        self._states = StartStates(state, warm=warm)
        self._num_mixes = num_output_representations
        self._cached_char_ids: Tensor | None  # (vocab_to_cache, C)
        cached = batch_to_ids([vocab_to_cache])[0].to(torch.int16) if vocab_to_cache else None
        self.register_buffer("_cached_char_ids", cached, persistent=False)
        for k in range(num_output_representations):
            mix = ScalarMix(
                bilm.config.num_layers, do_layer_norm, scalar_mix_parameters, trainable=scalar_mix_parameters is None
            )
            self.add_module(f"scalar_mix_{k}", mix)
        self.register_load_state_dict_pre_hook(rename_allennlp_weights)  # type: ignore[no-untyped-call]

    def get_output_dim(self) -> int:
        """Width of a mixed vector."""
        return self.bilm.config.width

    def reset_state(self) -> None:
        """Discard the state carried from batch to batch."""
        self._states.reset()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> ElmoRepresentations:
        """Return the mixed layers of a batch.

        Args:
            inputs: Character ids without boundary tokens, (*S, T, C), as `batch_to_ids` returns them.
            word_inputs: Indices into ``vocab_to_cache``, (*S, T). If both are given, the words are taken from here.
                As in AllenNLP, index 0 is padding, and a batch with an unknown index is read from ``inputs``.
        """
        if word_inputs is not None:
            inputs = self._choose_inputs(inputs, word_inputs)
        _check_inputs(inputs)
        padded = read_layers(self.bilm, inputs.reshape(-1, *inputs.shape[-2:]), self._states)
        mixed, mask_BT = [], padded.mask_BT
        for k in range(self._num_mixes):
            vectors_BTD = self.get_submodule(f"scalar_mix_{k}")(padded.layers_BLTD.unbind(dim=1), mask_BT)
            mixed.append(vectors_BTD if self._keep_sentence_boundaries else drop_boundaries(vectors_BTD, mask_BT))
        if not self._keep_sentence_boundaries:
            mask_BT = mask_BT[:, 2:]
        leading = inputs.shape[:-2]
        return {
            "elmo_representations": [self._dropout(part).reshape(*leading, *part.shape[1:]) for part in mixed],
            "mask": mask_BT.reshape(*leading, -1),
        }

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

    def get_output_dim(self) -> int:
        """Width of the vectors that are returned."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """Return the vectors, (*S, T, output_dim), of sentences given as character ids."""
        vectors: Tensor = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)


class ElmoEmbedder:
    """The embedder of AllenNLP 0.9: tokenized sentences to arrays of all layers.

    Args:
        options_file: Path of ``options.json``. Required, since nothing is downloaded.
        weight_file: Path of the ``.hdf5`` weights. Required.
        cuda_device: Index of a GPU, or negative for the CPU.
        state: State in which a sentence starts; ``"carry"`` is AllenNLP's way.
    """

    def __init__(
        self,
        options_file: ModelFile = None,
        weight_file: ModelFile = None,
        cuda_device: int = -1,
        *,
        state: State = "carry",
    ) -> None:
        self.cuda_device = cuda_device
        source = _model_files(options_file, weight_file)
        self._embedder = Embedder.from_pretrained(source, state=state, device=_device(cuda_device))

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Return the layers of a batch, (B, L, T, D), zero on padding, and its mask, (B, T)."""
        found = self.embed_batch(batch)
        num_tokens = max((layers_LTD.shape[1] for layers_LTD in found), default=0)
        layers_BLTD = np.zeros(
            (len(found), self._embedder.num_layers, num_tokens, self._embedder.width), dtype=np.float32
        )
        mask_BT = np.zeros((len(found), num_tokens), dtype=bool)
        for row, layers_LTD in enumerate(found):
            layers_BLTD[row, :, : layers_LTD.shape[1]] = layers_LTD
            mask_BT[row, : layers_LTD.shape[1]] = True
        device = self._embedder.device
        return torch.from_numpy(layers_BLTD).to(device), torch.from_numpy(mask_BT).to(device)

    def embed_sentence(self, sentence: Sequence[str]) -> Vectors:
        """Return one sentence's layers, (L, T, D)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Vectors]:
        """Return every sentence's layers, (L, T, D), run as one batch; an empty sentence gives (L, 0, D)."""
        if isinstance(batch, str) or not isinstance(batch, Sized):
            raise InputError(f"batch is {str(batch)[:40]!r}; expected a list of sentences, each a list of tokens")
        return list(self.embed_sentences(batch, batch_size=max(len(batch), 1)))

    def embed_sentences(self, sentences: Iterable[Sequence[str]], batch_size: int = 64) -> Iterator[Vectors]:
        """Yield every sentence's layers, (L, T, D), from a stream of sentences."""
        return self._embedder.iter_layers(map(_check_tokens, sentences), batch_size=batch_size)

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: str | Path,
        output_format: OutputFormat = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed an open file of tokenized lines into an HDF5 file, one dataset per line.

        The key of a dataset is the line number from 0, or with ``use_sentence_keys`` the line itself. Without either
        option, the dataset ``sentence_to_index`` maps each line to its number as JSON; a repeated line keeps its first
        number.
        """
        if output_format not in LAYERS:
            raise InputError(f"output_format {output_format!r}; expected 'all', 'top' or 'average'")
        lines = read_lines(input_file)
        keys = sentence_keys(lines) if use_sentence_keys else [str(number) for number in range(len(lines))]
        found = self.embed_sentences((line.split() for line in lines), batch_size)
        # Through Python's file a full disk is an OSError; HDF5's own driver notices late, and then crashes.
        with atomic_file(output_file_path) as path, path.open("wb+") as stream, h5py.File(stream, "w") as file:
            for key, layers_LTD in zip(keys, found, strict=True):
                file.create_dataset(key, data=pick_layers(layers_LTD, LAYERS[output_format]), dtype=np.float32)
            if not forget_sentences and not use_sentence_keys:
                first = dict(zip(reversed(lines), reversed(keys), strict=True))
                file.create_dataset(SENTENCE_TO_INDEX, data=[json.dumps(first)], dtype=h5py.string_dtype())


def _model_files(options_file: ModelFile, weight_file: ModelFile) -> tuple[str | Path, str | Path]:
    """Return both paths; reject defaults and URLs, which AllenNLP would have downloaded."""
    if options_file is None or weight_file is None:
        missing = "options_file" if options_file is None else "weight_file"
        raise WeightsError(
            f"{missing} is missing; elmokit downloads nothing. Pass the paths of both files of a published model: "
            "options_file='options.json', weight_file='weights.hdf5'"
        )
    for name, value in (("options_file", options_file), ("weight_file", weight_file)):
        if "://" in str(value):
            raise WeightsError(
                f"{name} is the URL {str(value)!r}; elmokit downloads nothing. Download the file and pass its path"
            )
    return options_file, weight_file


def _load_bilm(options_file: ModelFile, weight_file: ModelFile, module: BiLM | None) -> tuple[BiLM, BiLMState | None]:
    """Return the biLM, and its start state if one was saved with it."""
    if module is None:
        saved = load_saved(_model_files(options_file, weight_file))
        return build_bilm(saved), stored_state(saved)
    if not isinstance(module, BiLM):
        raise InputError(f"module is a {type(module).__name__}; expected an elmokit.BiLM, or None and the two files")
    if options_file is not None or weight_file is not None:
        raise InputError("both module and options_file or weight_file are given; pass None for the files")
    return module, None


def _check_inputs(inputs: Tensor) -> None:
    expected = f"expected character ids (sentences, tokens, {MAX_CHARS}), as batch_to_ids(sentences) returns them"
    if not isinstance(inputs, Tensor):
        raise InputError(f"inputs is a {type(inputs).__name__}; {expected}")
    if inputs.ndim < 3 or inputs.is_floating_point():
        raise InputError(f"inputs is {inputs.dtype} of shape {tuple(inputs.shape)}; {expected}")


def _check_tokens(sentence: Sequence[str]) -> Sequence[str]:
    # The characters of a string would pass for tokens.
    if isinstance(sentence, str) or not isinstance(sentence, Iterable):
        raise InputError(f"a sentence is {str(sentence)[:40]!r}; expected a list of tokens, such as text.split()")
    return sentence


def _device(cuda_device: int) -> str:
    if cuda_device < 0:
        return "cpu"
    if cuda_device >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise InputError(f"cuda_device {cuda_device}, but torch finds {found} GPUs; pass -1 for the CPU")
    return f"cuda:{cuda_device}"
