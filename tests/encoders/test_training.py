"""Encoders are trained, resumed with the same bits, saved and loaded."""

import json
import math
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from elmokit.encoders.layer_sources import Context2VecLayers, CoVeLayers
from elmokit.encoders.progress import EncoderEvaluation, EncoderStep, Entry
from elmokit.encoders.recipe import Context2VecRecipe, CoVeRecipe, EncoderTraining
from elmokit.encoders.saved import is_encoder, load_encoder, load_published_cove
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.encoders.training import EncoderResult, read_result, train_encoder
from elmokit.errors import ConfigError, InputError, WeightsError

pytestmark = pytest.mark.long

ENGLISH = ["the cat sleeps", "the dog sleeps", "a cat runs", "a dog runs", "the small cat runs", "a small dog sleeps"]
GERMAN = [
    "die Katze schläft",
    "der Hund schläft",
    "eine Katze läuft",
    "ein Hund läuft",
    "die kleine Katze läuft",
    "ein kleiner Hund schläft",
]
SENTENCES = [["the", "cat", "sleeps"], ["a"], ["small", "zebra"], ["the", "dog", "runs", "a"]]


@pytest.fixture
def cove_recipe(tmp_path: Path) -> CoVeRecipe:
    for name, lines in (("en", ENGLISH), ("de", GERMAN)):
        (tmp_path / f"text.{name}").write_text("\n".join(lines * 3) + "\n", "utf-8")
    words = sorted({word for line in ENGLISH for word in line.split()})
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "vectors.npz", words=np.array(words), vectors=rng.normal(size=(len(words), 6)).astype(np.float32)
    )
    return CoVeRecipe(
        source=f"{tmp_path}/text.en",
        target=f"{tmp_path}/text.de",
        dev_source=f"{tmp_path}/text.en",
        dev_target=f"{tmp_path}/text.de",
        vectors=f"{tmp_path}/vectors.npz",
        hidden_dim=5,
        embedding_dim=4,
        training=EncoderTraining(batch_size=4, epochs=3, evaluate_every=5, learning_rate=0.5),
    )


@pytest.fixture
def context_recipe(tmp_path: Path) -> Context2VecRecipe:
    (tmp_path / "text").write_text("\n".join(ENGLISH * 5) + "\n", "utf-8")
    training = EncoderTraining(
        optimizer="adam", learning_rate=0.01, halve=False, batch_size=4, epochs=2, evaluate_every=5
    )
    return Context2VecRecipe(
        train=f"{tmp_path}/text",
        dev=f"{tmp_path}/text",
        word_dim=4,
        hidden_dim=5,
        context_dim=6,
        num_negatives=3,
        training=training,
    )


def train(recipe: CoVeRecipe | Context2VecRecipe, run_dir: Path, **options: object) -> Path | None:
    return None if train_encoder(recipe, run_dir, **options) is None else run_dir / "model"


@pytest.fixture(params=["cove", "context2vec"])
def recipe(request: pytest.FixtureRequest) -> CoVeRecipe | Context2VecRecipe:
    return request.getfixturevalue("cove_recipe" if request.param == "cove" else "context_recipe")


def test_the_dev_loss_falls_and_the_best_weights_are_saved(recipe, tmp_path: Path) -> None:
    entries: list[Entry] = []
    longer = recipe.model_copy(update={"training": recipe.training.model_copy(update={"epochs": 8})})
    folder = train(longer, tmp_path / "run", report=entries.append)
    losses = [entry.dev_loss for entry in entries if isinstance(entry, EncoderEvaluation)]
    assert min(losses) < losses[0] - 0.05
    assert any(isinstance(entry, EncoderStep) for entry in entries)
    assert folder is not None
    assert is_encoder(folder)
    assert load_encoder(folder).width == (10 if isinstance(recipe, CoVeRecipe) else 6)


def test_an_interrupted_run_ends_with_the_same_bits(recipe, tmp_path: Path) -> None:
    whole = train(recipe, tmp_path / "whole")
    stop = threading.Event()

    def stop_after_five(entry: Entry) -> None:
        if isinstance(entry, EncoderEvaluation) and entry.step == 5:
            stop.set()

    assert train(recipe, tmp_path / "run", report=stop_after_five, stop=stop) is None
    resumed = train(recipe, tmp_path / "run")
    expected, found = (load_file(folder / "model.safetensors") for folder in (whole, resumed))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def with_precision(recipe: CoVeRecipe | Context2VecRecipe, precision: str) -> CoVeRecipe | Context2VecRecipe:
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"precision": precision})})


def test_in_bfloat16_the_losses_are_nearly_those_of_float32(recipe, tmp_path: Path) -> None:
    losses: dict[str, list[float]] = {"fp32": [], "bf16": []}

    def note(entry: Entry, precision: str) -> None:
        if isinstance(entry, EncoderEvaluation):
            losses[precision].append(entry.dev_loss)

    folders = [
        train(with_precision(recipe, name), tmp_path / name, report=partial(note, precision=name)) for name in losses
    ]
    assert losses["fp32"][-1] < losses["fp32"][0] - 0.02, "nothing was learned, so it proves nothing"
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.01)
    for tensor in load_file(folders[1] / "model.safetensors").values():
        assert tensor.dtype == torch.float32


def test_an_interrupted_run_in_bfloat16_ends_with_the_same_bits(recipe, tmp_path: Path) -> None:
    test_an_interrupted_run_ends_with_the_same_bits(with_precision(recipe, "bf16"), tmp_path)


