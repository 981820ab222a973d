"""Texts of a run: which files are read, and what is left out of them."""

import json
from pathlib import Path

import pytest
from processes import run_alone
from toy import TEXT, toy_recipe

from elmokit.errors import ConfigError, ElmokitWarning, InputError
from elmokit.pretrain.recipe import DataSettings, Recipe

LINES = TEXT.splitlines()
LONG = "the old man and his daughter sold the fish near the church in town every morning"


def make_recipe(folder: Path, **data: str) -> Recipe:
    (folder / "train.txt").write_text("\n".join([*LINES[:8], LONG, *LINES[8:]]), "utf-8")
    settings = DataSettings(train=(str(folder / "train.txt"),), tokenized=True, **data)
    return toy_recipe(steps=4).model_copy(update={"data": settings})


def test_sentences_of_a_test_set_are_left_out_and_the_card_says_so(tmp_path: Path) -> None:
    test_set = tmp_path / "test.tsv"
    test_set.write_text(f"7\t{LONG.upper()}!\n", "utf-8")
    model = run_alone(make_recipe(tmp_path, exclude=str(test_set)), tmp_path / "run")
    meta = json.loads((tmp_path / "run" / "text" / "corpus.json").read_text("utf-8"))
    assert meta["num_sentences"] == len(LINES)
    assert [(file["source"]["name"], file["num_left_out"]) for file in meta["excluded"]] == [(str(test_set), 1)]
    card = (model / "README.md").read_text("utf-8")
    assert "because a test set has them or shares 13 words in a row with them: 1 (test.tsv 1)." in card
    assert "exclude" in json.loads((tmp_path / "run" / "recipe.json").read_text("utf-8"))["data"]


def test_a_run_is_resumed_only_with_the_same_exclusion(tmp_path: Path) -> None:
    test_set = tmp_path / "test.txt"
    test_set.write_text(LONG, "utf-8")
    recipe = make_recipe(tmp_path, exclude=str(tmp_path / "te*.txt"))
    run_alone(recipe, tmp_path / "run")
    with pytest.raises(ConfigError, match="different text"):
        run_alone(make_recipe(tmp_path), tmp_path / "run")
    test_set.unlink()
    with pytest.warns(ElmokitWarning, match=r"test\.txt is not there any more"):
        run_alone(recipe, tmp_path / "run")


def test_a_missing_test_set_is_an_error_before_text_is_prepared(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.txt: no such file"):
        run_alone(make_recipe(tmp_path, exclude=str(tmp_path / "absent.txt")), tmp_path / "run")
    assert not (tmp_path / "run" / "text").exists()
