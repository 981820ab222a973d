"""Our own format: a folder with the config, the tensors, a model card and the files' hashes. No pickle anywhere.

config.json          format, version, the biLM's config; the published options if it came from such a file
model.safetensors    the biLM's tensors, float32 or float16, and its start state if there is one
softmax.safetensors  the output layer of the language model, where it was kept: scores, fine-tuning; also int8
vocab.txt            the words that the output layer can predict
dictionary.json      the characters and words of a model that does not read bytes
README.md            the model card, for people
SHA256SUMS           hashes of all these files, in the form of `sha256sum`
model.sig            signature, if there is one (`elmokit.weights.signing`)
"""

import json
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmokit.atomic import atomic_folder
from elmokit.config import BiLMConfig, FrozenConfig, parse_config
from elmokit.errors import ConfigError, OutputError, WeightsError
from elmokit.kernels.mapped import release_pages
from elmokit.text.spelling import Dictionary
from elmokit.text.vocab import read_vocab
from elmokit.weights.bundled import find_model
from elmokit.weights.card import model_card
from elmokit.weights.options import config_from_options, read_json_object
from elmokit.weights.saved import (
    SavedBiLM,
    SavedSoftmax,
    Shape,
    all_finite,
    check_dictionary,
    check_saved,
    check_shapes,
    expected_shapes,
    list_names,
    start_state_shapes,
)
from elmokit.weights.signing import SIGNATURE
from elmokit.weights.sums import (
    CARD,
    SUMS,
    check_sum,
    check_sums,
    identify_file,
    read_sums,
    warn_of_changed_card,
    write_sums,
)

FORMAT: Final = "elmokit.bilm"
VERSION: Final[Literal[2]] = 2
BYTES_VERSION: Final[Literal[1]] = 1  # of models that read bytes, which every elmokit loads

CONFIG, TENSORS = "config.json", "model.safetensors"
SOFTMAX, VOCAB, DICTIONARY = "softmax.safetensors", "vocab.txt", "dictionary.json"
# What a model folder may hold; one that holds more is not replaced, since that may be someone's work.
KNOWN_FILES = {CONFIG, TENSORS, CARD, SUMS, SOFTMAX, VOCAB, DICTIONARY, SIGNATURE}
MAX_DICTIONARY_BYTES = 2**28

START_STATE = "start_state."
STORED_TYPES = ("F32", "F16")
EIGHT_BIT, SCALE = "I8", "weight_scale"
LARGEST_INT8 = 127


class DictionaryFile(FrozenConfig):
    """The content of dictionary.json."""

    chars: tuple[str, ...]
    words: tuple[str, ...]
    begin: str
    end: str
    unknown: str


class FolderConfig(FrozenConfig):
    """The content of config.json."""

    format: Literal["elmokit.bilm"]
    version: Literal[1, 2]
    bilm: BiLMConfig
    options: dict[str, Any] | None = None


def save_folder(
    saved: SavedBiLM,
    folder: str | Path,
    *,
    softmax: SavedSoftmax | None = None,
    description: str | None = None,
    name: str | None = None,
    half: bool = False,
    eight_bit_softmax: bool = False,
) -> None:
    """Save a model as a folder; an older model of ours there is replaced, and anything else is not.

    ``description`` and ``name`` go into the model card; the name is the folder's by default. ``half`` stores the
    weights as float16: half the size, and after loading they are float32 again with about three digits.
    ``eight_bit_softmax`` stores the output layer as int8, with one scale per word.
    """
    folder = Path(folder)
    check_saved(saved, source="the model to save")
    tensors = _tensors_to_store(saved, half=half)
    version: Literal[1, 2] = BYTES_VERSION if saved.dictionary is None else VERSION
    config = FolderConfig(format=FORMAT, version=version, bilm=saved.config, options=saved.options)
    content = config.model_dump(mode="json", exclude={"options"} if saved.options is None else None)
    name = name or folder.resolve().name
    with atomic_folder(folder, replace=is_replaceable(folder)) as new:
        (new / CONFIG).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
        write_tensors(tensors, new / TENSORS, folder)
        hashed = [CONFIG, TENSORS]
        if saved.dictionary is not None:
            (new / DICTIONARY).write_text(json.dumps(asdict(saved.dictionary), ensure_ascii=False) + "\n", "utf-8")
            hashed.append(DICTIONARY)
        if softmax is not None:
            write_tensors(_softmax_to_store(softmax, half=half, eight_bit=eight_bit_softmax), new / SOFTMAX, folder)
            (new / VOCAB).write_bytes(softmax.vocab.to_text().encode())
            hashed += [SOFTMAX, VOCAB]
        card = model_card(saved, name=name, description=description, stored_as="float16" if half else "float32")
        (new / CARD).write_text(card, "utf-8")
        write_sums(new, [*hashed, CARD])


