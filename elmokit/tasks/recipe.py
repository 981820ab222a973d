"""Recipe of a task run: the task, what its model reads, and how it is trained; and how a recipe is found."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from elmokit.config import FrozenConfig, Positive, Share, find_recipe, parse_config, parse_overrides, read_recipe
from elmokit.encoders.static_vectors import Lowering
from elmokit.errors import ConfigError, InputError
from elmokit.tasks.names import get_task
from elmokit.weights.bundled import EN_SMALL

if TYPE_CHECKING:
    from elmokit.tasks.task import AnyTask

NONE = "none"
# TOML has no null, so recipes write ``none`` for it; in these fields it is a value like the others.
NoneByName = BeforeValidator(lambda given: NONE if given is None else given)
Place = Annotated[Literal["none", "input", "output", "both"], NoneByName]


class WordSettings(FrozenConfig):
    """Static vectors, such as GloVe's."""

    file: str | None = None
    """Path of the vectors; none: the model reads no static vectors."""
    trained: bool | Literal["missing"] = False
    """Train the vectors of the words in the training data; ``missing``: only of words without a static vector."""
    lower: Lowering = "fallback"
    """Look words up in lower case: always, only if the word as written has no vector, or never."""
    unit_length: bool = False


class CharSettings(FrozenConfig):
    """Character CNN of the task model (not the biLM's)."""

    char_dim: PositiveInt = 16
    filters: Annotated[tuple[tuple[PositiveInt, PositiveInt], ...], Field(min_length=1)] = ((3, 128),)
    """(window width, number of filters) pairs."""
    dropout: Share = 0.0
    max_chars: PositiveInt = 30
    min_count: PositiveInt = 1
    """Rarer characters share one embedding."""


class ElmoSettings(FrozenConfig):
    """Use of a biLM: which one, where its mix is concatenated, and how it is mixed."""

    model: str | None = None
    """A biLM or another encoder, as `elmokit.embed.sources` lists them."""
    untrained: bool = False
    """Take only its shape, with random weights that follow from the seed: a control."""
    place: Place = "input"
    layers: Literal["all", "last", "type"] = "all"
    """``type``: the token layer alone, at half the width, because a biLM's token layer is one vector twice."""
    mix: Literal["scalar", "dimension", "gated"] = "scalar"
    """``scalar`` is the paper's equation 1. ``dimension`` has weights per dimension; ``gated`` computes weights from
    the token's vectors."""
    gate_places: bool = False
    """Train a gate g of each token, a logistic function of its mean layer, that scales the mix at the input by 2 g and
    the mix at the output by 2 (1 - g)."""
    penalty: Annotated[float, Field(ge=0)] = 0.0
    """The paper's lambda, the factor of the squared mix weights (before the softmax); for other mixes than the paper's
    their mean over dimensions."""
    learn_gamma: bool = True
    layer_norm: Annotated[Literal["none", "token", "batch"], NoneByName] = "none"
    dropout: Share = 0.5
    train: bool = False
    """Train the biLM with the task. Its layers are then computed in every step, instead of once."""
    learning_rate: Positive | None = None
    """Learning rate of a biLM that is trained, under the schedule of the task; none: the task's."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.mix != "scalar" and self.layers != "all":
            raise ValueError(f"mix {self.mix} needs all layers, but layers is {self.layers}; give layers=all")
        if self.gate_places and self.place != "both":
            raise ValueError(f"gate_places needs both places, but place is {self.place}; give place=both")
        if self.learning_rate is not None and not self.train:
            raise ValueError("learning_rate is that of a biLM that is trained; give train=true, or leave it out")
        if self.train and self.place == NONE:
            raise ValueError("train needs ELMo in the model, but place is none; give a place, or train=false")
        return self


class TrainingSettings(FrozenConfig):
    """Optimization of the model."""

    batch_size: PositiveInt = 32
    epochs: PositiveInt = 20
    patience: PositiveInt | None = None
    """Stop after so many evaluations on the dev set without a better score."""
    evaluate_every: PositiveInt | None = None
    """Steps between evaluations; none: one per epoch."""
    optimizer: Literal["adam", "adadelta", "adagrad", "sgd"] = "adam"
    learning_rate: Positive = 1e-3
    adadelta_epsilon: Positive = 1e-6
    """Adadelta's epsilon; with smaller values it starts more slowly."""
    schedule: Literal["constant", "halve", "exponential"] = "constant"
    """``halve``: after every evaluation without a better score. ``exponential``: times 0.999 every 100 steps."""
    clip_norm: Positive | None = None
    clip_value: Positive | None = None
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """l2 penalty of recurrent and feed-forward matrices, half the square; not of embeddings and biases."""
    ema: Share | None = None
    """Decay of the exponential moving average of the weights, which is evaluated and saved in their place."""
    seed: NonNegativeInt = 0
    max_examples: PositiveInt | None = None
    """Train on a random part of the training data; a smaller part is a subset of a larger one."""
    max_tokens: PositiveInt | None = None
    """Leave out training examples with more tokens."""

    @model_validator(mode="after")
    def _one_clip(self) -> Self:
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError("clip_norm and clip_value are both given; choose one")
        return self


class TaskRecipe(FrozenConfig):
    """Everything that a task run depends on besides its data."""

    task: str
    words: WordSettings = WordSettings()
    chars: CharSettings | None = None
    elmo: ElmoSettings = ElmoSettings()
    model: dict[str, Any] = Field(default_factory=dict)
    """Sizes of the task's model, checked by `model_settings`."""
    training: TrainingSettings = TrainingSettings()


def find_task_recipe(task: str, recipe: str | Path | None) -> Path:
    """Return the path of a recipe: a TOML file, one of ours by its name, or the task's by default."""
    return find_recipe(task if recipe is None else str(recipe), folder="tasks")


def resolve_recipe(
    task: str,
    path: Path,
    *,
    settings: Sequence[str] | Mapping[str, Any] = (),
    elmo: str | Path | None = None,
    vectors: str | Path | None = None,
    untrained: bool = False,
) -> TaskRecipe:
    """Read and check the recipe of a run, with the options of `elmokit.train_task`, which documents them.

    Settings take precedence over options. A recipe that names no biLM gets the bundled English one.
    """
    options = {"elmo.model": elmo and str(elmo), "words.file": vectors and str(vectors), "elmo.untrained": untrained}
    given = {key: value for key, value in options.items() if value}
    recipe = read_recipe(TaskRecipe, path, given | parse_overrides(settings))
    if recipe.task != task:
        raise ConfigError(f"{path}: is a recipe of the task {recipe.task}, not of {task}; name another recipe")
    if "model" not in recipe.elmo.model_fields_set and recipe.elmo.place != NONE:
        recipe = recipe.model_copy(update={"elmo": recipe.elmo.model_copy(update={"model": str(EN_SMALL)})})
    if recipe.elmo.model is None and recipe.elmo.untrained:
        raise InputError("an untrained biLM takes the shape of a saved one; name its folder with --elmo")
    if recipe.words.file is None:  # there is nothing to train
        recipe = recipe.model_copy(update={"words": recipe.words.model_copy(update={"trained": False})})
    model_settings(get_task(task), recipe, source=f"{path}, [model]")
    return recipe


def model_settings(task: "AnyTask", recipe: TaskRecipe, *, source: str | None = None) -> FrozenConfig:
    """Return the validated table ``[model]`` of a recipe; ``source`` names it in errors."""
    return parse_config(task.settings, recipe.model, source=source or f"the table [model] of a recipe for {task.name}")