def test_a_run_that_dies_between_checkpoints_ends_with_the_same_bits(recipe, tmp_path: Path) -> None:
    whole = train(recipe, tmp_path / "whole")

    def die_in_the_second_evaluation(entry: Entry) -> None:
        if isinstance(entry, EncoderEvaluation) and entry.step == 10:
            raise RuntimeError("the machine died")

    with pytest.raises(RuntimeError, match="the machine died"):
        train(recipe, tmp_path / "run", report=die_in_the_second_evaluation)
    steps: list[int] = []
    resumed = train(recipe, tmp_path / "run", report=lambda entry: steps.append(entry.step))
    assert steps[0] == 5  # the checkpoint of the first evaluation
    expected, found = (load_file(folder / "model.safetensors") for folder in (whole, resumed))
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_other_settings_or_data_are_rejected(recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path / "run")
    other = recipe.model_copy(update={"training": recipe.training.model_copy(update={"seed": 1})})
    with pytest.raises(ConfigError, match="different settings"):
        train(other, tmp_path / "run")
    name = "source" if isinstance(recipe, CoVeRecipe) else "train"
    text = Path(getattr(recipe, name)[0])
    text.write_text(text.read_text("utf-8").replace("the cat", "a cat"), "utf-8")
    with pytest.raises(ConfigError, match="fingerprints"):
        train(recipe, tmp_path / "run")


def test_padding_and_batch_order_never_change_a_vector(recipe, tmp_path: Path) -> None:
    encoder = load_encoder(train(recipe, tmp_path / "run"))
    together = list(encoder.iter_layers(SENTENCES))
    for sentence, layers_LTD in zip(SENTENCES, together, strict=True):
        (alone,) = encoder.iter_layers([sentence])
        assert layers_LTD.shape == (encoder.num_layers, len(sentence), encoder.width)
        np.testing.assert_allclose(alone, layers_LTD, atol=1e-6)
    for layers_LTD, other in zip(reversed(together), encoder.iter_layers(SENTENCES[::-1]), strict=True):
        np.testing.assert_allclose(other, layers_LTD, atol=1e-6)
    assert encoder.fingerprint() == load_encoder(tmp_path / "run" / "model").fingerprint()


def test_pairs_must_have_the_same_number_of_lines(cove_recipe: CoVeRecipe, tmp_path: Path) -> None:
    path = tmp_path / "text.de"
    path.write_text(path.read_text("utf-8") + "noch eine Zeile\n", "utf-8")
    with pytest.raises(InputError, match=r"text\.de: more lines than .*text\.en"):
        train_encoder(cove_recipe, tmp_path / "run")


def test_missing_files_are_named(cove_recipe: CoVeRecipe, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no vectors; give vectors=FILE"):
        train_encoder(cove_recipe.model_copy(update={"vectors": None}), tmp_path / "run")
    with pytest.raises(ConfigError, match="names no dev"):
        train_encoder(Context2VecRecipe(train="x"), tmp_path / "run")
    with pytest.raises(ConfigError, match="only one of test_source and test_target"):
        train_encoder(cove_recipe.model_copy(update={"test_source": ("x",)}), tmp_path / "run")


def test_the_test_pairs_have_their_own_perplexity(cove_recipe: CoVeRecipe, tmp_path: Path) -> None:
    (tmp_path / "test.en").write_text("the cat sleeps\n", "utf-8")
    (tmp_path / "test.de").write_text("die Katze zirpt\n", "utf-8")
    files = {"test_source": (f"{tmp_path}/test.en",), "test_target": (f"{tmp_path}/test.de",)}
    result = train_encoder(cove_recipe.model_copy(update=files), tmp_path / "run")
    assert isinstance(result, EncoderResult)
    assert result.unknown_share == 1 / 4  # one of three words and the end
    written = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert written["test_perplexity"] == pytest.approx(math.exp(result.test_loss))
    assert written["dev_perplexity"] < written["test_perplexity"]
    assert written["epochs"] == result.step / -(-result.num_examples // cove_recipe.training.batch_size)
    assert read_result(tmp_path / "run" / "model") == written
    (tmp_path / "run" / "result.json").write_text('{"kind": "cove"}', "utf-8")  # of an older version
    assert read_result(tmp_path / "run" / "model") is None
    (tmp_path / "run" / "result.json").write_text("{", "utf-8")
    with pytest.raises(ConfigError, match=r"result\.json"):
        read_result(tmp_path / "run" / "model")
    (tmp_path / "run" / "model").rename(tmp_path / "moved")
    assert read_result(tmp_path / "moved") is None


def test_a_damaged_encoder_is_rejected(recipe, tmp_path: Path) -> None:
    folder = train(recipe, tmp_path / "run")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(WeightsError, match="SHA-256"):
        load_encoder(folder)


def test_the_published_cove_loads_and_code_in_a_pickle_never_runs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
    torch.save(lstm.state_dict(), tmp_path / "cove.pth")
    vectors = StaticVectors(["a", "b"], np.ones((2, 6), dtype=np.float32))
    encoder = load_published_cove(tmp_path / "cove.pth", vectors)
    (found,) = encoder.iter_layers([["a", "b", "zebra"]])
    inputs = torch.tensor([[[1.0] * 6, [1.0] * 6, [0.0] * 6]])
    np.testing.assert_allclose(found[1], lstm(inputs)[0][0].detach().numpy(), atol=1e-6)
    torch.save({"weight": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(WeightsError, match="is not a plain state dict"):
        load_published_cove(tmp_path / "evil.pth", vectors)
    assert not (Path.cwd() / "evil-was-here").exists()
    with pytest.raises(InputError, match="static vectors are 2 wide"):
        load_published_cove(tmp_path / "cove.pth", StaticVectors(["a"], np.ones((1, 2), dtype=np.float32)))


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("evil-was-here"),))


def test_layer_sources_name_what_they_are() -> None:
    assert (CoVeLayers.state, Context2VecLayers.state) == ("reset", "reset")
