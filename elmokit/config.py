"""Validated settings: the sizes of a biLM, and recipes read from TOML files.

Sizes that follow from others (the output width, the number of filters) are properties, never fields.
"""

import difflib
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
    ValidationError,
    model_validator,
)

from elmokit.errors import ConfigError

PAPER_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))

# Character ids as every interface has them. A model's table has one row less: none for "no word here".
NO_WORD = 0  # fills the places where a sentence has ended
FIRST_BYTE = 1  # byte b has the id FIRST_BYTE + b
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD = 257, 258, 259, 260
PAD_CHAR = 261  # fills a word up to max_chars; it has a learned vector, and the convolutions see it
NUM_CHARS = 261

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class FrozenConfig(BaseModel):
    """A config that cannot be changed once made, and takes no unknown key."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CharEncoderConfig(FrozenConfig):
    """The character CNN that turns a word's spelling into its token vector."""

    char_dim: PositiveInt = 16
    filters: Annotated[tuple[tuple[PositiveInt, PositiveInt], ...], Field(min_length=1)] = PAPER_FILTERS
    """(window width, number of filters) pairs."""
    num_highway: NonNegativeInt = 2
    activation: Literal["relu", "tanh"] = "relu"
    max_chars: Annotated[int, Field(ge=3, le=1000)] = 50
    """Ids a word: its bytes between a begin-word and an end-word id, then padding."""

    @property
    def num_filters(self) -> int:
        """Width of the pooled convolutions together."""
        return sum(count for _, count in self.filters)

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        widest = max(width for width, _ in self.filters)
        if widest > self.max_chars:
            raise ValueError(f"a filter is {widest} characters wide, but a word has only {self.max_chars} (max_chars)")
        return self


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
        return self.char_encoder.num_filters != self.lstm.proj_dim

    @model_validator(mode="after")
    def _filters_cover_projection(self) -> Self:
        if self.char_encoder.num_filters < self.lstm.proj_dim:
            raise ValueError(
                f"{self.char_encoder.num_filters} filters are fewer than proj_dim {self.lstm.proj_dim}; "
                "the token layer projects down"
            )
        return self


Config = TypeVar("Config", bound=BaseModel)


def parse_config(kind: type[Config], values: Mapping[str, Any], *, source: str) -> Config:
    """Validate ``values`` as a ``kind``; every fault found is in the one error, with the field's name."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(_describe(fault, kind) for fault in error.errors())
        raise ConfigError(f"{source}: {faults}") from None


def read_recipe(kind: type[Config], path: str | Path, overrides: Sequence[str] | Mapping[str, Any]) -> Config:
    """Read a TOML file as a ``kind``, some of its values replaced by ``key.sub=value``.

    A value is read as TOML, or else taken as text. ``none`` stands for nothing, for which TOML has no word.
    """
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such recipe; check the path, seen from {Path.cwd()}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name a recipe, a TOML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); re-encode the file") from None
    except tomllib.TOMLDecodeError as error:  # names line and column
        raise ConfigError(f"{path}: not TOML: {error}") from None
    changes = parse_overrides(overrides)
    for key, value in changes.items():
        _set(values, key, value)
    shown = [f"{key}={value}" for key, value in changes.items()]
    return parse_config(kind, _without_none(values), source=" ".join([str(path), *shown]))


def parse_overrides(overrides: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides of a recipe by their dotted keys; ``key.sub=value`` strings are parsed, a mapping is copied."""
    return dict(overrides if isinstance(overrides, Mapping) else map(_parse_override, overrides))


def find_recipe(name: str, *, folder: str = "") -> Path:
    """Return the path of a recipe, given as a TOML file or as the name of one that elmokit has in this folder."""
    if name.endswith(".toml") or Path(name).is_file():
        return Path(name)
    inside, beside = (root / "recipes" for root in Path(__file__).parents[:2])  # installed, or in a source tree
    ours = (inside if inside.is_dir() else beside) / folder
    known = {path.stem: path for path in ours.glob("*.toml")}
    if name not in known:
        raise ConfigError(f"there is no recipe {name!r}; name a TOML file, or one of ours: {', '.join(sorted(known))}")
    return known[name]


def _parse_override(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} does not change a recipe; expected key.sub=value, as in training.epochs=3")
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        read = {}
    return key.strip(), read["value"] if list(read) == ["value"] else text.strip()


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *tables, name = key.split(".")
    if not (name and all(tables)):
        raise ConfigError(f"{key!r} does not change a recipe; expected key.sub=value, as in training.epochs=3")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{key!r}: {table} is a value in the recipe, and has nothing below it")
    values[name] = value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(part) for name, part in value.items()}
    return None if value == "none" else value


def _describe(fault: Any, kind: type[BaseModel]) -> str:
    where = ".".join(str(part) for part in fault["loc"])
    what = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        return f"{where}: there is no such key; {_nearest(fault['loc'], kind)}"
    if not where:
        return what
    return f"{where} = {fault['input']!r}: {what}" if fault["type"] != "missing" else f"{where}: {what}"


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
