"""A pretraining run as a validated value: model, data, vocabulary, loss and training."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from elmokit.config import AskedPrecision, BiLMConfig, CharEncoderConfig, FrozenConfig, Positive, Share, WordTableConfig
from elmokit.text.rules import TextRules
from elmokit.text.tokens import GENERIC

TrainedDirection = Literal["both", "forward", "backward"]
FULL_SOFTMAX_UP_TO = 10_000  # words; above that a sampled softmax is faster and, for the same hours, better

Patterns = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]


class DataSettings(FrozenConfig):
    """Text files, and how they are read."""

    train: Patterns = ()
    """Files or globs, ``.gz`` and ``.xz`` too."""
    heldout: Patterns = ()
    exclude: Patterns = ()
    """Test sets, as text or data files. Training sentences that they have are left out (`elmokit.text.exclusion`)."""
    tokenized: bool = False
    """Lines are tokens separated by white space; else they are raw text."""
    split: bool = False
    """Lines of raw text are paragraphs, to be split into sentences."""
    wrapped: bool = False
    """Lines of raw text are wrapped at a width; blank lines end paragraphs, which are split into sentences."""
    language: str = "en"
    """Language whose rules apply to raw text; ``generic`` if it has none of its own."""
    abbreviations: str | None = None
    """File of words that keep their full stop, one per line; only for ``generic``."""

    @model_validator(mode="after")
    def _has_use_for_abbreviations(self) -> Self:
        if self.abbreviations is not None and self.language != GENERIC:
            raise ValueError(f"abbreviations are for language={GENERIC}; the language {self.language} has its own")
        return self

    @property
    def rules(self) -> TextRules:
        """Rules that split the text into sentences and tokens."""
        language = self.language if self.abbreviations is None else f"{GENERIC}:{self.abbreviations}"
        return TextRules(tokenized=self.tokenized, split=self.split, wrapped=self.wrapped, language=language)


class VocabSettings(FrozenConfig):
    """Words that the model can predict."""

    file: str | None = None
    """A vocabulary file; without it, words are counted in the text."""
    max_size: PositiveInt | None = None
    """Largest size, the three special words included."""
    min_count: PositiveInt = 1


class SoftmaxSettings(FrozenConfig):
    """Loss of the output layer."""

    kind: Literal["auto", "full", "sampled"] = "auto"
    num_negatives: PositiveInt = 8192

    def negatives_for(self, num_words: int) -> int | None:
        """Return the number of negatives per step, or None for the full softmax."""
        if self.kind == "full" or self.num_negatives >= num_words:
            return None
        if self.kind == "auto" and num_words <= FULL_SOFTMAX_UP_TO:
            return None
        return self.num_negatives


class PretrainSettings(FrozenConfig):
    """Training settings. The defaults are the paper's."""

    num_rows: PositiveInt = 128
    """Streams of text that are read in parallel, over all ranks."""
    unroll_steps: PositiveInt = 20
    direction: TrainedDirection = "both"
    """Train one direction alone, as a plain language model. The LSTMs of the other one are zero, and so are their
    outputs. Two such models share nothing: `elmokit.embed.separate_models` joins their layers."""
    dropout: Share = 0.1
    optimizer: Literal["adagrad", "adam", "sgd"] = "adagrad"
    learning_rate: Positive = 0.2
    schedule: Literal["constant", "linear", "cosine", "constant-linear"] = "constant"
    """Learning rate after the warmup: constant, or decaying to a twentieth at the end of the run.

    ``constant-linear`` decays over the last fifth of the run. Until then the run can be made longer or shorter.
    """
    warmup_steps: NonNegativeInt = 0
    clip_norm: Positive | None = 10.0
    precision: AskedPrecision = "auto"
    """Precision of large matrix products. ``auto``: bfloat16 on a GPU or CPU that supports it, else float32."""
    seed: NonNegativeInt = 0
    epochs: Positive | None = None
    steps: PositiveInt | None = None
    hours: Positive | None = None
    """The run ends at the first of epochs, steps and hours that is reached. Hours count over all sessions."""
    evaluate_every: PositiveInt = 2000
    """Steps between two evaluations on the held-out text."""
    heldout_tokens: PositiveInt = 100_000
    """Words of the held-out text that an evaluation reads at most."""
    checkpoint_every: PositiveInt = 500
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    keep_models: tuple[PositiveInt, ...] = ()
    """Steps after which the model is saved for good, as ``at-STEP`` in the run folder."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.epochs is None and self.steps is None and self.hours is None:
            raise ValueError("the run has no end; give epochs, steps or hours")
        if self.schedule != "constant" and self.epochs is None and self.steps is None:
            raise ValueError(
                f"the schedule {self.schedule} needs epochs or steps, because it depends on the length of the run"
            )
        return self


class Recipe(FrozenConfig):
    """Everything that a run depends on."""

    input: Literal["characters", "words"] = "characters"
    """``words``: the model reads the ids of the words that it predicts, in place of their characters. All other words
    are one. A word vector is as wide as the LSTMs' input, and ``model.char_encoder`` is not used."""
    model: BiLMConfig = BiLMConfig()
    data: DataSettings = DataSettings()
    vocab: VocabSettings = VocabSettings()
    softmax: SoftmaxSettings = SoftmaxSettings()
    training: PretrainSettings

    @model_validator(mode="after")
    def _reads_bytes(self) -> Self:
        if not self.model.reads_bytes:
            raise ValueError(
                "a model with a dictionary of its own cannot be pretrained; leave out model.words and "
                'num_dictionary_chars, and give input = "words" for a model that reads word ids'
            )
        return self

    def model_for(self, num_words: int) -> BiLMConfig:
        """Return the model, whose sizes may follow from the number of words in the vocabulary."""
        if self.input == "characters":
            return self.model
        lstm = self.model.lstm
        encoder = CharEncoderConfig(filters=(), num_highway=0, max_chars=self.model.char_encoder.max_chars)
        return BiLMConfig(
            char_encoder=encoder, lstm=lstm, words=WordTableConfig(num_words=num_words, dim=lstm.proj_dim)
        )
