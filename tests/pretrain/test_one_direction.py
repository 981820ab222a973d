"""Language models of one direction, two of which share nothing, and models that read word ids."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import run_alone, with_text
from toy import TEXT, toy_corpus, toy_recipe, toy_state

from elmokit import Embedder
from elmokit.embed.sources import open_layer_source
from elmokit.errors import InputError
from elmokit.pretrain.recipe import Recipe, VocabSettings
from elmokit.score.perplexity import measure
from elmokit.score.saved_lm import load_language_model

SENTENCES = [["the", "river", "rose"], ["a", "zebra"], ["fish"]]
NEGATIVES = [None, 20]


def first_step(folder: Path, direction: str, negatives: int | None):
    folder.mkdir()
    state = toy_state(folder, toy_recipe(direction=direction, negatives=negatives, dropout=0.0, clip_norm=None))
    loss = state.train_step(None, seconds=0.0, stop=False)
    return state, loss


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_one_direction_gets_the_gradients_that_it_gets_beside_the_other(tmp_path: Path, negatives: int | None) -> None:
    both, loss = first_step(tmp_path / "both", "both", negatives)
    for direction, other in (("forward", "backward"), ("backward", "forward")):
        alone, own_loss = first_step(tmp_path / direction, direction, negatives)
        assert getattr(own_loss, direction) == pytest.approx(getattr(loss, direction), rel=1e-6)
        assert getattr(own_loss, other) == 0
        assert own_loss.mean == getattr(own_loss, direction)
        expected, found = (dict(one.model.bilm.named_parameters()) for one in (both, alone))
        for name, weight in found.items():
            if name.startswith(f"{other}_lstm"):
                assert weight.grad is None
                assert not weight.any()
            elif name.startswith(f"{direction}_lstm"):
                torch.testing.assert_close(weight.grad, expected[name].grad)
        assert all(found[name].grad is not None for name in found if name.startswith("char_encoder"))


def test_a_model_of_one_direction_is_silent_in_the_other_and_two_make_a_pair(tmp_path: Path) -> None:
    folders = {}
    for direction in ("forward", "backward"):
        recipe = with_text(toy_recipe(steps=12, direction=direction), tmp_path)
        folders[direction] = run_alone(recipe, tmp_path / direction)
        looks = [json.loads(line) for line in (tmp_path / direction / "log.jsonl").read_text("utf-8").splitlines()]
        held_out = [look for look in looks if "perplexity" in look]
        assert all(look["perplexity"] == look[f"{direction}_perplexity"] for look in held_out)
        assert held_out
    forward, backward = (Embedder.from_pretrained(folder).embed_layers(SENTENCES) for folder in folders.values())
    pair = open_layer_source(f"taglm:{folders['forward']},{folders['backward']}")
    for left_LTD, right_LTD, both_LTD in zip(forward, backward, pair.iter_layers(SENTENCES), strict=True):
        assert not left_LTD[1:, :, 6:].any()
        assert not right_LTD[1:, :, :6].any()
        assert left_LTD[1:, :, :6].any()
        np.testing.assert_array_equal(both_LTD[:, :, :6], left_LTD[:, :, :6])
        np.testing.assert_array_equal(both_LTD[:, :, 6:], right_LTD[:, :, 6:])


def test_a_run_of_word_ids_leaves_a_model_that_embeds_and_predicts(tmp_path: Path) -> None:
    words = Recipe.model_validate(toy_recipe(steps=12, negatives=20).model_dump() | {"input": "words"})
    recipe = with_text(words, tmp_path).model_copy(update={"vocab": VocabSettings(max_size=40)})
    folder = run_alone(recipe, tmp_path / "run")
    loaded = load_language_model(folder)
    config = loaded.model.bilm.config
    assert config.words is not None
    assert (config.words.num_words, config.words.dim, config.char_encoder.filters) == (40, 6, ())
    assert loaded.dictionary is not None
    assert loaded.dictionary.words == loaded.vocab.words[3:]
    layers = Embedder.from_pretrained(folder).embed_layers([["zebra", "the", "unheard"], ["unheard", "of", "the"]])
    np.testing.assert_array_equal(layers[0][0, 0], layers[0][0, 2])  # out-of-vocabulary words are one
    np.testing.assert_array_equal(layers[0][0, 1], layers[1][0, 2])
    held_out = [
        json.loads(line)
        for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()
        if "forward_perplexity" in line
    ]
    (tmp_path / "text").mkdir()
    found = measure(loaded.model, toy_corpus(tmp_path / "text"), loaded.vocab, warm=loaded.start_state)
    assert found.forward == pytest.approx(held_out[-1]["forward_perplexity"], rel=1e-4)
    assert TEXT.split()[0] == "the"


def test_an_interrupted_run_of_word_ids_cannot_be_resumed_with_characters(tmp_path: Path) -> None:
    words = Recipe.model_validate(toy_recipe(steps=5).model_dump() | {"input": "words"})
    run_alone(with_text(words, tmp_path), tmp_path / "run")
    with pytest.raises(ValueError, match="input was words, now characters"):
        run_alone(with_text(toy_recipe(steps=9), tmp_path), tmp_path / "run")


def test_a_dictionary_that_is_not_the_vocabulary_has_no_perplexity(tmp_path: Path) -> None:
    words = Recipe.model_validate(toy_recipe(steps=5).model_dump() | {"input": "words"})
    loaded = load_language_model(run_alone(with_text(words, tmp_path), tmp_path / "run"))
    loaded.model.bilm.config = words.model_for(7)
    (tmp_path / "text").mkdir()
    with pytest.raises(InputError, match="a dictionary of its own"):
        measure(loaded.model, toy_corpus(tmp_path / "text"), loaded.vocab)
