"""The options.json of the published models, to our config and back."""

import json
import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elmokit.config import NUM_CHARS, BiLMConfig
from elmokit.errors import ConfigError
from elmokit.plain_file import read_plain

MAX_JSON_BYTES = 2**20  # a published options file has about 600 bytes

REQUIRED = object()


@dataclass(frozen=True)
class Option:
    """One option that shapes the model: where it stands in the options, and where in our config."""

    option: str
    field: str
    default: Any = REQUIRED
    """Default of bilm-tf."""


OPTIONS = (
    Option("char_cnn.embedding.dim", "char_encoder.char_dim"),
    Option("char_cnn.filters", "char_encoder.filters"),
    Option("char_cnn.n_highway", "char_encoder.num_highway", default=0),
    Option("char_cnn.activation", "char_encoder.activation"),
    Option("char_cnn.max_characters_per_token", "char_encoder.max_chars"),
    Option("lstm.dim", "lstm.cell_dim"),
    Option("lstm.projection_dim", "lstm.proj_dim"),
    Option("lstm.n_layers", "lstm.num_layers", default=1),
    Option("lstm.cell_clip", "lstm.cell_clip", default=None),
    Option("lstm.proj_clip", "lstm.proj_clip", default=None),
    Option("lstm.use_skip_connections", "lstm.skip_connections", default=False),
)

# Options that say nothing about the shape of the model: the size of the id table, and how it was trained.
OTHER_OPTIONS = frozenset(
    "char_cnn.n_characters bidirectional dropout all_clip_norm_val n_epochs n_train_tokens batch_size n_tokens_vocab "
    "unroll_steps n_negative_samples_batch learning_rate sample_softmax share_embedding_softmax".split()
)
KNOWN_OPTIONS = OTHER_OPTIONS | {row.option for row in OPTIONS}

# A model that reads word ids has no character encoder.
NO_CHARACTERS: dict[str, Any] = {"filters": (), "num_highway": 0}

# Training counts the ids of characters; prediction counts the mask too.
NUM_CHARACTERS_TRAINING = NUM_CHARS
NUM_CHARACTERS_PREDICTION = NUM_CHARS + 1


def config_from_options(options: Mapping[str, Any], *, source: str, num_words: int | None = None) -> BiLMConfig:
    """Read published options as a config. ``source`` names them in messages; every name in one is an option's.

    Options without ``char_cnn`` are those of a model that reads word ids, of which it has ``num_words``.
    """
    _check_kind(options, source, num_words)
    reads_chars = "char_cnn" in options
    values: dict[str, dict[str, Any]] = {"char_encoder": {} if reads_chars else NO_CHARACTERS, "lstm": {}}
    for row in OPTIONS:
        if row.option.startswith("char_cnn.") and not reads_chars:
            continue
        value = _get(options, row.option, row.default, source)
        if value is REQUIRED:
            raise ConfigError(
                f"{source}: {row.option} is missing; copy it from the options that the model was trained with"
            )
        if value is None and row.default is not REQUIRED:
            value = row.default  # bilm-tf takes null for absent
        part, field = row.field.split(".")
        values[part][field] = value
    if not reads_chars:
        values["words"] = {"num_words": num_words, "dim": values["lstm"]["proj_dim"]}
    try:
        # Strict, so that no value is guessed from another type; through JSON, so that lists may be tuples.
        return BiLMConfig.model_validate_json(json.dumps(values, default=repr), strict=True)
    except ValidationError as error:
        faults = "; ".join(_describe(fault) for fault in error.errors())
        raise ConfigError(f"{source}: {faults}") from None


def unknown_option_keys(options: Mapping[str, Any]) -> list[str]:
    """Dotted names of the options that neither bilm-tf's prediction nor its training knows."""
    return sorted(name for name in _leaves(options, "") if name not in KNOWN_OPTIONS)


