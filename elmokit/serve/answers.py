"""Answers, as the API documents them. Routes return plain values of these shapes."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Vector = list[float]


class OpenAIEmbedding(BaseModel):
    """Embedding of one text."""

    object: Literal["embedding"]
    index: int
    embedding: Vector | str


class Usage(BaseModel):
    """Number of tokens read."""

    prompt_tokens: int
    total_tokens: int


class OpenAIEmbeddingList(BaseModel):
    """OpenAI's answer with embeddings."""

    object: Literal["list"]
    data: list[OpenAIEmbedding]
    model: str
    usage: Usage


class OpenAIModel(BaseModel):
    """Served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModelList(BaseModel):
    """OpenAI's list of models."""

    object: Literal["list"]
    data: list[OpenAIModel]


class TokenSpan(BaseModel):
    """Token with its place in the raw text.

    A biLM reads characters, so the id is the token's position in its sentence. start and stop are null for given
    tokens.
    """

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class LayersOfSentence(BaseModel):
    """All layers of one sentence: layer, token, value; or base64 of the same."""

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    shape: tuple[int, int, int]
    dtype: str
    layers: list[list[Vector]] | str


class ScoredSentence(BaseModel):
    """Log-probabilities of one sentence in nats, as `Scorer.score` returns them."""

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    unknown: list[bool]
    forward_logprobs: list[float]
    backward_logprobs: list[float]
    end_logprob: float
    start_logprob: float
    forward_total: float
    backward_total: float
    forward_perplexity: float | None
    backward_perplexity: float | None
    perplexity: float | None


class Candidate(BaseModel):
    """Word that could take a token's place."""

    word: str
    logprob: float


class Place(BaseModel):
    """Token with its log-probabilities and the likeliest words in its place."""

    token: str
    unknown: bool
    forward_logprob: float
    backward_logprob: float
    both_logprob: float
    forward: list[Candidate]
    backward: list[Candidate]
    both: list[Candidate]


class SubstitutesOfSentence(BaseModel):
    """Places of one sentence."""

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    places: list[Place]


class Occurrence(BaseModel):
    """Token in its sentence; line is its index among the lines of the corpus or the given sentences."""

    tokens: list[str]
    position: int
    line: int


class SenseLayer(BaseModel):
    """Occurrences of a word at one layer: point, cluster, and the nearest others with their cosines."""

    layer: int
    points: list[tuple[float, float]]
    labels: list[int]
    explained: tuple[float, float]
    nearest: list[list[tuple[int, float]]]


class SenseMap(BaseModel):
    """Map of a word's occurrences per layer, aligned from layer to layer."""

    word: str
    num_occurrences: int
    occurrences: list[Occurrence]
    layers: list[SenseLayer]


class Neighbor(Occurrence):
    """Token with the cosine of its vector with the query's."""

    similarity: float


class Neighborhood(BaseModel):
    """Occurrences of a word, the one that was the query, and its nearest tokens."""

    word: str
    occurrences: list[Occurrence]
    query: Occurrence
    neighbors: list[Neighbor]


class TaskAnswer(BaseModel):
    """Prediction of a task model."""

    input: int
    """Index of the text."""
    shown: str
    """The prediction as a person reads it."""
    prediction: dict[str, Any]


class TaskInfo(BaseModel):
    """Loaded task model."""

    name: str
    task: str
    reads: str
    mixes: list[dict[str, Any]]


class CorpusInfo(BaseModel):
    """Loaded corpus."""

    num_sentences: int
    num_tokens: int
    num_words: int


class Info(BaseModel):
    """Model, limits and version of the server."""

    model_config = ConfigDict(protected_namespaces=())  # pydantic before 2.10 warns of names such as model_id

    model_id: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    version: str
    num_layers: int
    width: int
    state: str
    precision: str
    language: str
    can_score: bool
    tasks: list[TaskInfo]
    corpus: CorpusInfo | None
