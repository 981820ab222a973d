"""A task run as a validated value: which task, what its model reads, and how it learns."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from elmokit.config import FrozenConfig
from elmokit.encoders.static_vectors import Lowering

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# A recipe's ``none`` is read as nothing, for which TOML has no word; here it is a value like the others.
NoneByName = BeforeValidator(lambda given: "none" if given is None else given)
Place = Annotated[Literal["none", "input", "output", "both"], NoneByName]


class WordSettings(FrozenConfig):
    """Static vectors, such as GloVe's."""

    file: str | None = None
    """Where they are; none: the model reads none."""
    trained: bool | Literal["missing"] = False
    """Whether the vectors of the training text's words are learned further; ``missing``: of those that have none."""
    lower: Lowering = "fallback"
    """Look words up in lower case always, only where they are not there as they are written, or never."""
    unit_length: bool = False


class CharSettings(FrozenConfig):
    """A task model's own character CNN (not the biLM's)."""

    char_dim: PositiveInt = 16
    filters: Annotated[tuple[tuple[PositiveInt, PositiveInt], ...], Field(min_length=1)] = ((3, 128),)
    """(window width, number of filters) pairs."""
    dropout: Share = 0.0
    max_chars: PositiveInt = 30
    min_count: PositiveInt = 1
    """Characters seen less often are all one."""


class ElmoSettings(FrozenConfig):
    """What of a biLM goes where."""

    model: str | None = None
    """A saved biLM; `untrained` with a seed is one of the same shape that has learned nothing."""
    untrained: bool = False
    place: Place = "input"
    layers: Literal["all", "last"] = "all"
    penalty: Annotated[float, Field(ge=0)] = 0.0
    """The paper's lambda: times the squared weights before the softmax."""
    learn_gamma: bool = True
    layer_norm: Annotated[Literal["none", "token", "batch"], NoneByName] = "none"
    dropout: Share = 0.5


class TrainingSettings(FrozenConfig):
    """How the model learns."""

    batch_size: PositiveInt = 32
    epochs: PositiveInt = 20
    patience: PositiveInt | None = None
    """Stop after so many looks at the development data without a better score."""
    evaluate_every: PositiveInt | None = None
    """Steps between looks; none: one after every epoch."""
    optimizer: Literal["adam", "adadelta", "adagrad", "sgd"] = "adam"
    learning_rate: Positive = 1e-3
    adadelta_epsilon: Positive = 1e-6
    """Adadelta's; the smaller, the slower it begins."""
    schedule: Literal["constant", "halve", "exponential"] = "constant"
    """``halve``: whenever a look finds no better score. ``exponential``: times 0.999 after every 100 steps."""
    clip_norm: Positive | None = None
    clip_value: Positive | None = None
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """The l2 penalty of all matrices, half its square: on recurrent and feed-forward weights, no vectors, no biases."""
    ema: Share | None = None
    """The decay of the weights' moving mean, which then is what is evaluated and saved."""
    seed: NonNegativeInt = 0
    max_examples: PositiveInt | None = None
    """Learn from a random part of the training data only; a smaller part is within a larger one."""
    max_tokens: PositiveInt | None = None
    """Leave out training examples with more tokens than that."""

    @model_validator(mode="after")
    def _one_clip(self) -> Self:
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError("clip_norm and clip_value are both given; choose one")
        return self


class TaskRecipe(FrozenConfig):
    """Everything that a task run follows from, besides its data."""

    task: str
    words: WordSettings = WordSettings()
    chars: CharSettings | None = None
    elmo: ElmoSettings = ElmoSettings()
    model: dict[str, Any] = Field(default_factory=dict)
    """The sizes of the task's model; the task checks them."""
    training: TrainingSettings = TrainingSettings()
