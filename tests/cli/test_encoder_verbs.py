"""The verbs of the encoders: train, resume, info."""

import json
from pathlib import Path

import numpy as np
import pytest

from elmokit.cli import run
from elmokit.config import find_recipe
from elmokit.encoders.recipe import RECIPES, read_encoder_recipe

ENGLISH, GERMAN = "the cat sleeps\na dog runs\n" * 6, "die Katze schläft\nein Hund läuft\n" * 6
SIZES = {
    "cove": ["hidden_dim=4", "embedding_dim=3", "training.batch_size=4"],
    "context2vec": ["word_dim=3", "hidden_dim=4", "context_dim=5", "min_count=1", "training.batch_size=4"],
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    (tmp_path / "text.en").write_text(ENGLISH, "utf-8")
    (tmp_path / "text.de").write_text(GERMAN, "utf-8")
    np.savez(tmp_path / "vectors.npz", words=np.array(["the", "cat"]), vectors=np.ones((2, 6), dtype=np.float32))
    english, german = f"{tmp_path}/text.en", f"{tmp_path}/text.de"
    pairs = [f"source={english}", f"target={german}", f"dev_source={english}", f"dev_target={german}"]
    return {
        "cove": [*pairs, f"test_source={english}", f"test_target={german}", f"vectors={tmp_path}/vectors.npz"],
        "context2vec": [f"train={english}", f"dev={english}"],
    }


@pytest.mark.parametrize("kind", RECIPES)
def test_an_encoder_is_trained_and_described(kind: str, files, tmp_path: Path, capsys) -> None:
    args = [*files[kind], *SIZES[kind], "training.epochs=2", "training.evaluate_every=3"]
    assert run(["encoder", "train", kind, *args, "--run-dir", f"{tmp_path}/run"]) == 0
    shown = capsys.readouterr()
    assert "dev loss" in shown.err
    result = json.loads(shown.out)
    assert result["kind"] == kind
    assert (result.get("test_perplexity") is not None) == (kind == "cove")
    assert run(["encoder", "info", f"{tmp_path}/run/model", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["layers"], described["width"]) == ((2, 8) if kind == "cove" else (1, 5))


def test_wrong_settings_are_named_before_anything_is_read(capsys) -> None:
    assert run(["encoder", "train", "cove", "hiden_dim=3"]) == 1
    assert "did you mean hidden_dim?" in capsys.readouterr().err
    assert run(["encoder", "train", "elmo", "x=3"]) == 2
    assert run(["encoder", "train", "context2vec"]) == 1
    assert "names no train" in capsys.readouterr().err


@pytest.mark.parametrize("kind", RECIPES)
def test_the_bundled_recipes_have_the_published_sizes(kind: str) -> None:
    recipe = read_encoder_recipe(kind, find_recipe(kind, folder="encoders"), [])
    assert recipe == RECIPES[kind](training=recipe.training, **({"max_tokens": 15_000_000} if kind != "cove" else {}))
