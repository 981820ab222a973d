"""bilm-tf's names on torch: batches of ids, the biLM, trained mixes of its layers, and its two dumps.

Change ``from bilm import Batcher, BidirectionalLanguageModel, weight_layers`` to
``from elmokit.integrations.bilm_tf import …``. There are no placeholders and no session: the model is called with ids
and returns tensors. As in bilm-tf, row k of a batch starts in the state in which row k of the batch before ended.

Shapes: N sentences, T tokens of the longest, C character ids per word, L layers, D width, P width of a token vector.
"""
# ruff: noqa: FBT001, FBT002 - positional flags are bilm-tf's signatures.

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.atomic import atomic_file
from elmokit.embed.embedder import Embedder
from elmokit.embed.state import StartStates, State
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM
from elmokit.model.scalar_mix import LayerNorm, ScalarMix
from elmokit.text.chars import BOS_WORD, EOS_WORD, pad_sentences
from elmokit.text.grouping import windows
from elmokit.text.lines import read_lines
from elmokit.text.vocab import Vocab, read_vocab
from elmokit.weights.safe_hdf5 import read_datasets
from elmokit.weights.source import build_bilm, load_saved

WORDS_AT_ONCE = 512

Ids = NDArray[np.int64]


class Batcher:
    """Sentences to character ids, (N, T + 2, C), with both boundary tokens, zeros after each sentence."""

    def __init__(self, lm_vocab_file: str | Path, max_token_length: int) -> None:
        # The file is checked as in bilm-tf, though characters need no vocabulary.
        self._vocab = read_vocab(lm_vocab_file)
        self._max_token_length = max_token_length

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> Ids:
        """Return the ids of tokenized sentences."""
        bounded = [[BOS_WORD, *sentence, EOS_WORD] for sentence in sentences]
        return pad_sentences(bounded, max_chars=self._max_token_length)


class TokenBatcher:
    """Sentences to word ids, (N, T + 2), with both boundary tokens: a word's line number from 1; 0 is padding."""

    def __init__(self, lm_vocab_file: str | Path) -> None:
        self._vocab = read_vocab(lm_vocab_file)

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> Ids:
        """Return the ids of tokenized sentences."""
        longest = max(map(len, sentences), default=0)
        ids_NT = np.zeros((len(sentences), longest + 2), dtype=np.int64)
        for row, sentence in enumerate(sentences):
            ids_NT[row, : len(sentence) + 2] = [self._id(word) for word in (BOS_WORD, *sentence, EOS_WORD)]
        return ids_NT

    def _id(self, word: str) -> int:
        return self._vocab.id(word) + 1


