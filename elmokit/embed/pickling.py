"""Embedders as bytes, for pickle, `copy`, `torch.save` and worker processes.

A model from disk is stored as its name or path with a hash of its weights, one built in memory with its weights.
Everything is in one JSON text and one safetensors block, so that equal embedders give equal bytes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.errors import WeightsError
from elmokit.model.bilm import BiLMState
from elmokit.text.spelling import Dictionary
from elmokit.weights.bundled import BUNDLED, find_model
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import Source, load_saved

WEIGHTS, START, STATE = "weights", "start_state", "state"


@dataclass(frozen=True)
class Origin:
    """The place on disk that a model was loaded from."""

    bundled: str | None = None
    """Name of a model in the package."""
    paths: tuple[str, ...] = ()
    """Absolute path of a folder, or of options and weights."""

    @property
    def name(self) -> str:
        """The model's name, or its path."""
        return self.bundled or self.paths[-1]

    @property
    def source(self) -> Source:
        """The argument of ``from_pretrained`` that finds it, from any working directory."""
        if self.bundled is not None:
            return BUNDLED / self.bundled
        return (self.paths[0], self.paths[1]) if len(self.paths) == 2 else self.paths[0]


def find_origin(source: Source) -> Origin:
    """Return where a model is, independent of the working directory."""
    if isinstance(source, tuple):
        return Origin(paths=tuple(str(Path(path).resolve()) for path in source))
    path = find_model(source).resolve()
    return Origin(bundled=path.name) if path.parent == BUNDLED.resolve() else Origin(paths=(str(path),))


@dataclass(frozen=True)
class PickledEmbedder:
    """Everything that another process needs to build the same embedder."""

    text: str
    tensors: bytes


def hash_tensors(settings: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a text and of tensors with their names."""
    digest = hashlib.sha256(settings.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def pack(
    saved: SavedBiLM,
    origin: Origin | None,
    *,
    states: Mapping[str, BiLMState | None],
    options: Mapping[str, object],
) -> PickledEmbedder:
    """Put a model, the states of its embedder that are not None, and the embedder's options into bytes."""
    values: dict[str, Any] = {"options": dict(options)}
    parts = {
        f"{STATE}/{kind}/{name}": tensor
        for kind, state in states.items()
        if state is not None
        for name, tensor in state.parts().items()
    }
    if origin is not None:
        values |= {"origin": asdict(origin), "sha256": _hash_saved(saved)}
    else:
        values |= {"config": saved.config.model_dump(mode="json"), "published_options": saved.options}
        values |= {"dictionary": None if saved.dictionary is None else asdict(saved.dictionary)}
        parts |= {f"{WEIGHTS}/{name}": tensor for name, tensor in saved.tensors.items()}
        parts |= {f"{START}/{name}": tensor for name, tensor in (saved.start_state or {}).items()}
    tensors = {name: parts[name].detach().cpu().contiguous() for name in sorted(parts)}
    return PickledEmbedder(json.dumps(values, sort_keys=True), to_safetensors(tensors))


@dataclass(frozen=True, eq=False)
class Unpacked:
    """The parts of a pickled embedder."""

    saved: SavedBiLM
    origin: Origin | None
    states: dict[str, BiLMState]
    options: dict[str, Any]


def unpack(pickled: PickledEmbedder) -> Unpacked:
    """Load the model, and check that it is the one that was pickled."""
    values, parts = json.loads(pickled.text), from_safetensors(pickled.tensors)
    kinds = {name.split("/")[1] for name in parts if name.startswith(f"{STATE}/")}
    states = {kind: BiLMState.from_parts(_below(parts, f"{STATE}/{kind}")) for kind in kinds}
    if "origin" not in values:
        saved = SavedBiLM(
            BiLMConfig.model_validate(values["config"]),
            _below(parts, WEIGHTS),
            options=values["published_options"],
            start_state=_below(parts, START) or None,
            dictionary=_unpack_dictionary(values.get("dictionary")),
        )
        return Unpacked(saved, None, states, values["options"])
    origin = Origin(values["origin"]["bundled"], tuple(values["origin"]["paths"]))
    try:
        saved = load_saved(origin.source)
    except WeightsError as error:
        raise WeightsError(
            f"a pickled Embedder needs its model at {origin.name}, which cannot be loaded ({error}); put the model "
            "back, or pickle an Embedder that was built in memory"
        ) from error
    found = _hash_saved(saved)
    if found != values["sha256"]:
        raise WeightsError(
            f"{origin.name}: the weights have SHA-256 {found[:12]}…, but the pickled Embedder was made from "
            f"{values['sha256'][:12]}…; put the old model back, or make the Embedder again"
        )
    return Unpacked(saved, origin, states, values["options"])


def _hash_saved(saved: SavedBiLM) -> str:
    return hash_tensors(describe_reading(saved), saved.tensors)


def describe_reading(saved: SavedBiLM) -> str:
    """Return a text for all that decides how a model reads words: its config, and its dictionary if it has one."""
    config = saved.config.model_dump_json()
    return config if saved.dictionary is None else f"{config} {saved.dictionary.fingerprint}"


def _unpack_dictionary(values: dict[str, Any] | None) -> Dictionary | None:
    if values is None:
        return None
    chars, words = tuple(values["chars"]), tuple(values["words"])
    return Dictionary(chars, words, values["begin"], values["end"], values["unknown"])


def _below(tensors: Mapping[str, Tensor], folder: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(f"{folder}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{folder}/")
    }
