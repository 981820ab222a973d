"""Token strings as columns: every word its rows, characters and layers, whatever stands beside it."""

import gc
import tracemalloc
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.config import parse_config
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import ConfigError, InputError
from elmokit.tasks.columns import ColumnMaker, InputVocab, learn_inputs
from elmokit.tasks.inputs import Column
from elmokit.tasks.recipe import CharSettings, ElmoSettings, TaskRecipe, WordSettings

VECTORS = StaticVectors(["the", "The", "cat"], np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]]))
TRAINING = [["the", "cat", "sat"], ["The", "mat"], ["cat"]]


class CountedLayers:
    """Layers that tell which sequence they were asked for."""

    num_layers, width = 2, 3

    def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
        parts = [torch.zeros(self.num_layers, len(tokens), self.width) for tokens in sequences]
        for row, tokens in enumerate(sequences):
            parts[row].fill_(float(len(tokens)))
        return torch.cat(parts, dim=1)


def recipe(
    words: WordSettings | None = None, chars: CharSettings | None = None, elmo: ElmoSettings | None = None
) -> TaskRecipe:
    return TaskRecipe(task="toy", words=words or WordSettings(), chars=chars, elmo=elmo or ElmoSettings())


def words_recipe(**settings: object) -> TaskRecipe:
    return recipe(words=WordSettings(file="v.txt", **settings))


def maker(chosen: TaskRecipe, vocab: InputVocab | None = None) -> ColumnMaker:
    vocab = vocab or learn_inputs(TRAINING, chosen)
    vectors = None if chosen.words.file is None else VECTORS
    layers = None if chosen.elmo.model is None else CountedLayers()
    return ColumnMaker(chosen, vocab, vectors=vectors, layers=layers)


# What is learned from training text


def test_words_are_listed_by_count_in_the_form_in_which_they_are_looked_up():
    assert learn_inputs(TRAINING, words_recipe(trained=True)).words == ("cat", "The", "mat", "sat", "the")
    assert learn_inputs(TRAINING, words_recipe(trained=True, lower="always")).words == ("cat", "the", "mat", "sat")
    assert learn_inputs(TRAINING, words_recipe()) == InputVocab()


@pytest.mark.parametrize(
    ("lower", "listed", "learned"),
    [
        ("fallback", ("sat", "mat"), [[0, 1, 0], [0, 2, 1]]),
        ("always", ("sat", "mat"), [[0, 1, 0], [0, 2, 1]]),
        ("never", ("Cat", "SAT", "mat", "sat"), [[0, 4, 0], [1, 3, 2]]),
    ],
)
def test_words_without_a_vector_can_be_learned_alone(lower, listed, learned):
    chosen = words_recipe(trained="missing", lower=lower)
    training = [["the", "cat", "sat"], ["The", "mat"], ["Cat", "SAT"]]
    vocab = learn_inputs(training, chosen, vectors=VECTORS)
    assert vocab.words == listed
    made = maker(chosen, vocab)
    assert made.make([["the", "sat", "dog"], ["Cat", "mat", "SAT"]]).learned_BT.tolist() == learned
    assert made.sizes().num_learned == len(listed) + 1


def test_a_word_with_a_vector_is_not_learned_for_one_without():
    chosen = words_recipe(trained="missing")
    made = ColumnMaker(
        chosen, InputVocab(words=("oslo",)), vectors=StaticVectors(["Oslo"], np.ones((1, 2))), layers=None
    )
    column = made.make([["oslo", "Oslo", "OSLO"]])
    assert column.words_BT.tolist() == [[0, 1, 0]]
    assert column.learned_BT.tolist() == [[1, 0, 1]]


def test_characters_are_listed_by_count_as_far_as_words_are_read():
    sequences = [["aab", "aab"], ["bcd", "É"]]
    assert learn_inputs(sequences, recipe(chars=CharSettings())).chars == ("a", "b", "c", "d", "É")
    assert learn_inputs(sequences, recipe(chars=CharSettings(min_count=3))).chars == ("a", "b")
    assert learn_inputs(sequences, recipe(chars=CharSettings(max_chars=2))).chars == ("a", "b", "c", "É")


