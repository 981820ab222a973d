"""Bodies of requests, as the API documents them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from elmokit.embed.picking import Pooling

MOST_CANDIDATES = 100
MOST_OCCURRENCES = 500

Token = Annotated[str, Field(min_length=1)]
Inputs = str | list[str | list[Token]]
"""One text, or several: raw strings, or lists of tokens, which are used as they are."""
Layer = Literal["mean"] | Annotated[int, Field(ge=-64, le=63)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Dimensions = Annotated[int, Field(ge=1)]
Encoding = Literal["float", "base64"]
TOKEN_IDS = (
    "input holds token ids; elmokit reads text: in LangChain set "
    "OpenAIEmbeddings(check_embedding_ctx_length=False), elsewhere send strings"
)


class Body(BaseModel):
    """Body without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class OpenAIEmbeddings(Body):
    """OpenAI's request for embeddings, with the layer and the pooling as additions."""

    input: str | list[str] = Field(description="One text, or up to 2,048. Token ids are rejected.")
    model: str = Field(description="Name of the served model, as /v1/models lists it.")
    encoding_format: Encoding = Field("float", description="base64: little-endian float32.")
    dimensions: Dimensions | None = Field(None, description="Keep the first so many values of a vector.")
    user: str | None = Field(None, description="Accepted without effect.")
    layer: Layer = Field("mean", description="A layer's number, 0 for the token layer, or the mean of all.")
    pooling: Pooling = "mean"

    @field_validator("input", mode="before")
    @classmethod
    def _explain_token_ids(cls, value: Any) -> Any:
        first = value[0] if isinstance(value, list) and value else None
        if isinstance(first, list):
            first = first[0] if first else None
        if isinstance(first, int) and not isinstance(first, bool):
            raise ValueError(TOKEN_IDS)
        return value


class Embed(Body):
    """Request for one vector per text."""

    inputs: Inputs
    normalize: bool | None = Field(None, description="Scale vectors to length 1; true by default.")
    truncate: bool | None = Field(None, description="Cut texts that are too long instead of rejecting them.")
    truncation_direction: Literal["Left", "Right", "left", "right"] | None = Field(
        None, description="The side that is cut off; Right by default."
    )
    prompt_name: None = Field(None, description="A biLM has no prompts.")
    dimensions: Dimensions | None = None
    layer: Layer = "mean"
    pooling: Pooling = "mean"


class EmbedAll(Body):
    """Request for one vector per token."""

    inputs: Inputs
    layer: Layer = Field("mean", description="A layer's number, or the mean of all.")
    layers: Annotated[list[int], Field(min_length=1, max_length=64)] | None = Field(
        None, description="Several layers; the answer then has one more level: layer, token, value."
    )


class SimilarityInputs(Body):
    """A sentence, and those to compare it with."""

    source_sentence: str
    sentences: list[str]


class Similarity(Body):
    """Request for cosines of text vectors."""

    inputs: SimilarityInputs
    layer: Layer = "mean"
    pooling: Pooling = "mean"


class Sentences(Body):
    """Request about sentences."""

    inputs: Inputs


class Layers(Body):
    """Request for all layers of every token."""

    inputs: Inputs
    encoding_format: Encoding = Field("float", description="base64: little-endian, layer by layer.")
    dtype: Literal["float32", "float16"] = Field("float32", description="Type of base64 and safetensors values.")


class Substitutes(Body):
    """Request for the likeliest words in the place of every token."""

    inputs: Inputs
    top_k: Annotated[int, Field(ge=1, le=MOST_CANDIDATES)] = 10


class TaskInputs(Body):
    """Texts for a task model, in the form that the task reads."""

    inputs: str | list[str]


class Senses(Body):
    """Request for a map of a word's occurrences."""

    word: Token
    sentences: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Sentences to search instead of the loaded corpus."
    )
    most: Annotated[int, Field(ge=1, le=MOST_OCCURRENCES)] = Field(
        200, description="Number of occurrences; of more, evenly spaced ones are taken."
    )


class Neighbors(Body):
    """Request for the contexts nearest to an occurrence of a word."""

    word: Token
    sentences: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Sentences to search instead of the loaded corpus."
    )
    occurrence: Annotated[int, Field(ge=0)] = Field(0, description="Index of the query among the occurrences.")
    layer: Layer = Field(-1, description="A layer's number, or the mean of all.")
    weights: Annotated[list[Weight], Field(min_length=1, max_length=64)] | None = Field(
        None, description="A weight per layer instead of one layer: their weighted sum is compared."
    )
    same_word: bool = Field(default=True, description="Search only the occurrences of the word.")
    k: Annotated[int, Field(ge=1, le=MOST_CANDIDATES)] = 10
