"""Validated settings: the sizes of a biLM, and recipes read from TOML files.

Sizes that follow from others (the output width, the number of filters) are properties, never fields.
"""

import difflib
import reprlib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from elmokit.errors import ConfigError
from elmokit.plain_file import read_plain

PAPER_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))

# Character ids as every interface has them. A model's table has one row less: none for "no word here".
NO_WORD = 0  # fills the places where a sentence has ended
FIRST_BYTE = 1  # byte b has the id FIRST_BYTE + b
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD = 257, 258, 259, 260
PAD_CHAR = 261  # fills a word up to max_chars; it has a learned vector, and the convolutions see it
NUM_CHARS = 261
NUM_SPECIAL_CHARS = 5  # the last rows of every character table: begin and end of sentence and word, padding

# Word ids of a model with a word table; 0 is NO_WORD here too.
BEGIN_ID, END_ID, UNKNOWN_ID, FIRST_WORD_ID = 1, 2, 3, 4
NUM_SPECIAL_WORDS = 3

# A recipe that has more of these is none, and would keep the TOML parser or the reader of its message busy.
MAX_RECIPE_BYTES = 1 << 18
MAX_DOTS = 200
MAX_FAULTS = 10

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AskedPrecision = Literal["auto", "fp32", "bf16"]  # of large matrix products in training; auto: the device chooses