def test_a_vocabulary_comes_back_from_json():
    vocab = InputVocab(words=("a\u00a0b", "\u0085", '"', "\\", ""), chars=("\u2028", "\n", "𝄞"))
    assert InputVocab.model_validate_json(vocab.model_dump_json()) == vocab
    assert parse_config(InputVocab, vocab.model_dump(mode="json"), source="test") == vocab


def test_a_vocabulary_with_a_word_twice_is_rejected():
    with pytest.raises(ConfigError, match="1 of the chars are listed twice"):
        parse_config(InputVocab, {"chars": ["a", "b", "a"]}, source="test")


@pytest.mark.parametrize("trained", [True, "missing"])
def test_training_vectors_that_are_not_there_is_rejected(trained):
    with pytest.raises(ConfigError, match=r"words\.file names no vectors"):
        learn_inputs(TRAINING, recipe(words=WordSettings(trained=trained)))


# Columns


def test_sequences_are_padded_on_the_right_to_the_longest():
    column = maker(words_recipe()).make([["the", "cat"], ["cat"], ["a", "The", "THE"]])
    assert column.mask_BT.tolist() == [[True, True, False], [True, False, False], [True, True, True]]
    assert column.words_BT is not None
    assert column.words_BT.tolist() == [[1, 3, 0], [3, 0, 0], [0, 2, 1]]
    assert column.words_BT.dtype == torch.int64
    assert column == Column(mask_BT=column.mask_BT, words_BT=column.words_BT)  # and nothing else


def test_learned_rows_follow_the_vocabulary_and_unknown_words_have_row_0():
    chosen = words_recipe(trained=True, lower="always")
    column = maker(chosen, InputVocab(words=("cat", "sat"))).make([["CAT", "sat", "the"], ["sat"]])
    assert column.learned_BT is not None
    assert column.learned_BT.tolist() == [[1, 2, 0], [2, 0, 0]]
    fallback = maker(words_recipe(trained=True), InputVocab(words=("cat", "sat"))).make([["CAT", "sat"]])
    assert fallback.learned_BT is not None
    assert fallback.learned_BT.tolist() == [[0, 2]]


def test_distinct_words_are_spelled_once_cut_and_padded_to_the_widest_filter():
    chosen = recipe(chars=CharSettings(filters=((2, 4), (4, 4)), max_chars=5))
    made = maker(chosen, InputVocab(chars=("a", "b")))
    spelling = made.make([["ab", "xa"], ["ab"]]).spelling
    assert spelling is not None
    assert spelling.chars_WK.tolist() == [[2, 3, 0, 0], [1, 2, 0, 0]]
    assert spelling.words_BT.tolist() == [[0, 1], [0, 0]]
    long = made.make([["bbbbbbbbb", ""]]).spelling
    assert long is not None
    assert long.chars_WK.tolist() == [[3, 3, 3, 3, 3], [0, 0, 0, 0, 0]]


def test_layers_are_those_of_the_sequences():
    column = maker(recipe(elmo=ElmoSettings(model="toy"))).make([["a"], ["b", "c"]])
    assert column.layers_LND is not None
    assert column.layers_LND.shape == (2, 3, 3)
    assert column.layers_LND[:, :, 0].tolist() == [[1, 2, 2], [1, 2, 2]]


def test_the_same_word_gets_the_same_in_every_call():
    made = maker(words_recipe(trained=True))
    first, again = (made.make([["cat", "The"], ["dog"]]) for _ in range(2))
    assert torch.equal(first.words_BT, again.words_BT)
    assert torch.equal(first.learned_BT, again.learned_BT)


def test_sizes_fit_the_columns():
    sizes = maker(recipe(words=WordSettings(file="v", trained=True), chars=CharSettings())).sizes()
    assert sizes.num_learned == 5 + 1  # The, the, cat, sat, mat; all others
    assert sizes.num_chars == 8 + 2  # a c e h m s t T; none, and all others
    assert (sizes.num_layers, sizes.layer_dim) == (0, 0)
    assert sizes.vectors_VD is not None
    assert sizes.vectors_VD.tolist() == [[0, 0], [1, 0], [0, 2], [3, 4]]
    elmo = maker(recipe(elmo=ElmoSettings(model="toy"))).sizes()
    assert (elmo.vectors_VD, elmo.num_learned, elmo.num_chars) == (None, 0, 0)
    assert (elmo.num_layers, elmo.layer_dim) == (2, 3)