def load_folder(folder: str | Path) -> SavedBiLM:
    """Load a model that ``save_folder`` saved, after a check of its hashes; the weights are mapped, not copied.

    While a process has them, replace the folder as a whole (``save_folder`` does), never its files in place: a mapped
    file that is overwritten changes the weights, and one that is cut short ends the process.
    """
    folder = find_model(folder)
    sums = read_sums(folder)
    check_sum(folder, CONFIG, sums)
    warn_of_changed_card(folder, sums)
    config = _read_config(folder / CONFIG)
    before = identify_file(folder / TENSORS)
    # Hashing takes the longest and leaves the interpreter free, so the tensors are read and checked meanwhile.
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(_read_bilm, folder / TENSORS, config.bilm)
        check_sum(folder, TENSORS, sums)
    tensors = reading.result()
    if identify_file(folder / TENSORS) != before:  # then what was hashed may not be what is mapped
        raise WeightsError(f"{folder / TENSORS}: was changed while it was loaded; load it again once it is whole")
    dictionary = None
    if not config.bilm.reads_bytes:
        check_sum(folder, DICTIONARY, sums)
        values = read_json_object(folder / DICTIONARY, max_bytes=MAX_DICTIONARY_BYTES)
        dictionary = Dictionary(**dict(parse_config(DictionaryFile, values, source=str(folder / DICTIONARY))))
        check_dictionary(dictionary, config.bilm, source=str(folder / DICTIONARY))
    start_state = {
        name.removeprefix(START_STATE): tensors.pop(name) for name in sorted(tensors) if name.startswith(START_STATE)
    }
    return SavedBiLM(config.bilm, tensors, config.options, start_state or None, dictionary)


def load_folder_softmax(folder: str | Path) -> SavedSoftmax:
    """Load the output layer that was saved with a model."""
    folder = find_model(folder)
    if not (folder / SOFTMAX).is_file():
        raise WeightsError(
            f"{folder}: has no output layer ({SOFTMAX}), so it can embed but not score, predict or be fine-tuned; "
            "published weights never have one: `elmokit finetune` trains a new one on text"
        )
    check_sums(folder, (CONFIG, SOFTMAX, VOCAB))
    vocab = read_vocab(folder / VOCAB)
    dim = _read_config(folder / CONFIG).bilm.lstm.proj_dim
    _check_words(folder, len(vocab))
    expected: dict[str, Shape] = {"weight": (len(vocab), dim), "bias": (len(vocab),)}
    scale: dict[str, Shape] = {SCALE: (len(vocab),)}
    tensors = _read_tensors(folder / SOFTMAX, expected, optional=scale, eight_bit=("weight", SCALE))
    if SCALE in tensors:
        tensors["weight"] *= tensors[SCALE][:, None]
    return SavedSoftmax(tensors["weight"], tensors["bias"], vocab)


def write_tensors(tensors: dict[str, Tensor], path: Path, folder: Path) -> None:
    """Write a file of a folder that is being made and will be called ``folder``."""
    try:
        save_file(tensors, path, metadata={"format": "pt"})
        path.chmod((path.parent / CONFIG).stat().st_mode)  # safetensors makes it private to the user
    except SafetensorError as error:
        raise OutputError(f"{folder}: cannot be written: {error}; is the disk full?") from error


def _tensors_to_store(saved: SavedBiLM, *, half: bool) -> dict[str, Tensor]:
    # The start state is small, and every sentence begins from it: never halved.
    state = {START_STATE + name: tensor for name, tensor in (saved.start_state or {}).items()}
    return _to_store(saved.tensors, half=half) | _to_store(state, half=False)


def _softmax_to_store(softmax: SavedSoftmax, *, half: bool, eight_bit: bool) -> dict[str, Tensor]:
    parts = _to_store({"weight": softmax.weight_VP, "bias": softmax.bias_V}, half=half and not eight_bit)
    if not eight_bit:
        return parts
    scale_V = parts["weight"].abs().amax(dim=1) / LARGEST_INT8
    scale_V[scale_V == 0] = 1
    rounded_VP = (parts["weight"] / scale_V[:, None]).round().to(torch.int8)
    return {"weight": rounded_VP, SCALE: scale_V, "bias": parts["bias"]}


