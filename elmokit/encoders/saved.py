"""A comparison encoder on disk: a folder. No pickle in it.

config.json          format, version, kind, sizes, hash of the vectors
model.safetensors    weights of CoVe and context2vec
vocab.txt            words of context2vec
vectors/             static vectors of CoVe, or those that are the encoder; a compact CoVe has none
README.md            model card
SHA256SUMS           hashes of what is loaded
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import PositiveInt
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from elmokit.atomic import atomic_folder
from elmokit.config import FrozenConfig, parse_config
from elmokit.encoders.context2vec import Context2Vec
from elmokit.encoders.cove import CoVeEncoder, from_published
from elmokit.encoders.layer_sources import Context2VecLayers, CoVeLayers, LoadedEncoder, StaticLayers
from elmokit.encoders.static_vectors import Lowering, StaticVectors
from elmokit.errors import InputError, WeightsError
from elmokit.text.vocab import read_vocab
from elmokit.weights.building import check_buildable
from elmokit.weights.folder import is_replaceable, write_tensors
from elmokit.weights.options import read_json_object
from elmokit.weights.signing import SIGNATURE, check_required_signature
from elmokit.weights.state_dicts import load_state_dict
from elmokit.weights.sums import CARD, SUMS, check_sums, read_sums, sha256, warn_of_changed_card, write_sums

Module = TypeVar("Module", bound=nn.Module)

FORMAT: Final = "elmokit.encoder"
CONFIG, TENSORS, VOCAB, VECTORS = "config.json", "model.safetensors", "vocab.txt", "vectors"
KNOWN_FILES = {CONFIG, TENSORS, VOCAB, VECTORS, CARD, SUMS, SIGNATURE}
NAMES = {"cove": (CONFIG, TENSORS), "context2vec": (CONFIG, TENSORS, VOCAB), "static": (CONFIG,)}
"""Hashed files of each kind."""


class EncoderConfig(FrozenConfig):
    """The content of config.json."""

    format: Literal["elmokit.encoder"] = FORMAT
    version: Literal[1] = 1
    kind: Literal["cove", "context2vec", "static"]
    lower: Lowering = "always"
    word_dim: PositiveInt
    hidden_dim: PositiveInt | None = None
    context_dim: PositiveInt | None = None
    vectors: str | None = None
    """Hash of the SHA256SUMS in ``vectors``, which pins them."""


def save_encoder(encoder: LoadedEncoder, folder: str | Path, *, description: str) -> None:
    """Save an encoder as a folder; an older one of ours there is replaced."""
    folder = Path(folder)
    with atomic_folder(folder, replace=is_replaceable(folder, form=FORMAT, known_files=KNOWN_FILES)) as new:
        if isinstance(encoder, Context2VecLayers):
            (new / VOCAB).write_bytes(encoder.vocab.to_text().encode())
        else:
            encoder.vectors.save(new / VECTORS)
        config = _config_of(encoder, None if isinstance(encoder, Context2VecLayers) else sha256(new / VECTORS / SUMS))
        (new / CONFIG).write_text(json.dumps(config.model_dump(mode="json"), indent=2) + "\n", "utf-8")
        if not isinstance(encoder, StaticLayers):
            module = encoder.encoder if isinstance(encoder, CoVeLayers) else encoder.model
            tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in module.state_dict().items()}
            write_tensors(tensors, new / TENSORS, folder)
        (new / CARD).write_text(f"# {folder.resolve().name}\n\n{description}\n", "utf-8")
        write_sums(new, (*NAMES[config.kind], CARD))


def compact_cove(run_model: str | Path, folder: str | Path, *, description: str) -> None:
    """Copy a saved CoVe with its weights in float16 and without its static vectors, a fifth of the size.

    Give the vectors again to load it: ``cove:FOLDER,VECTORS``.
    """
    encoder, folder = load_encoder(run_model), Path(folder)
    if not isinstance(encoder, CoVeLayers):
        raise InputError(f"{run_model}: holds no CoVe")
    with atomic_folder(folder, replace=is_replaceable(folder, form=FORMAT, known_files=KNOWN_FILES)) as new:
        shutil.copyfile(Path(run_model) / CONFIG, new / CONFIG)
        write_tensors({name: one.half() for name, one in encoder.encoder.state_dict().items()}, new / TENSORS, folder)
        (new / CARD).write_text(f"# {folder.resolve().name}\n\n{description}\n", "utf-8")
        write_sums(new, (*NAMES["cove"], CARD))


def load_encoder(folder: str | Path, vectors: StaticVectors | None = None) -> LoadedEncoder:
    """Load an encoder that `save_encoder` saved, and verify its hashes.

    ``vectors`` are the static vectors of a CoVe that was stored without them.
    """
    folder = Path(folder)
    config = parse_config(EncoderConfig, read_json_object(folder / CONFIG), source=str(folder / CONFIG))
    check_required_signature(folder)
    check_sums(folder, NAMES[config.kind])
    warn_of_changed_card(folder, read_sums(folder))
    if vectors is None:
        _check_vectors(folder, config)
    elif config.kind != "cove" or config.vectors != _hash_vectors(vectors):
        raise InputError(f"{folder}: was trained on other static vectors than those given; give its own")
    if config.kind == "static":
        return StaticLayers(StaticVectors.load(folder / VECTORS), lower=config.lower)
    if config.hidden_dim is None or (config.kind == "context2vec" and config.context_dim is None):
        raise WeightsError(f"{folder / CONFIG}: a size is missing; get the folder again")
    if config.kind == "cove":
        encoder = _load_module(partial(CoVeEncoder, config.word_dim, config.hidden_dim), folder / TENSORS)
        return CoVeLayers(encoder, vectors or StaticVectors.load(folder / VECTORS), lower=config.lower)
    vocab = read_vocab(folder / VOCAB)
    assert config.context_dim is not None
    sizes = {"word_dim": config.word_dim, "hidden_dim": config.hidden_dim, "context_dim": config.context_dim}
    build = partial(Context2Vec, len(vocab), (vocab.bos_id, vocab.eos_id), **sizes)
    return Context2VecLayers(_load_module(build, folder / TENSORS), vocab)


def is_encoder(folder: str | Path) -> bool:
    """Return whether a folder holds a comparison encoder."""
    path = Path(folder) / CONFIG
    return path.is_file() and read_json_object(path).get("format") == FORMAT


def load_published_cove(path: str | Path, vectors: StaticVectors, *, lower: Lowering = "never") -> CoVeLayers:
    """Load the published file of CoVe, a pickled state dict, without running code that it may hold.

    Args:
        path: The file, such as ``wmtlstm-8f474287.pth``.
        vectors: Vectors that the encoder was trained on: GloVe 840B, 300 wide.
        lower: How words are looked up.
    """
    tensors = load_state_dict(path)
    encoder = from_published(tensors, source=str(path))
    if encoder.lower.input_size != vectors.width:
        raise InputError(
            f"static vectors are {vectors.width} wide; {path} expects {encoder.lower.input_size}: use GloVe 840B"
        )
    return CoVeLayers(encoder, vectors, lower=lower)


def _check_vectors(folder: Path, config: EncoderConfig) -> None:
    sums = folder / VECTORS / SUMS
    if config.vectors is not None and not (folder / VECTORS).exists():
        raise WeightsError(f"{folder}: has no static vectors; name them too: cove:{folder},VECTORS")
    if config.vectors is not None and (not sums.is_file() or sha256(sums) != config.vectors):
        raise WeightsError(f"{folder / VECTORS}: is not what the encoder was saved with; get the whole folder again")


def _hash_vectors(vectors: StaticVectors) -> str:
    with tempfile.TemporaryDirectory(prefix="elmokit-") as work:
        vectors.save(Path(work) / VECTORS)
        return sha256(Path(work) / VECTORS / SUMS)


def _config_of(encoder: LoadedEncoder, vectors: str | None) -> EncoderConfig:
    if isinstance(encoder, StaticLayers):
        return EncoderConfig(kind="static", lower=encoder.lower, word_dim=encoder.width, vectors=vectors)
    if isinstance(encoder, CoVeLayers):
        width, hidden_dim = encoder.vectors.width, encoder.encoder.hidden_dim
        return EncoderConfig(kind="cove", lower=encoder.lower, word_dim=width, hidden_dim=hidden_dim, vectors=vectors)
    model = encoder.model
    return EncoderConfig(
        kind="context2vec",
        word_dim=model.left_words.embedding_dim,
        hidden_dim=model.left.hidden_size,
        context_dim=model.output.out_features,
    )


def _load_module(build: Callable[[], Module], path: Path) -> Module:
    """Return the module with the weights of a file, which must be of its shapes and finite."""
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path}: cannot be read: {error}; get the folder again") from error
    check_buildable(build, weights, source=str(path))
    if infinite := [name for name, tensor in weights.items() if not tensor.isfinite().all()]:
        raise WeightsError(f"{path}: {infinite[0]} holds NaN or infinite values; the model was damaged in training")
    module = build()
    module.load_state_dict(weights)
    return module