def test_unit_length_is_the_recipes():
    sizes = maker(words_recipe(unit_length=True)).sizes()
    torch.testing.assert_close(sizes.vectors_VD, torch.tensor([[0, 0], [1, 0], [0, 1], [0.6, 0.8]]))


# What is shared


def test_makers_with_the_same_vectors_share_one_tensor_of_them():
    plain, learned, scaled = (
        maker(words_recipe(**settings)) for settings in ({}, {"trained": True}, {"unit_length": True})
    )
    assert plain.sizes().vectors_VD is learned.sizes().vectors_VD
    assert scaled.sizes().vectors_VD is scaled.sizes().vectors_VD
    assert scaled.sizes().vectors_VD is not plain.sizes().vectors_VD
    equal = StaticVectors(VECTORS.words, VECTORS.vectors_VD)
    other = ColumnMaker(words_recipe(), InputVocab(), vectors=equal, layers=None)
    assert other.sizes().vectors_VD is not plain.sizes().vectors_VD


def test_the_tensor_of_vectors_goes_with_them():
    made = ColumnMaker(words_recipe(), InputVocab(), vectors=StaticVectors(["a"], np.ones((1, 2))), layers=None)
    tensor = weakref.ref(made.sizes().vectors_VD)
    assert tensor() is not None
    del made
    gc.collect()
    assert tensor() is None


def test_other_layers_beside_the_same_words():
    class Ones(CountedLayers):
        def join(self, sequences: Sequence[Sequence[str]]) -> Tensor:
            return torch.ones_like(super().join(sequences))

    first = maker(recipe(chars=CharSettings(), elmo=ElmoSettings(model="toy")))
    other = first.with_layers(Ones())
    one, two = (made.make([["cat", "sat"], ["the"]]) for made in (first, other))
    assert torch.equal(one.spelling.chars_WK, two.spelling.chars_WK)
    assert one.layers_LND[0, :, 0].tolist() == [2, 2, 1]
    assert two.layers_LND[0, :, 0].tolist() == [1, 1, 1]


# Refused


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([["a"], [], ["b"]], "sequence 1 of 3 has no tokens"),
        ([], "no sequences"),
        ([["a"], "some text"], "sequence 1 is the string 'some text'"),
        ([["a", 5]], "a token is 5, of type int"),
    ],
)
def test_sequences_that_are_none_are_rejected(sequences: list, message: str):
    with pytest.raises(InputError, match=message):
        maker(words_recipe()).make(sequences)


def test_parts_that_do_not_fit_the_recipe_are_rejected():
    elmo = ElmoSettings(model="toy", place="none")
    with pytest.raises(ConfigError, match=r"words\.file is 'v\.txt', but no static vectors are given"):
        ColumnMaker(words_recipe(), InputVocab(), vectors=None, layers=None)
    with pytest.raises(ConfigError, match=r"words\.file is None, but static vectors are given"):
        ColumnMaker(recipe(chars=CharSettings()), InputVocab(), vectors=VECTORS, layers=None)
    with pytest.raises(ConfigError, match=r"elmo\.place 'none', but layers of a biLM are given"):
        ColumnMaker(recipe(elmo=elmo, chars=CharSettings()), InputVocab(), vectors=None, layers=CountedLayers())
    with pytest.raises(ConfigError, match=r"elmo\.place 'input', but no layers"):
        ColumnMaker(recipe(elmo=ElmoSettings(model="toy")), InputVocab(), vectors=None, layers=None)
    ColumnMaker(recipe(elmo=elmo, chars=CharSettings()), InputVocab(), vectors=None, layers=None)


def test_a_model_that_would_read_nothing_is_rejected():
    with pytest.raises(ConfigError, match="no inputs"):
        maker(recipe())
    with pytest.raises(ConfigError, match="no inputs"):
        maker(recipe(elmo=ElmoSettings(model="toy", place="output")))


def test_long_words_are_not_kept_in_memory() -> None:
    asked = recipe(chars=CharSettings())
    maker = ColumnMaker(asked, learn_inputs(TRAINING, asked), vectors=None, layers=None)
    tracemalloc.start()
    try:
        for number in range(100):
            maker.make([[f"{number:06d}" * 5000]])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000  # the words have three
