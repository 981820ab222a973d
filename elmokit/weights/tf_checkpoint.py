"""bilm-tf's own checkpoints: the biLM and, unlike published HDF5 files, its output layer."""

import re
from pathlib import Path

import torch

from elmokit.config import BiLMConfig
from elmokit.errors import WeightsError
from elmokit.text.vocab import Vocab
from elmokit.weights.bilm_tf import GATES, published_shapes, read_options, saved_from_arrays
from elmokit.weights.saved import SavedBiLM, SavedSoftmax, Shape
from elmokit.weights.tf_bundle import Bundle, open_bundle

SCOPE = "lm/"
SOFTMAX_WEIGHT, SOFTMAX_BIAS = "softmax/W", "softmax/b"

# Names in a checkpoint, from those that bilm-tf's dump_weights.py gives the same arrays in HDF5.
RENAMED = (
    (r"/RNN/MultiRNNCell/Cell(\d+)/LSTMCell/", r"/rnn/multi_rnn_cell/cell_\1/lstm_cell/"),
    (r"/W_0$", "/kernel"),
    (r"/B$", "/bias"),
    (r"/W_P_0$", "/projection/kernel"),
)
# TensorFlow leaves the level of the stack out if it has one layer.
SINGLE_LAYER = (r"/multi_rnn_cell/cell_0/", "/")


def checkpoint_names(config: BiLMConfig) -> dict[str, str]:
    """Return the checkpoint's name of every published array."""
    rows = RENAMED if config.lstm.num_layers > 1 else (*RENAMED, SINGLE_LAYER)
    names = {}
    for published in published_shapes(config):
        name = published
        for pattern, new in rows:
            name = re.sub(pattern, new, name)
        names[published] = SCOPE + name
    return names


def read_checkpoint(options_path: Path, prefix: Path, vocab: Vocab | None) -> SavedBiLM:
    """Read a biLM; ``prefix`` is the path that the checkpoint's file names begin with.

    ``vocab`` is needed only for a model that reads word ids.
    """
    read = read_options(options_path, vocab)
    shapes, names = published_shapes(read.config, source=options_path), checkpoint_names(read.config)
    found = open_bundle(prefix).read({names[published]: shape for published, shape in shapes.items()})
    saved = saved_from_arrays(read, {published: found[name] for published, name in names.items()})
    saved.about["Origin"] = f"read from a checkpoint of bilm-tf ({prefix.name})"
    return saved


def read_checkpoint_softmax(prefix: Path, config: BiLMConfig, vocab: Vocab) -> SavedSoftmax:
    """Read the output layer of a checkpoint."""
    bundle = open_bundle(prefix)
    weight_name = _weight_name(bundle)
    shapes: dict[str, Shape] = {weight_name: (len(vocab), config.lstm.proj_dim), SCOPE + SOFTMAX_BIAS: (len(vocab),)}
    entry = bundle.entries.get(SCOPE + SOFTMAX_BIAS)
    if entry is not None and entry.shape != (len(vocab),):
        raise WeightsError(
            f"{prefix}: its output layer has {entry.shape} words, but the vocabulary has {len(vocab):,}; "
            "use the vocabulary file that the model was trained with"
        )
    found = bundle.read(shapes)
    return SavedSoftmax(torch.from_numpy(found[weight_name]), torch.from_numpy(found[SCOPE + SOFTMAX_BIAS]), vocab)


def check_same_model(prefix: Path, saved: SavedBiLM) -> None:
    """Reject a checkpoint that is of another model than the HDF5 file beside it, as far as a small array shows."""
    published, ours = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B", "forward_lstm.layers.0.bias"
    name, shape = checkpoint_names(saved.config)[published], published_shapes(saved.config)[published]
    (found,) = GATES.split(torch.from_numpy(open_bundle(prefix).read({name: shape})[name]))
    if not torch.equal(found, saved.tensors[ours]):
        raise WeightsError(
            f"{prefix.parent}: the checkpoint {prefix.name} and the .hdf5 beside it have different weights: these are "
            "two models; move one of them away"
        )


def _weight_name(bundle: Bundle) -> str:
    # With share_embedding_softmax, a model that reads word ids has one table for input and output.
    separate = SCOPE + SOFTMAX_WEIGHT
    return separate if separate in bundle.entries else f"{SCOPE}embedding"
