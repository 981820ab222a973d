"""Conversion of token strings to inputs of task models: rows of vectors, characters, layers.

Shapes: B sequences, T tokens, W distinct words, K characters, V static vectors, L layers, D width.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from functools import lru_cache
from typing import NamedTuple, Protocol, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor

from elmokit.config import FrozenConfig
from elmokit.embed.trained_layers import TrainedLayers
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import ConfigError, InputError
from elmokit.nn.basic import NO_CHAR
from elmokit.tasks.inputs import Column, InputSizes, Spelling
from elmokit.tasks.recipe import CharSettings, TaskRecipe, WordSettings
from elmokit.text.checks import check_tokens

OTHER_CHAR = NO_CHAR + 1  # known characters follow
OTHER_WORD = 0  # its trained offset stays zero
MOST_WORDS = 2**15  # whose rows and characters are cached, in less than 1 kB each
MOST_CHARS = 64  # of such a word; longer ones would make the cache as large as the text

# Matrices live as long as their vectors; the key is whether vectors are scaled to length 1.
_MATRICES: WeakKeyDictionary[StaticVectors, dict[bool, Tensor]] = WeakKeyDictionary()


class InputVocab(FrozenConfig):
    """Words and characters of the training data that a model needs to read any text."""

    words: tuple[str, ...] = ()
    """Words with trained vectors, in the form in which they are looked up."""
    chars: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _all_differ(self) -> Self:
        for kind, listed in (("words", self.words), ("chars", self.chars)):
            if len(set(listed)) != len(listed):
                raise ValueError(f"{len(listed) - len(set(listed))} of the {kind} are listed twice")
        return self


class JoinedLayers(Protocol):
    """Layers of token sequences one after the other, from a `LayerStore` or computed on demand."""

    @property
    def num_layers(self) -> int:
        """Number of layers."""

    @property
    def width(self) -> int:
        """Width of a vector."""

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        """Return the layers of concatenated sequences, (L, N, D) float32."""


def reads_elmo(recipe: TaskRecipe) -> bool:
    """Return whether the model of a recipe reads the layers of a biLM or another encoder."""
    return recipe.elmo.model is not None and recipe.elmo.place != "none"


def learn_inputs(
    sequences: Iterable[Sequence[str]], recipe: TaskRecipe, *, vectors: StaticVectors | None = None
) -> InputVocab:
    """Return the words and characters of training text, the most frequent first, then by code point.

    ``vectors`` are needed if only words without a static vector are trained.
    """
    if recipe.words.trained and recipe.words.file is None:
        raise ConfigError("words.trained is set, but words.file names no vectors to train; name some, or unset it")
    counts = Counter(token for tokens in sequences for token in tokens)
    words: Counter[str] = Counter()
    chars: Counter[str] = Counter()
    for token, count in counts.items():
        if _is_learned(token, recipe.words, vectors):
            words[_look_up_form(token, recipe.words)] += count
        if recipe.chars is not None:
            for char in token[: recipe.chars.max_chars]:
                chars[char] += count
    least = 1 if recipe.chars is None else recipe.chars.min_count
    return InputVocab(words=_by_count(words, 1), chars=_by_count(chars, least))


class _Word(NamedTuple):
    row: int
    learned: int
    chars: tuple[int, ...]
    """No array: thousands of small ones between the large ones of batches would keep memory from being returned."""


class ColumnMaker:
    """Converts token sequences to a `Column` with all inputs of a recipe's model."""

    def __init__(
        self,
        recipe: TaskRecipe,
        vocab: InputVocab,
        *,
        vectors: StaticVectors | None,
        layers: JoinedLayers | TrainedLayers | None,
    ) -> None:
        _check_parts(recipe, vectors, layers)
        self.recipe = recipe
        self.vocab = vocab
        self.vectors = vectors
        self.layers = layers
        self._learned = {word: row for row, word in enumerate(vocab.words, start=OTHER_WORD + 1)}
        self._char_ids = {char: index for index, char in enumerate(vocab.chars, start=OTHER_CHAR + 1)}
        self._look_up = lru_cache(MOST_WORDS)(self._read_word)

    def make(self, sequences: Sequence[Sequence[str]]) -> Column:
        """Return sequences as one column, padded on the right to the longest."""
        lengths_B, layers = _lengths(sequences), self.layers
        mask_BT = np.arange(lengths_B.max()) < lengths_B[:, None]
        distinct: dict[str, int] = {}
        places = [distinct.setdefault(token, len(distinct)) for tokens in sequences for token in tokens]
        check_tokens(distinct)
        places_BT = np.zeros(mask_BT.shape, dtype=np.int64)
        places_BT[mask_BT] = places
        words = [self._look_up(word) if len(word) <= MOST_CHARS else self._read_word(word) for word in distinct]
        rows, learned = [word.row for word in words], [word.learned for word in words]
        return Column(
            mask_BT=torch.from_numpy(mask_BT),
            words_BT=None if self.vectors is None else _spread(rows, places_BT, mask_BT),
            learned_BT=_spread(learned, places_BT, mask_BT) if self.recipe.words.trained else None,
            spelling=None if self.recipe.chars is None else _spell(words, places_BT, self.recipe.chars),
            layers_LND=None if layers is None or isinstance(layers, TrainedLayers) else layers.join(sequences),
            spelled=layers.spell(sequences) if isinstance(layers, TrainedLayers) else None,
        )

    @property
    def trained(self) -> TrainedLayers | None:
        """Layers of a biLM that is trained with the task; None if there is none."""
        return self.layers if isinstance(self.layers, TrainedLayers) else None

    def sizes(self) -> InputSizes:
        """Return the sizes of the model's inputs."""
        return InputSizes(
            vectors_VD=None if self.vectors is None else _matrix(self.vectors, self.recipe.words),
            num_learned=len(self.vocab.words) + 1 if self.recipe.words.trained else 0,
            num_chars=0 if self.recipe.chars is None else OTHER_CHAR + 1 + len(self.vocab.chars),
            num_layers=0 if self.layers is None else self.layers.num_layers,
            layer_dim=0 if self.layers is None else self.layers.width,
        )

    def with_layers(self, layers: JoinedLayers) -> "ColumnMaker":
        """Return a maker with another source of layers; both share the cache of words."""
        other = copy(self)
        other.layers = layers
        return other

    def _read_word(self, word: str) -> _Word:
        words, chars = self.recipe.words, self.recipe.chars
        read = "" if chars is None else word[: chars.max_chars]
        learned = _is_learned(word, words, self.vectors)
        return _Word(
            row=0 if self.vectors is None else int(self.vectors.rows([word], lower=words.lower)[0]),
            learned=self._learned.get(_look_up_form(word, words), OTHER_WORD) if learned else OTHER_WORD,
            chars=tuple(self._char_ids.get(char, OTHER_CHAR) for char in read),
        )