class BidirectionalLanguageModel(nn.Module):
    """A biLM called with ids, and the mixes of its layers that `weight_layers` made, which are trained.

    Args:
        options_file: Path of ``options.json``.
        weight_file: Path of the ``.hdf5`` weights.
        use_character_inputs: Take character ids of a `Batcher`; otherwise word ids of a `TokenBatcher`.
        embedding_weight_file: Token vectors of the words, as `dump_token_embeddings` writes them; for word ids.
        max_batch_size: Largest number of sentences per batch.
        state: State in which a sentence starts; ``"carry"`` is bilm-tf's way.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int = 128,
        *,
        state: State = "carry",
    ) -> None:
        super().__init__()
        if not use_character_inputs and embedding_weight_file is None:
            raise InputError(
                "use_character_inputs is False without an embedding_weight_file; pass the file that "
                "dump_token_embeddings wrote"
            )
        self.bilm: BiLM = build_bilm(load_saved((options_file, weight_file))).requires_grad_(requires_grad=False)
        self.mixes = nn.ModuleDict()
        self._max_batch_size = max_batch_size
        self._states = StartStates(state, warm=None)
        self._embedding: Tensor | None
        self.register_buffer("_embedding", None, persistent=False)
        if embedding_weight_file is not None and not use_character_inputs:
            self._embedding = _read_embedding(embedding_weight_file, self.bilm.config.lstm.proj_dim)

    def reset_state(self) -> None:
        """Discard the state carried from batch to batch."""
        self._states.reset()

    def forward(self, ids: Tensor | Ids) -> dict[str, Any]:
        """Run a batch of ids with boundary tokens, as the batchers make them.

        Returns:
            ``lm_embeddings`` (N, L, T, D) and ``mask`` (N, T) without the boundaries, ``lengths`` (N,), and
            ``token_embeddings`` (N, T + 2, P) with them.
        """
        ids = torch.as_tensor(ids, device=self.bilm.device).long()
        expected = 3 if self._embedding is None else 2
        if ids.ndim != expected:
            raise InputError(f"ids have {ids.ndim} dimensions; expected {expected}, as the batcher makes them")
        if len(ids) > self._max_batch_size:
            raise InputError(f"{len(ids)} sentences in a batch; max_batch_size is {self._max_batch_size}")
        mask_NT = (ids > 0) if ids.ndim == 2 else (ids > 0).any(dim=2)
        lengths_N = mask_NT.sum(dim=1)
        if bool((lengths_N < 2).any()):
            raise InputError("a sentence has no boundary tokens; make the ids with a batcher, which adds both")
        if self._embedding is None:
            distinct_WC, word_M = ids[mask_NT].unique(dim=0, return_inverse=True)
            tokens_MP = self.bilm.encode_tokens(distinct_WC)[word_M]
        else:
            tokens_MP = self._embedding[ids[mask_NT] - 1]
        start = self._states.begin(self.bilm, len(ids))
        ragged = self.bilm.run(tokens_MP, lengths_N.tolist(), start)
        self._states.end(ragged.final)
        layers_NTLD = tokens_MP.new_zeros(*mask_NT.shape, *ragged.layers_LND.transpose(0, 1).shape[1:])
        layers_NTLD[mask_NT] = ragged.layers_LND.transpose(0, 1)
        tokens_NTP = tokens_MP.new_zeros(*mask_NT.shape, tokens_MP.shape[1])
        tokens_NTP[mask_NT] = tokens_MP
        cut_NTLD = layers_NTLD[:, 1:-1] * mask_NT[:, 2:, None, None]
        return {
            "lm_embeddings": cut_NTLD.transpose(1, 2),
            "lengths": lengths_N - 2,
            "token_embeddings": tokens_NTP,
            "mask": mask_NT[:, 2:],
            "model": self,
        }


def weight_layers(
    name: str,
    bilm_ops: dict[str, Any],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
) -> dict[str, Tensor]:
    """Mix the layers of a batch with trained weights.

    The weights belong to the model that made ``bilm_ops``, under ``name``: call this with the same name again for the
    next batch, and give ``model.parameters()`` to the optimizer.

    Args:
        name: Name of the mix.
        bilm_ops: Result of a `BidirectionalLanguageModel`.
        l2_coef: Factor of the penalty on the weights before the softmax.
        use_top_only: Use the top layer alone, with a trained factor and without a penalty.
        do_layer_norm: Normalize each layer by its mean and variance over the batch, boundaries left out.

    Returns:
        ``weighted_op``, (N, T, D), and ``regularization_op``, a scalar.
    """
    model, layers_NLTD = bilm_ops["model"], bilm_ops["lm_embeddings"]
    if name not in model.mixes:
        only = layers_NLTD.shape[1] - 1 if use_top_only else None
        norm: LayerNorm | None = "batch" if do_layer_norm else None
        mix = ScalarMix(layers_NLTD.shape[1], layer_norm=norm, only_layer=only)
        model.mixes[name] = mix.to(layers_NLTD.device)
    mix = model.mixes[name]
    penalty = layers_NLTD.new_zeros(()) if l2_coef is None or use_top_only else mix.penalty(l2_coef)
    return {"weighted_op": mix(layers_NLTD, bilm_ops["mask"]), "regularization_op": penalty}


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path, outfile: str | Path
) -> None:
    """Write the token vectors of a vocabulary as dataset ``embedding``, (words, P)."""
    vocab = read_vocab(vocab_file)
    bilm = build_bilm(load_saved((options_file, weight_file)))
    with atomic_file(outfile) as path, path.open("wb+") as stream, h5py.File(stream, "w") as file:
        shape = (len(vocab), bilm.config.lstm.proj_dim)
        dataset = file.create_dataset("embedding", shape, dtype=np.float32)
        for first, vectors_WP in _token_vectors(bilm, vocab):
            dataset[first : first + len(vectors_WP)] = vectors_WP


def dump_bilm_embeddings(
    vocab_file: str | Path,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path,
    outfile: str | Path,
    *,
    state: State = "carry",
) -> None:
    """Write every layer of a tokenized file, (L, T, D) per line, under the line's number.

    As in bilm-tf, lines are run one by one, and each starts in the state in which the one before ended. Pass
    ``state="reset"`` to make them independent.
    """
    read_vocab(vocab_file)  # checked as in bilm-tf
    embedder = Embedder.from_pretrained((options_file, weight_file), state=state)
    sentences = (line.text.split() for line in read_lines([dataset_file]))
    with atomic_file(outfile) as path, path.open("wb+") as stream, h5py.File(stream, "w") as file:
        for number, layers_LTD in enumerate(embedder.iter_layers(sentences, batch_size=1)):
            file.create_dataset(str(number), data=layers_LTD, dtype=np.float32)


def _token_vectors(bilm: BiLM, vocab: Vocab) -> Iterator[tuple[int, NDArray[np.float32]]]:
    max_chars = bilm.config.char_encoder.max_chars
    first = 0
    for words in windows(vocab.words, WORDS_AT_ONCE):
        ids_WC = torch.from_numpy(pad_sentences([words], max_chars=max_chars)[0])
        with torch.inference_mode():
            yield first, bilm.encode_tokens(ids_WC).numpy()
        first += len(words)


def _read_embedding(path: str | Path, width: int) -> Tensor:
    with h5py.File(path, "r") as file:
        num_words = file["embedding"].shape[0] if "embedding" in file else 0
    found = read_datasets(path, {"embedding": (num_words, width)})
    return torch.from_numpy(found.arrays["embedding"])
