"""``ElmoEmbedder`` of AllenNLP 0.9: tokenized sentences to arrays of all layers.

Shapes: B sentences, T tokens, L layers, D width.
"""
# ruff: noqa: FBT001, FBT002 - positional flags are AllenNLP's signatures.

import json
from collections.abc import Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import torch
from torch import Tensor

from elmokit.atomic import atomic_file
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Layers, Vectors, pick_layers
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.integrations.allennlp_bilm import _ElmoBiLm
from elmokit.integrations.allennlp_files import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    ModelFile,
    find_model_files,
)
from elmokit.integrations.allennlp_indexer import ELMoTokenCharactersIndexer
from elmokit.integrations.allennlp_lines import read_lines, sentence_keys
from elmokit.integrations.allennlp_mask import old_mask

SENTENCE_TO_INDEX = "sentence_to_index"

OutputFormat = Literal["all", "top", "average"]

LAYERS: dict[OutputFormat, Layers] = {"all": "all", "top": -1, "average": "mean"}


class ElmoEmbedder:
    """The embedder of AllenNLP 0.9: tokenized sentences to arrays of all layers.

    Args:
        options_file: Path of ``options.json``; by default AllenNLP's, looked for as `elmokit.integrations.allennlp`
            says.
        weight_file: Path of the ``.hdf5`` weights; the same.
        cuda_device: Index of a GPU, or negative for the CPU.
        state: State in which a sentence starts; ``"carry"`` is AllenNLP's way.
    """

    def __init__(
        self,
        options_file: ModelFile = DEFAULT_OPTIONS_FILE,
        weight_file: ModelFile = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
        *,
        state: State = "carry",
    ) -> None:
        self.cuda_device = cuda_device
        self.indexer = ELMoTokenCharactersIndexer()
        source = find_model_files(options_file, weight_file)
        self._embedder = Embedder.from_pretrained(source, state=state, device=_device(cuda_device))
        self._bilm_of_names: _ElmoBiLm | None = None

    @property
    def elmo_bilm(self) -> _ElmoBiLm:
        """The biLM under its old names; it shares the weights and the carried state of this embedder."""
        if self._bilm_of_names is None:
            self._bilm_of_names = _ElmoBiLm(None, None, bilm=self._embedder.bilm, states=self._embedder._states).eval()
        return self._bilm_of_names

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bilm_of_names": None}  # made again, so that the state stays shared

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
        return torch.from_numpy(layers_BLTD).to(device), old_mask(torch.from_numpy(mask_BT).to(device))

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
