"""Layer sources by name: a biLM, or any encoder that it is compared with.

    en-small, FOLDER        a biLM: bundled, installed or saved; a saved CoVe, context2vec or TagLM
    untrained:MODEL         a biLM of the same shape with random weights
    glove:FILE              static vectors as a single layer; word2vec:FILE is the same
    cove:WEIGHTS,VECTORS    the published weights of CoVe, or a folder with a CoVe of ours that was stored without its
                            vectors; and the GloVe file that they were trained on
    taglm:FORWARD,BACKWARD  two language models that share nothing, each the folder of a biLM

Everything that reads layers takes such a name: tasks (``elmo.model``), probes and evaluations.
"""

from pathlib import Path
from typing import Unpack

from elmokit.embed.embedder import Embedder
from elmokit.embed.options import EmbedderOptions
from elmokit.embed.separate_models import SeparateModels, is_pair, load_pair
from elmokit.encoders.layer_sources import (
    Context2VecLayers,
    CoVeLayers,
    LayerSource,
    LoadedEncoder,
    StaticLayers,
)
from elmokit.encoders.saved import is_encoder, load_encoder, load_published_cove, save_encoder
from elmokit.encoders.static_vectors import read_static_vectors
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM
from elmokit.runs.seeds import seeded
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import load_saved

UNTRAINED, COVE, TAGLM, STATIC = "untrained:", "cove:", "taglm:", ("glove:", "word2vec:")
UNTRAINED_STREAM = 2  # key of the random stream that untrained weights are drawn from


def open_layer_source(spec: str | Path, *, seed: int = 0, **options: Unpack[EmbedderOptions]) -> LayerSource:
    """Return the layer source of a name.

    Args:
        spec: name, folder or prefixed file, as listed above.
        seed: seed of the weights of an untrained biLM; ignored by all others, whose weights are on disk.
        options: ``state``, ``precision``, ``language`` and ``device`` of a biLM, as for `Embedder`.
    """
    name = str(spec)
    if name.startswith(STATIC):
        return StaticLayers(read_static_vectors(name.partition(":")[2]))
    if name.startswith(COVE):
        weights, path = split_pair(name, expected="cove:WEIGHTS,VECTORS")
        vectors = read_static_vectors(path)
        return load_encoder(weights, vectors) if is_encoder(weights) else load_published_cove(weights, vectors)
    if name.startswith(TAGLM):
        both = split_pair(name)
        return SeparateModels(*(Embedder.from_pretrained(folder, **options) for folder in both))
    if name.startswith(UNTRAINED):
        return untrained_embedder(name.removeprefix(UNTRAINED), seed=seed, **options)
    if is_pair(name):
        return load_pair(name)
    return load_encoder(name) if is_encoder(name) else Embedder.from_pretrained(spec, **options)


def untrained_embedder(model: str | Path, *, seed: int, **options: Unpack[EmbedderOptions]) -> Embedder:
    """Return a biLM of the shape of a saved one with random weights, which follow from the seed."""
    config = load_saved(model).config
    with seeded(seed, UNTRAINED_STREAM):
        return Embedder.from_saved(SavedBiLM(config, dict(BiLM(config).state_dict())), **options)


def describe_layer_source(source: LayerSource) -> dict[str, str | int]:
    """Return kind, sizes and fingerprint of a source."""
    kinds = {
        StaticLayers: "static vectors",
        CoVeLayers: "CoVe",
        Context2VecLayers: "context2vec",
        SeparateModels: "TagLM",
        Embedder: "biLM",
    }
    return {
        "kind": kinds.get(type(source), type(source).__name__),
        "layers": source.num_layers,
        "width": source.width,
        "fingerprint": source.fingerprint(),
    }


def save_layer_source(source: LayerSource, folder: str | Path, *, description: str) -> None:
    """Save a source as a folder that `open_layer_source` opens, with ``description`` in its model card."""
    if isinstance(source, LoadedEncoder):
        save_encoder(source, folder, description=description)
    elif isinstance(source, Embedder):
        source.save_pretrained(folder, description=description)
    elif isinstance(source, SeparateModels):
        source.save(folder, description=description)
    else:
        raise InputError(f"cannot save layers of type {type(source).__name__}; expected a biLM or one of our encoders")


def split_pair(name: str, *, expected: str = "taglm:FORWARD,BACKWARD") -> tuple[str, str]:
    """Return the two paths in a name, which a comma separates; an error says what was ``expected``."""
    first, comma, second = name.partition(":")[2].rpartition(",")
    if not comma:
        raise InputError(f"{name}: names one path; expected two, {expected}")
    return first, second