class FrozenConfig(BaseModel):
    """A config that cannot be changed once made, and takes no unknown key."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CharEncoderConfig(FrozenConfig):
    """The character CNN that turns a word's spelling into its token vector."""

    char_dim: PositiveInt = 16
    filters: tuple[tuple[PositiveInt, PositiveInt], ...] = PAPER_FILTERS
    """(window width, number of filters) pairs; empty for a model that reads word ids alone."""
    num_highway: NonNegativeInt = 2
    activation: Literal["relu", "tanh"] = "relu"
    max_chars: Annotated[int, Field(ge=3, le=1000)] = 50
    """Ids a word: its bytes between a begin-word and an end-word id, then padding."""
    num_dictionary_chars: Annotated[int, Field(gt=NUM_SPECIAL_CHARS)] | None = None
    """Rows of the character table of a model with its own dictionary; None for a model that reads bytes."""

    @property
    def num_chars(self) -> int:
        """Rows of the character table. The last one is padding, before it the ids of boundaries."""
        return self.num_dictionary_chars or NUM_CHARS

    @property
    def num_ids(self) -> int:
        """Character ids per word; 0 for a model that reads no characters."""
        return self.max_chars if self.filters else 0

    @property
    def num_filters(self) -> int:
        """Width of the pooled convolutions together."""
        return sum(count for _, count in self.filters)

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        widest = max((width for width, _ in self.filters), default=0)
        if widest > self.max_chars:
            raise ValueError(f"a filter is {widest} characters wide, but a word has only {self.max_chars} (max_chars)")
        return self

    @model_serializer(mode="wrap")
    def _omit_absent(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(serialize(self), "num_dictionary_chars")


class WordTableConfig(FrozenConfig):
    """A table of word vectors, which stand before the filters in the input of the token projection."""

    num_words: Annotated[int, Field(ge=NUM_SPECIAL_WORDS)]
    """Rows: begin of sentence, end of sentence, unknown word, then the words of the dictionary."""
    dim: PositiveInt


class LSTMConfig(FrozenConfig):
    """One direction's stack of LSTM layers; both directions have the same shape."""

    cell_dim: PositiveInt = 4096
    proj_dim: PositiveInt = 512
    """Width of a layer's input and output. Equal to cell_dim, there is no projection."""
    num_layers: PositiveInt = 2
    cell_clip: Positive | None = 3.0
    proj_clip: Positive | None = 3.0
    skip_connections: bool = True

    @property
    def has_projection(self) -> bool:
        """True if a layer projects its cells down to its output."""
        return self.proj_dim != self.cell_dim

    @model_validator(mode="after")
    def _projects_down(self) -> Self:
        if self.proj_dim > self.cell_dim:
            raise ValueError(f"proj_dim {self.proj_dim} is larger than cell_dim {self.cell_dim}; it projects down")
        return self


class BiLMConfig(FrozenConfig):
    """A bidirectional language model: one character encoder, two stacks of LSTMs."""

    char_encoder: CharEncoderConfig = CharEncoderConfig()
    lstm: LSTMConfig = LSTMConfig()
    words: WordTableConfig | None = None
    """A table of word vectors beside the characters; None in the paper's models."""

    @property
    def reads_bytes(self) -> bool:
        """True if words are spelled as bytes, without a dictionary."""
        return self.words is None and self.char_encoder.num_dictionary_chars is None

    @property
    def ids_per_word(self) -> int:
        """Integers that a word is given as: its word id if there is a word table, then its characters."""
        return (self.words is not None) + self.char_encoder.num_ids

    @property
    def encoder_dim(self) -> int:
        """Width of a word before the token projection: its word vector and the pooled filters."""
        return (self.words.dim if self.words else 0) + self.char_encoder.num_filters

    @property
    def num_layers(self) -> int:
        """Layers of vectors a token has: the token layer, then every LSTM layer."""
        return self.lstm.num_layers + 1

    @property
    def width(self) -> int:
        """Width of a layer's vectors: both directions side by side."""
        return 2 * self.lstm.proj_dim

    @property
    def has_token_projection(self) -> bool:
        """True if the pooled filters are projected down to the LSTM's input."""
        return self.encoder_dim != self.lstm.proj_dim

    @model_validator(mode="after")
    def _filters_cover_projection(self) -> Self:
        if self.words is None and not self.char_encoder.filters:
            raise ValueError("there are no filters and no word table; a model reads characters, word ids, or both")
        if self.words is None and self.char_encoder.num_filters < self.lstm.proj_dim:
            raise ValueError(
                f"{self.char_encoder.num_filters} filters are fewer than proj_dim {self.lstm.proj_dim}; "
                "the token layer projects down"
            )
        return self

    @model_serializer(mode="wrap")
    def _omit_absent(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(serialize(self), "words")


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    # Files and fingerprints of models without the field are as they were before the field existed.
    return {key: value for key, value in values.items() if key != name or value is not None}


Config = TypeVar("Config", bound=BaseModel)


def parse_config(kind: type[Config], values: Mapping[str, Any], *, source: str) -> Config:
    """Validate ``values`` as a ``kind``; every fault found is in the one error, with the field's name."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        shown = "; ".join(_describe(fault, kind) for fault in faults[:MAX_FAULTS])
        others = f"; and {len(faults) - MAX_FAULTS:,} more" if len(faults) > MAX_FAULTS else ""
        raise ConfigError(f"{source}: {shown}{others}") from None


def read_recipe(kind: type[Config], path: str | Path, overrides: Sequence[str] | Mapping[str, Any]) -> Config:
    """Read a TOML file as a ``kind``, some of its values replaced by ``key.sub=value``.

    A value is read as TOML, or else taken as text. ``none`` stands for nothing, for which TOML has no word.
    """
    path = Path(path)
    try:
        values = _parse_toml(read_plain(path, max_bytes=MAX_RECIPE_BYTES + 1))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such recipe; check the path, seen from {Path.cwd()}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name a recipe, a TOML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); re-encode the file") from None
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError names line and column
        raise ConfigError(f"{path}: not TOML: {error}") from None
    changes = parse_overrides(overrides)
    for key, value in changes.items():
        _set(values, key, value)
    shown = [f"{key}={value}" for key, value in changes.items()]
    return parse_config(kind, _without_none(values), source=" ".join([str(path), *shown]))


def _parse_toml(content: bytes) -> dict[str, Any]:
    """Parse a recipe; reject what would keep the parser busy for long before it fails."""
    if len(content) > MAX_RECIPE_BYTES:
        raise ValueError(f"it has more than {MAX_RECIPE_BYTES:,} bytes; expected a recipe, which has a few hundred")
    text = content.decode("utf-8")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MAX_DOTS:
            raise ValueError(f"line {number} has more than {MAX_DOTS} dots; expected keys such as training.epochs")
    return tomllib.loads(text)


def parse_overrides(overrides: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides of a recipe by their dotted keys; ``key.sub=value`` strings are parsed, a mapping is copied."""
    return dict(overrides if isinstance(overrides, Mapping) else map(_parse_override, overrides))


def find_recipe(name: str, *, folder: str = "") -> Path:
    """Return the path of a recipe: a TOML file, or the name of one that elmokit has in this folder or below it."""
    if name.endswith(".toml") or Path(name).is_file():
        return Path(name)
    inside, beside = (root / "recipes" for root in Path(__file__).parents[:2])  # installed, or in a source tree
    ours = (inside if inside.is_dir() else beside) / folder
    path = ours / f"{name}.toml"
    if not path.is_file():
        known = sorted(path.stem for path in ours.glob("*.toml"))
        raise ConfigError(f"there is no recipe {name!r}; name a TOML file, or one of ours: {', '.join(known)}")
    return path


def _parse_override(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} does not change a recipe; expected key.sub=value, as in training.epochs=3")
    try:
        read = _parse_toml(f"value = {text}".encode())
    except (ValueError, RecursionError):
        read = {}
    return key.strip(), read["value"] if list(read) == ["value"] else text.strip()


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *tables, name = key.split(".")
    if not (name and all(tables)) or len(tables) > MAX_DOTS:
        raise ConfigError(f"{key[:200]!r} does not change a recipe; expected key.sub=value, as in training.epochs=3")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{key!r}: {table} is a value in the recipe, and has nothing below it")
    values[name] = value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(part) for name, part in value.items()}
    return None if value == "none" else value


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


def _describe(fault: Any, kind: type[BaseModel]) -> str:
    where = ".".join(str(part) for part in fault["loc"])
    what = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        return f"{where[:200]}: there is no such key; {_nearest(fault['loc'], kind)}"
    if not where:
        return what
    return f"{where} = {_SHORT.repr(fault['input'])}: {what}" if fault["type"] != "missing" else f"{where}: {what}"


def _nearest(place: Sequence[str | int], kind: type[BaseModel]) -> str:
    """Return the known key nearest to an unknown one, or all known keys."""
    *tables, unknown = map(str, place)
    fields = kind.model_fields
    for table in tables:
        inner = fields[table].annotation if table in fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return "leave it out"
        fields = inner.model_fields
    if near := difflib.get_close_matches(unknown, fields, n=1):
        return f"did you mean {'.'.join([*tables, near[0]])}?"
    return f"known here: {', '.join(fields)}"
