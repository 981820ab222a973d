"""Recipes: TOML files and key=value, read into validated values."""

from pathlib import Path

import pytest

from elmokit.config import PAPER_FILTERS, read_recipe
from elmokit.errors import ConfigError
from elmokit.pretrain.recipe import DataSettings, Recipe, SoftmaxSettings

RECIPES = Path(__file__).parents[2] / "recipes"


def read(folder: Path, text: str, *overrides: str) -> Recipe:
    path = folder / "recipe.toml"
    path.write_text(text, "utf-8")
    return read_recipe(Recipe, path, overrides)


def test_values_are_those_of_the_file_and_the_rest_the_papers(tmp_path: Path) -> None:
    recipe = read(tmp_path, "[training]\nepochs = 2\nlearning_rate = 0.1\n[data]\ntrain = ['a', 'b*']")
    assert recipe.training.epochs == 2
    assert recipe.training.learning_rate == 0.1
    assert recipe.data.train == ("a", "b*")
    assert recipe.training.num_rows == 128


def test_overrides_win_and_are_read_as_toml_or_as_text(tmp_path: Path) -> None:
    recipe = read(
        tmp_path,
        "[training]\nepochs = 2",
        "training.epochs=0.5",
        "data.train=corpus/*.txt",
        "data.heldout=['x y', 'z']",
        "data.tokenized=true",
        "model.char_encoder.filters=[[1, 9], [2, 700]]",
        "vocab.file=words = many.txt",
    )
    assert recipe.training.epochs == 0.5
    assert recipe.data.train == ("corpus/*.txt",)
    assert recipe.data.heldout == ("x y", "z")
    assert recipe.data.tokenized is True
    assert recipe.model.char_encoder.filters == ((1, 9), (2, 700))
    assert recipe.vocab.file == "words = many.txt"


def test_none_takes_a_default_away(tmp_path: Path) -> None:
    recipe = read(tmp_path, "[training]\nsteps = 2\nclip_norm = 'none'", "model.lstm.cell_clip=none")
    assert recipe.training.clip_norm is None
    assert recipe.model.lstm.cell_clip is None


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("training.learning_rat=1", "did you mean training.learning_rate?"),
        ("trainin.steps=1", "did you mean training?"),
        ("model.lstm.cell_dims=8", "did you mean model.lstm.cell_dim?"),
        ("model.xyzzy=8", "known here: char_encoder, lstm"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_name(tmp_path: Path, override: str, advice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "[training]\nsteps = 1", override)
    assert override.partition("=")[0] in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize("override", ["training.steps", "=3", "training..steps=3", ".=1"])
def test_an_override_without_key_or_value_shows_the_form(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match=r"key\.sub=value"):
        read(tmp_path, "[training]\nsteps = 1", override)


def test_an_override_below_a_value_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps is a value"):
        read(tmp_path, "[training]\nsteps = 1", "training.steps.more=3")


def test_bad_toml_names_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"recipe\.toml.*line 2"):
        read(tmp_path, "[training]\nsteps = \n")


def test_a_missing_recipe_a_folder_and_other_bytes_are_errors_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: no such recipe"):
        read_recipe(Recipe, tmp_path / "none.toml", [])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recipe(Recipe, tmp_path, [])
    (tmp_path / "latin.toml").write_bytes(b"[data]\nlanguage = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin\.toml: is not UTF-8"):
        read_recipe(Recipe, tmp_path / "latin.toml", [])


def test_every_impossible_value_is_in_the_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "[training]\nsteps = 1\ndropout = 1.5\nnum_rows = 0")
    assert "training.dropout = 1.5" in str(caught.value)
    assert "training.num_rows = 0" in str(caught.value)


def test_a_run_without_end_and_a_schedule_without_length_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the run has no end"):
        read(tmp_path, "[training]\nseed = 1")
    with pytest.raises(ConfigError, match="the schedule cosine needs"):
        read(tmp_path, "[training]\nhours = 1\nschedule = 'cosine'")


def test_the_softmax_is_chosen_by_the_vocabularys_size_by_default() -> None:
    def negatives(kind: str, num_words: int, wanted: int = 100) -> int | None:
        return SoftmaxSettings(kind=kind, num_negatives=wanted).negatives_for(num_words)

    assert negatives("auto", 10_000) is None
    assert negatives("auto", 10_001) == 100
    assert negatives("sampled", 101) == 100
    assert negatives("sampled", 100) is None  # as many negatives as words: nothing is left to sample
    assert negatives("full", 10**6) is None