class SharedLayers:
    """Layer source that caches what it returned. Made for one batch, together with its cache."""

    def __init__(self, source: JoinedLayers) -> None:
        self.num_layers, self.width = source.num_layers, source.width
        self._source = source
        self._cached: dict[tuple[tuple[str, ...], ...], Tensor] = {}

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        """Return the layers of concatenated sequences, (L, N, D) float32; the same tensor to every caller."""
        key = tuple(map(tuple, sequences))
        if key not in self._cached:
            self._cached[key] = self._source.join(sequences)
        return self._cached[key]


def share_layers(makers: Sequence[ColumnMaker]) -> list[ColumnMaker]:
    """Return makers of the same columns that ask each layer source only once for the same sequences."""
    shared: dict[int, SharedLayers] = {}
    return [
        maker
        if maker.layers is None or isinstance(maker.layers, TrainedLayers)
        else maker.with_layers(shared.setdefault(id(maker.layers), SharedLayers(maker.layers)))
        for maker in makers
    ]


def _matrix(vectors: StaticVectors, settings: WordSettings) -> Tensor:
    """Return the matrix of static vectors, (V, D): one read-only tensor for all models that share them."""
    made = _MATRICES.setdefault(vectors, {})
    if settings.unit_length not in made:
        made[settings.unit_length] = torch.from_numpy(vectors.matrix(unit_length=settings.unit_length))
    return made[settings.unit_length]


def _spread(rows: list[int], places_BT: NDArray[np.int64], mask_BT: NDArray[np.bool_]) -> Tensor:
    """Return the rows of the words at their positions, (B, T), 0 on padding."""
    return torch.from_numpy(np.where(mask_BT, np.array(rows, dtype=np.int64)[places_BT], 0))


def _spell(words: list[_Word], places_BT: NDArray[np.int64], settings: CharSettings) -> Spelling:
    widest = max((width for width, _ in settings.filters), default=1)
    chars_WK = np.full((len(words), max(widest, *(len(word.chars) for word in words))), NO_CHAR, dtype=np.int64)
    for row_K, word in zip(chars_WK, words, strict=True):
        row_K[: len(word.chars)] = word.chars
    return Spelling(chars_WK=torch.from_numpy(chars_WK), words_BT=torch.from_numpy(places_BT))


def _is_learned(word: str, settings: WordSettings, vectors: StaticVectors | None) -> bool:
    if settings.trained != "missing":
        return settings.trained
    assert vectors is not None
    return not vectors.rows([word], lower=settings.lower)[0]


def _look_up_form(word: str, settings: WordSettings) -> str:
    """Return the form under which a trained word is listed. One without a vector has none in lower case either."""
    is_lower = settings.lower == "always" or (settings.lower == "fallback" and settings.trained == "missing")
    return word.lower() if is_lower else word


def _by_count(counts: Counter[str], least: int) -> tuple[str, ...]:
    kept = [name for name, count in counts.items() if count >= least]
    return tuple(sorted(kept, key=lambda name: (-counts[name], name)))


def _lengths(sequences: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    if not sequences:
        raise InputError("no sequences; give at least one per column")
    for index, tokens in enumerate(sequences):
        if isinstance(tokens, str):
            raise InputError(f"sequence {index} is the string {tokens[:40]!r}; expected a list of tokens")
        if not tokens:
            raise InputError(f"sequence {index} of {len(sequences)} has no tokens; leave such examples out")
    return np.array([len(tokens) for tokens in sequences], dtype=np.int64)


def _check_parts(
    recipe: TaskRecipe, vectors: StaticVectors | None, layers: JoinedLayers | TrainedLayers | None
) -> None:
    """Check that vectors and layers are given exactly when the recipe asks for them."""
    words, elmo = recipe.words, recipe.elmo
    if (vectors is not None) != (words.file is not None):
        given = "no static vectors" if vectors is None else "static vectors"
        raise ConfigError(f"words.file is {words.file!r}, but {given} are given; the two must agree")
    if (layers is not None) != reads_elmo(recipe):
        given = "no layers" if layers is None else "layers"
        raise ConfigError(
            f"elmo.model is {elmo.model!r} and elmo.place {elmo.place!r}, but {given} of a biLM are given; "
            "the two must agree"
        )
    elmo_is_input = reads_elmo(recipe) and elmo.place != "output"
    if vectors is None and recipe.chars is None and not elmo_is_input:
        raise ConfigError(
            "the model would have no inputs; give it static vectors (--vectors, words.file), a character CNN "
            "(chars), or a biLM at the input (--elmo, elmo.model)"
        )
