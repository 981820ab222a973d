"""A pretraining run as a validated value: what is learned, from what, and how."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from elmokit.config import BiLMConfig, FrozenConfig
from elmokit.text.rules import TextRules

FULL_SOFTMAX_UP_TO = 10_000  # words; above that sampling is faster and, for the same hours, better

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]


class DataSettings(FrozenConfig):
    """The text."""

    train: Patterns = ()
    """Files or globs, ``.gz`` and ``.xz`` too."""
    heldout: Patterns = ()
    exclude: Patterns = ()
    """Test sets, as text or data files. Training sentences that they have are left out (`elmokit.text.exclusion`)."""
    tokenized: bool = False
    """Lines are tokens set apart by white space; else they are raw text."""
    split: bool = False
    """Lines of raw text are paragraphs, to be split into sentences."""
    wrapped: bool = False
    """Lines of raw text are broken at a width, and blank lines end paragraphs, to be split into sentences."""
    language: str = "en"

    @property
    def rules(self) -> TextRules:
        """Rules that split the text into sentences and tokens."""
        return TextRules(tokenized=self.tokenized, split=self.split, wrapped=self.wrapped, language=self.language)


class VocabSettings(FrozenConfig):
    """The words that the model can predict."""

    file: str | None = None
    """A vocabulary to use as it is; else one is counted from the text."""
    max_size: PositiveInt | None = None
    """With the three specials."""
    min_count: PositiveInt = 1


class SoftmaxSettings(FrozenConfig):
    """How the loss is computed."""

    kind: Literal["auto", "full", "sampled"] = "auto"
    num_negatives: PositiveInt = 8192

    def negatives_for(self, num_words: int) -> int | None:
        """How many negatives a step draws; None where the softmax is full."""
        if self.kind == "full" or self.num_negatives >= num_words:
            return None
        if self.kind == "auto" and num_words <= FULL_SOFTMAX_UP_TO:
            return None
        return self.num_negatives


class TrainingSettings(FrozenConfig):
    """How the weights are learned. The defaults are the paper's."""

    num_rows: PositiveInt = 128
    """Streams of text that are read side by side, all processes together."""
    unroll_steps: PositiveInt = 20
    dropout: Share = 0.1
    optimizer: Literal["adagrad", "adam", "sgd"] = "adagrad"
    learning_rate: Positive = 0.2
    schedule: Literal["constant", "linear", "cosine", "constant-linear"] = "constant"
    """Learning rate after the warmup: constant, or decaying to a twentieth at the end of the run.

    ``constant-linear`` decays over the last fifth of the run. Until then the run can be made longer or shorter.
    """
    warmup_steps: NonNegativeInt = 0
    clip_norm: Positive | None = 10.0
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the large products. ``auto``: bfloat16 on a GPU that has it, else float32."""
    seed: NonNegativeInt = 0
    epochs: Positive | None = None
    steps: PositiveInt | None = None
    hours: Positive | None = None
    """The run ends at the first of epochs, steps and hours that is reached; hours count over all its pieces."""
    evaluate_every: PositiveInt = 2000
    """Steps between two looks at the held-out text."""
    heldout_tokens: PositiveInt = 100_000
    """At most so many words of the held-out text are used in a look."""
    checkpoint_every: PositiveInt = 500
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.epochs is None and self.steps is None and self.hours is None:
            raise ValueError("none of epochs, steps and hours is given; the run would never end")
        if self.schedule != "constant" and self.epochs is None and self.steps is None:
            raise ValueError(f"a {self.schedule} schedule needs epochs or steps, to know where the end is")
        return self


class Recipe(FrozenConfig):
    """Everything that a run follows from."""

    model: BiLMConfig = BiLMConfig()
    data: DataSettings = DataSettings()
    vocab: VocabSettings = VocabSettings()
    softmax: SoftmaxSettings = SoftmaxSettings()
    training: TrainingSettings