def test_the_papers_recipe_is_the_papers_to_the_last_number() -> None:
    recipe = read_recipe(Recipe, RECIPES / "paper.toml", [])
    encoder, lstm, training = recipe.model.char_encoder, recipe.model.lstm, recipe.training
    assert (encoder.char_dim, encoder.filters, encoder.num_highway) == (16, PAPER_FILTERS, 2)
    assert (encoder.activation, encoder.max_chars) == ("relu", 50)
    assert (lstm.cell_dim, lstm.proj_dim, lstm.num_layers) == (4096, 512, 2)
    assert (lstm.cell_clip, lstm.proj_clip, lstm.skip_connections) == (3.0, 3.0, True)
    assert (recipe.softmax.kind, recipe.softmax.num_negatives) == ("sampled", 8192)
    assert recipe.vocab.max_size == 793_471
    assert training.num_rows * training.unroll_steps == 128 * 3 * 20
    assert training.unroll_steps == 20
    assert (training.optimizer, training.learning_rate, training.schedule) == ("adagrad", 0.2, "constant")
    assert (training.warmup_steps, training.clip_norm, training.dropout) == (0, 10.0, 0.1)
    assert (training.epochs, training.steps) == (None, 10 * (768_648_884 // (128 * 3 * 20)))
    assert training.precision == "fp32"
    assert recipe.data.tokenized


def test_the_small_recipe_is_small() -> None:
    recipe = read_recipe(Recipe, RECIPES / "small.toml", [])
    assert (recipe.model.lstm.cell_dim, recipe.model.lstm.proj_dim) == (1024, 128)
    assert recipe.vocab.max_size == 50_000
    assert recipe.training.num_rows == 128


def test_recipes_of_one_budget_differ_in_what_their_names_say() -> None:
    shared, forward, backward, words = (
        read_recipe(Recipe, RECIPES / "encoders" / f"{name}.toml", [])
        for name in ("taglm-shared", "taglm-forward", "taglm-backward", "word-ids")
    )
    lstm, training = shared.model.lstm, shared.training
    assert (lstm.cell_dim, lstm.proj_dim) == (1024, 128)
    assert training.steps is not None
    assert training.steps * training.num_rows * training.unroll_steps == 20_000_000
    for recipe, direction in ((forward, "forward"), (backward, "backward")):
        assert recipe.training.direction == direction
        same = training.model_copy(update={"direction": direction})
        assert recipe == shared.model_copy(update={"training": same})
    assert words == shared.model_copy(
        update={"input": "words", "model": shared.model.model_copy(update={"char_encoder": words.model.char_encoder})}
    )


def test_abbreviations_belong_to_the_generic_language() -> None:
    data = DataSettings(language="generic", abbreviations="la.txt", tokenized=True)
    assert data.rules.language == "generic:la.txt"
    with pytest.raises(ValueError, match="abbreviations are for language=generic; the language en has its own"):
        DataSettings(abbreviations="la.txt")


HOSTILE = {
    "nested lists": "a=" + "[" * 5000,
    "dots": "a" + ".a" * 20_000 + "=1",
    "digits": "a=" + "1" * 5000,
    "large": "# " + "x" * (1 << 18),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_toml_that_would_exhaust_the_parser_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "recipe.toml").write_text(content, "utf-8")
    with pytest.raises(ConfigError, match=r"recipe\.toml: not TOML: ") as error:
        read_recipe(Recipe, tmp_path / "recipe.toml", ())
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("override", ["a" + ".a" * 20_000 + "=1", "training.steps=" + "[" * 5000, f"a={'1' * 5000}"])
def test_overrides_that_would_exhaust_the_parser_are_rejected(tmp_path: Path, override: str) -> None:
    (tmp_path / "recipe.toml").write_text('[data]\ntrain = "a.txt"\n', "utf-8")
    with pytest.raises(ConfigError):
        read_recipe(Recipe, tmp_path / "recipe.toml", [override])


def test_of_many_unknown_keys_a_few_are_named(tmp_path: Path) -> None:
    tables = "".join(f"[t{number}]\n" for number in range(20_000))
    (tmp_path / "recipe.toml").write_text(tables, "utf-8")
    with pytest.raises(ConfigError, match=r"t0: there is no such key; .*; and 19,\d\d\d more$") as error:
        read_recipe(Recipe, tmp_path / "recipe.toml", ())
    assert len(str(error.value)) < 2000
