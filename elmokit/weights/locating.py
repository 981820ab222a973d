"""Find the files of a model by their names, in a folder or in the listing of an archive.

People publish the same formats under many names. `find_files` takes the names of one folder and says which format they
are and which file has which role. It opens nothing.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from elmokit.errors import WeightsError

Format = Literal["elmokit", "bilm-tf", "checkpoint", "elmoformanylangs"]

# Files by which other systems' models are known, and what to do with such a model.
REJECTED = {
    "weights.th": "an AllenNLP model archive. If it is transformer ELMo, it has another architecture and elmokit does "
    "not run it; if it is a task model with ELMo inside, load its state dict into elmokit.integrations.allennlp.Elmo",
    "tfhub_module.pb": "a TF-Hub module, which has no weights file that can be read without TensorFlow. Use the same "
    "model as options.json and .hdf5, or the checkpoint that it was exported from",
    "saved_model.pb": "a TensorFlow SavedModel, which has no weights file that can be read without TensorFlow. Use the "
    "same model as options.json and .hdf5, or the checkpoint that it was exported from",
}
MANY_LANGUAGES = ("config.json", "char.dic", "word.dic", "encoder.pkl", "token_embedder.pkl")


HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(name: str) -> bool:
    """Return True if a text has the form of a model's name on a hub, ``org/name``."""
    return HUB_NAME.fullmatch(name) is not None and ".." not in name


@dataclass(frozen=True)
class FoundFiles:
    """The files of a model, as names inside its folder; None where there is no such file."""

    format: Format
    options: str | None = None
    weights: str | None = None
    """An HDF5 file."""
    checkpoint: str | None = None
    """The common start of the names of a TensorFlow checkpoint's files."""
    softmax: str | None = None
    """An HDF5 file with the output layer."""
    vocab: str | None = None
    meta: str | None = None

    @property
    def has_output_layer(self) -> bool:
        """True if the output layer is among the files, with its words."""
        return self.vocab is not None and (self.checkpoint is not None or self.softmax is not None)


def find_files(names: Collection[str], *, where: str) -> FoundFiles | None:
    """Return the model that a folder with these files holds; None if it has none.

    Raises:
        WeightsError: The folder holds parts of a model, several models, or a model of another architecture.
    """
    if {"encoder.pkl", "token_embedder.pkl"} & set(names):
        if missing := [name for name in MANY_LANGUAGES if name not in names]:
            raise WeightsError(
                f"{where}: a model of ELMoForManyLangs without {', '.join(missing)}; download it again, whole"
            )
        return FoundFiles("elmoformanylangs")
    if "config.json" in names and "weights.th" not in names:
        softmax = "softmax.safetensors" if "softmax.safetensors" in names else None
        return FoundFiles("elmokit", softmax=softmax, vocab="vocab.txt" if softmax else None)
    for name, reason in REJECTED.items():
        if name in names:
            raise WeightsError(f"{where}: holds {name}, so it is {reason}")
    return _find_published(sorted(names), where)


def _find_published(names: list[str], where: str) -> FoundFiles | None:
    options = [name for name in names if name == "options.json"] or [
        name for name in names if re.fullmatch(r".*options.*\.json|options_file", name)
    ]
    hdf5 = [name for name in names if re.fullmatch(r".*\.(hdf5|h5)|weights_file", name)]
    softmax = [name for name in hdf5 if "softmax" in name]
    weights = [name for name in hdf5 if name not in softmax]
    checkpoint = _newest_checkpoint(names, where)
    if not options and not weights and checkpoint is None:
        return None
    if checkpoint is None or weights:
        weights = [_only_one(weights, where, "*.hdf5")]
    return FoundFiles(
        format="bilm-tf" if weights else "checkpoint",
        options=_only_one(options, where, "options.json or *options*.json"),
        weights=weights[0] if weights else None,
        checkpoint=checkpoint,
        softmax=softmax[0] if len(softmax) == 1 else None,
        vocab=_find_vocab(names),
        meta="meta.json" if "meta.json" in names else None,
    )


def _newest_checkpoint(names: list[str], where: str) -> str | None:
    """Return the checkpoint of the highest step: TensorFlow keeps the last few of a run."""
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    whole = [prefix for prefix in prefixes if any(name.startswith(f"{prefix}.data-") for name in names)]
    if prefixes and not whole:
        raise WeightsError(
            f"{where}: has {prefixes[0]}.index, but no {prefixes[0]}.data-*; a checkpoint needs all its files"
        )
    return max(whole, key=lambda prefix: [int(number) for number in re.findall(r"\d+$", prefix)], default=None)


def _find_vocab(names: list[str]) -> str | None:
    exact = [name for name in ("vocab.txt", "vocab.txt.gz") if name in names]
    similar = [name for name in names if re.fullmatch(r".*vocab.*\.txt(\.gz|\.xz)?", name)]
    if exact:
        return exact[0]
    return similar[0] if len(similar) == 1 else None


def _only_one(found: list[str], where: str, pattern: str) -> str:
    if len(found) != 1:
        raise WeightsError(
            f"{where}: expected one {pattern}, found {', '.join(found) or 'none'}; "
            "give the pair of files (options, weights) instead"
        )
    return found[0]