def _to_store(tensors: Mapping[str, Tensor], *, half: bool) -> dict[str, Tensor]:
    dtype = torch.float16 if half else torch.float32
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if not all_finite(tensor.numpy()):
            raise WeightsError(f"{name} holds NaN or infinite values{' as float16' if half else ''}; it is not saved")
    return tensors


def is_replaceable(folder: Path, *, form: str = FORMAT, known_files: Set[str] = KNOWN_FILES) -> bool:
    """Return True if the folder holds a model of ours and nothing else."""
    if not (folder / CONFIG).is_file():
        return False
    foreign = sorted(entry.name for entry in folder.iterdir() if entry.name not in known_files)
    if foreign:
        raise OutputError(f"{folder}: also holds {list_names(foreign)}; move that away, or name another folder")
    try:
        return read_json_object(folder / CONFIG).get("format") == form
    except ConfigError:
        return False


def _read_config(path: Path) -> FolderConfig:
    values = read_json_object(path)
    if values.get("format") != FORMAT:
        hint = " (this one's is in the folder bilm)" if (path.parent / "bilm" / CONFIG).is_file() else ""
        raise ConfigError(f"{path}: format is {values.get('format')!r}; expected {FORMAT!r}, a biLM of elmokit{hint}")
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ConfigError(
            f"{path}: version {version}; this elmokit knows up to {VERSION}: pip install --upgrade elmokit"
        )
    config = parse_config(FolderConfig, values, source=str(path))
    num_words = config.bilm.words.num_words if config.bilm.words else None
    if config.options is not None and (
        config_from_options(config.options, source=f"{path}, options", num_words=num_words) != config.bilm
    ):
        raise ConfigError(f"{path}: options and bilm are of different models; convert the published files again")
    return config


def _read_bilm(path: Path, config: BiLMConfig) -> dict[str, Tensor]:
    state = {START_STATE + name: shape for name, shape in start_state_shapes(config).items()}
    return _read_tensors(path, expected_shapes(config, source=path.parent / CONFIG), optional=state)


def _check_words(folder: Path, num_words: int) -> None:
    """Reject a vocabulary whose length is not that of the output layer; its reader reports all other errors."""
    with suppress(SafetensorError, OSError), safe_open(folder / SOFTMAX, framework="pt") as file:
        shape = file.get_slice("bias").get_shape()
        if len(shape) == 1 and shape[0] != num_words:
            raise WeightsError(
                f"{folder / VOCAB}: has {num_words:,} words, but {SOFTMAX} has {shape[0]:,} rows; "
                f"they do not belong together: put back the {VOCAB} that was saved with the model"
            )


def _read_tensors(
    path: Path,
    expected: dict[str, Shape],
    *,
    optional: dict[str, Shape] | None = None,
    eight_bit: tuple[str, str] | None = None,
) -> dict[str, Tensor]:
    """Read every tensor as float32, once the header was found to be right; ``optional`` is all there or not at all.

    ``eight_bit`` names a tensor that is stored as int8 if its scale, named second, is there.
    """
    try:
        with safe_open(path, framework="pt") as file:
            headers = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  not a dict
            found: dict[str, Shape] = {name: tuple(header.get_shape()) for name, header in headers.items()}
            if optional and not optional.keys().isdisjoint(found):
                expected = expected | optional
            check_shapes(found, expected, source=str(path))
            for name, header in headers.items():
                is_scaled = eight_bit is not None and name == eight_bit[0] and eight_bit[1] in found
                types = (EIGHT_BIT,) if is_scaled else STORED_TYPES
                if header.get_dtype() not in types:
                    raise WeightsError(
                        f"{path}: {name} is stored as {header.get_dtype()}; expected {' or '.join(types)}"
                    )
            tensors = {name: file.get_tensor(name).float() for name in expected}
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{path}: not a safetensors file, or a damaged one ({error}); get the folder again"
        ) from error
    for name, tensor in tensors.items():
        if not all_finite(tensor.numpy()):
            raise WeightsError(f"{path}: {name} holds NaN or infinite values; the model was damaged in training")
        release_pages(tensor)
    return tensors