def options_from_config(config: BiLMConfig) -> dict[str, Any]:
    """Return the published options of a config; a clip of None is left out."""
    values = config.model_dump(mode="json")
    options: dict[str, Any] = {"lstm": {}, "char_cnn": {"n_characters": NUM_CHARACTERS_PREDICTION}}
    if config.words is not None:
        options = {"lstm": {}, "n_tokens_vocab": config.words.num_words}
    for row in OPTIONS:
        part, field = row.field.split(".")
        if values[part][field] is None or (part == "char_encoder" and config.words is not None):
            continue
        *parents, key = row.option.split(".")
        place = options
        for parent in parents:
            place = place.setdefault(parent, {})
        place[key] = values[part][field]
    return options


def read_json_object(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read a file that holds one JSON object, with finite numbers only."""
    try:
        content = read_plain(path, max_bytes=max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > max_bytes:
        raise ConfigError(
            f"{path}: larger than {max_bytes:,} bytes; expected a smaller JSON file, is this another file?"
        )
    try:
        # An editor may have put a byte-order mark at the front.
        values = json.loads(content.decode("utf-8-sig"), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds a JSON {type(values).__name__}; expected an object, {{...}}")
    return values


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is not finite")
    return value


def _check_kind(options: Mapping[str, Any], source: str, num_words: int | None) -> None:
    """Reject models that are not biLMs, and those that read word ids if their vocabulary is not known."""
    if "char_cnn" not in options and num_words is None:
        raise ConfigError(f"{source}: no char_cnn, so the model reads word ids; its vocabulary is needed too")
    if "char_cnn" in options and _get(options, "char_cnn.filters", None, source) == []:
        raise ConfigError(f"{source}: char_cnn.filters = []; expected one or more pairs [width, number of filters]")
    stated = options.get("n_tokens_vocab", num_words)
    if "char_cnn" not in options and stated != num_words:
        raise ConfigError(
            f"{source}: n_tokens_vocab = {reprlib.repr(stated)}, but the vocabulary has {num_words:,} words; "
            "use the vocabulary that the model was trained with"
        )
    if options.get("bidirectional", True) is not True:
        raise ConfigError(
            f"{source}: bidirectional = {reprlib.repr(options['bidirectional'])}; a biLM needs both directions, "
            "use a model trained with bidirectional = true"
        )
    count = _get(options, "char_cnn.n_characters", NUM_CHARACTERS_PREDICTION, source)
    if count not in (NUM_CHARACTERS_TRAINING, NUM_CHARACTERS_PREDICTION):
        raise ConfigError(
            f"{source}: char_cnn.n_characters = {reprlib.repr(count)}; expected {NUM_CHARACTERS_PREDICTION} (or "
            f"{NUM_CHARACTERS_TRAINING}, as in training): 256 bytes, 5 special ids, and the mask"
        )


def _get(options: Mapping[str, Any], name: str, default: Any, source: str) -> Any:
    place: Any = options
    seen: list[str] = []
    for key in name.split("."):
        if not isinstance(place, Mapping):
            raise ConfigError(f"{source}: {'.'.join(seen)} = {reprlib.repr(place)}; expected an object, {{...}}")
        if key not in place:
            return default
        place = place[key]
        seen.append(key)
    return place


def _leaves(options: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in options.items():
        name = prefix + str(key)
        is_parent = any(known.startswith(name + ".") for known in KNOWN_OPTIONS)
        if is_parent and isinstance(value, Mapping):
            yield from _leaves(value, name + ".")
        else:
            yield name


def _describe(fault: Any) -> str:
    """One fault that pydantic found, with every name of ours replaced by the option's."""
    option_of = {row.field: row.option for row in OPTIONS}
    where = ".".join(str(part) for part in fault["loc"])
    field = ".".join(where.split(".")[:2])
    what = fault["msg"].removeprefix("Value error, ")
    if field in option_of:
        return f"{where.replace(field, option_of[field], 1)} = {reprlib.repr(fault['input'])}: {what}"
    # An error between fields is described in words; only names with an underscore are certainly field names.
    names = {row.field.split(".")[1]: row.option for row in OPTIONS if "_" in row.field.split(".")[1]}
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), what)
