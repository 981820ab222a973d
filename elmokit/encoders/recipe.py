"""Recipes of comparison encoders as validated values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, NonNegativeInt, PositiveInt, model_validator

from elmokit.config import AskedPrecision, FrozenConfig, Positive, Share, read_recipe
from elmokit.encoders.static_vectors import Lowering
from elmokit.errors import ConfigError

Files = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]


class EncoderTraining(FrozenConfig):
    """Optimization of an encoder."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Positive = 1.0
    halve: bool = True
    """Halve the rate whenever an evaluation finds no lower dev loss."""
    min_learning_rate: Positive = 0.03
    """The run ends when the rate falls below it."""
    clip_norm: Positive | None = 5.0
    batch_size: PositiveInt = 64
    precision: AskedPrecision = "auto"
    """Precision of large matrix products. ``auto``: bfloat16 on a CPU that has instructions for it, else float32."""
    epochs: Positive | None = None
    hours: Positive | None = None
    """The run ends at the first of epochs, hours and the lowest rate; hours count over all sessions of the run."""
    evaluate_every: PositiveInt = 1000
    """Steps between evaluations on the dev set; each one is followed by a checkpoint."""
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.epochs is None and self.hours is None and not self.halve:
            raise ValueError("none of epochs, hours and halve is given; the run would never end")
        return self


class CoVeRecipe(FrozenConfig):
    """A translation model whose encoder is CoVe (McCann et al. 2017)."""

    kind: Literal["cove"] = "cove"
    source: Files = ()
    """Source sentences of the training pairs, one per line; files are paired with ``target`` in order."""
    target: Files = ()
    dev_source: Files = ()
    dev_target: Files = ()
    test_source: Files = ()
    """Pairs to report the final perplexity on; none by default."""
    test_target: Files = ()
    source_language: str = "en"
    target_language: str = "de"
    vectors: str | None = None
    """File of static vectors of source words."""
    lower: Lowering = "always"
    max_words: PositiveInt = 20_000
    """Target vocabulary, with its three specials."""
    max_length: PositiveInt = 60
    """Longer training pairs are left out."""
    hidden_dim: PositiveInt = 300
    embedding_dim: PositiveInt = 300
    dropout: Share = 0.2
    training: EncoderTraining = EncoderTraining()

    def check_files(self) -> None:
        """Reject a recipe that lacks a file."""
        _require(self, "source", "target", "dev_source", "dev_target", "vectors")
        if bool(self.test_source) != bool(self.test_target):
            raise ConfigError("only one of test_source and test_target is given; give both or none")


class Context2VecRecipe(FrozenConfig):
    """A model of contexts (Melamud et al. 2016)."""

    kind: Literal["context2vec"] = "context2vec"
    train: Files = ()
    """Text, one sentence per line."""
    dev: Files = ()
    language: str = "en"
    tokenized: bool = False
    max_tokens: PositiveInt | None = None
    """Train on the first sentences with so many tokens in all."""
    min_count: PositiveInt = 3
    max_words: PositiveInt | None = None
    max_length: PositiveInt = 64
    """Longer sentences are left out."""
    word_dim: PositiveInt = 300
    hidden_dim: PositiveInt = 600
    context_dim: PositiveInt = 600
    num_negatives: PositiveInt = 10
    training: EncoderTraining = EncoderTraining(
        optimizer="adam", learning_rate=1e-3, halve=False, clip_norm=5.0, batch_size=100, epochs=10
    )

    def check_files(self) -> None:
        """Reject a recipe that lacks a file."""
        _require(self, "train", "dev")


EncoderRecipe = CoVeRecipe | Context2VecRecipe
RECIPES: dict[str, type[CoVeRecipe] | type[Context2VecRecipe]] = {
    "cove": CoVeRecipe,
    "context2vec": Context2VecRecipe,
}


def read_encoder_recipe(kind: str, path: Path, settings: Sequence[str] | Mapping[str, Any]) -> EncoderRecipe:
    """Read the recipe of a kind of encoder, with ``settings`` in place of some of its values."""
    return read_recipe(RECIPES[kind], path, settings)


def _require(recipe: "EncoderRecipe", *names: str) -> None:
    for name in names:
        if not getattr(recipe, name):
            raise ConfigError(f"the recipe names no {name}; give {name}=FILE")
