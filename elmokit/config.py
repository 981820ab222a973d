"""What a biLM is made of, as validated values.

Sizes that follow from others (the output width, the number of filters) are properties, never fields.
"""

from collections.abc import Mapping
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

# Character ids as every interface has them: a byte's value plus one, then the five specials. 0 is no word at all.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD_CHAR = 257, 258, 259, 260, 261
NUM_CHARS = 261

Clip = Annotated[float, Field(gt=0, allow_inf_nan=False)]


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
    max_chars: Annotated[int, Field(ge=3)] = 50
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
    cell_clip: Clip | None = 3.0
    proj_clip: Clip | None = 3.0
    skip_connections: bool = True

    @property
    def has_projection(self) -> bool:
        """Whether a layer projects its cells down to its output."""
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
        """Whether the pooled filters are projected down to the LSTM's input."""
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
        faults = "; ".join(_describe(fault) for fault in error.errors())
        raise ConfigError(f"{source}: {faults}") from None


def _describe(fault: Any) -> str:
    where = ".".join(str(part) for part in fault["loc"])
    what = str(fault["msg"]).removeprefix("Value error, ")
    if not where:
        return what
    return f"{where} = {fault['input']!r}: {what}" if fault["type"] != "missing" else f"{where}: {what}"
