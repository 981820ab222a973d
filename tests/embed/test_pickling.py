"""Embedders as bytes: pickle, copies, torch.save; and the same vectors in other processes."""

import copy
import io
import pickle
import shutil
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from published import PublishedModel
from torch.utils.data import DataLoader, Dataset

from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError, WeightsError
from elmokit.integrations.allennlp import ElmoEmbedder
from elmokit.weights.source import build_bilm, load_saved

SENTENCES = [["The", "bank", "closed", "."], ["Play"], [], ["Children", "play", "outside", "the", "bank"]]
TEXTS = [f"It closed {number} times. We {'play ' * (number % 7)}." for number in range(50)]
OPTIONS = [{}, {"precision": "int8", "language": "de"}, {"state": "reset"}]


def through_pickle(embedder: Embedder) -> Embedder:
    return pickle.loads(pickle.dumps(embedder))


def through_torch(embedder: Embedder) -> Embedder:
    buffer = io.BytesIO()
    torch.save(embedder, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def assert_same_vectors(found: Embedder, expected: Embedder) -> None:
    for left, right in zip(found.embed_layers(SENTENCES), expected.embed_layers(SENTENCES), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture(params=["on disk", "in memory"])
def make(request: pytest.FixtureRequest, published_model: PublishedModel):
    """Build an embedder with some options."""
    if request.param == "on disk":
        return lambda **options: Embedder.from_pretrained(published_model.pair, **options)
    return lambda **options: Embedder(build_bilm(load_saved(published_model.pair)), **options)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("send", [through_pickle, copy.deepcopy, through_torch])
def test_a_copy_has_the_same_options_and_vectors(make, send, options) -> None:
    embedder = make(**options)
    received = send(embedder)
    assert repr(received) == repr(embedder)
    assert_same_vectors(received, embedder)


def test_what_was_carried_travels(make) -> None:
    embedder = make(state="carry")
    embedder.embed_layers(SENTENCES)
    received, copied = through_pickle(embedder), copy.deepcopy(embedder)
    expected = embedder.embed_layers(SENTENCES)[0]
    np.testing.assert_array_equal(received.embed_layers(SENTENCES)[0], expected)
    np.testing.assert_array_equal(copied.embed_layers(SENTENCES)[0], expected)


def test_equal_embedders_give_equal_bytes(make) -> None:
    embedder, other, used = make(), make(), make()
    used.embed_layers(SENTENCES)
    assert pickle.dumps(embedder) == pickle.dumps(other) == pickle.dumps(used)
    assert pickle.dumps(through_pickle(embedder)) == pickle.dumps(embedder)
    assert pickle.dumps(make(state="reset")) != pickle.dumps(embedder)


def test_a_deep_copy_shares_no_weights(make) -> None:
    embedder = make()
    copied = copy.deepcopy(embedder)
    addresses = {tensor.data_ptr() for tensor in embedder.bilm.state_dict().values()}
    assert addresses.isdisjoint(tensor.data_ptr() for tensor in copied.bilm.state_dict().values())


def test_a_model_on_disk_is_pickled_as_its_name_or_path(
    published_model: PublishedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = pickle.dumps(Embedder.from_pretrained())
    assert len(bundled) < 2000
    assert b"en-small" in bundled
    assert str(tmp_path).encode() not in bundled
    Embedder.from_pretrained(published_model.pair).save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(Embedder.from_pretrained("model"))
    assert pickled == pickle.dumps(Embedder.from_pretrained(tmp_path / "model"))
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).name == str((tmp_path / "model").resolve())


def test_a_model_that_is_gone_or_was_changed_is_reported(published_model: PublishedModel, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    embedder = Embedder.from_pretrained(published_model.pair)
    embedder.save_pretrained(folder)
    pickled = pickle.dumps(Embedder.from_pretrained(folder))
    shutil.rmtree(folder)
    with pytest.raises(WeightsError, match=r"needs its model at .*model, which cannot be loaded"):
        pickle.loads(pickled)
    bilm = build_bilm(load_saved(published_model.pair))
    with torch.no_grad():
        bilm.forward_lstm.layers[0].bias += 0.1
    Embedder(bilm).save_pretrained(folder)
    with pytest.raises(WeightsError, match=r"but the pickled Embedder was made from [0-9a-f]{12}…; put the old model"):
        pickle.loads(pickled)


def test_the_embedder_of_allennlp_can_be_pickled_and_copied(published_model: PublishedModel) -> None:
    embedder = ElmoEmbedder(*published_model.pair, state="reset")
    expected = embedder.embed_sentence(SENTENCES[0])
    for received in (pickle.loads(pickle.dumps(embedder)), copy.deepcopy(embedder)):
        np.testing.assert_array_equal(received.embed_sentence(SENTENCES[0]), expected)


class Embedded(Dataset):
    """Sentences that a data loader's worker embeds."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def __len__(self) -> int:
        return len(SENTENCES)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.embedder.embed_layers([SENTENCES[index]])[0])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # on one core
@pytest.mark.parametrize("make", ["on disk", pytest.param("in memory", marks=pytest.mark.slow)], indirect=True)
def test_spawned_workers_of_a_data_loader_give_the_same_vectors(make) -> None:
    embedder = make()
    loader = DataLoader(Embedded(embedder), batch_size=None, num_workers=2, multiprocessing_context="spawn")
    for found, sentence in zip(loader, SENTENCES, strict=True):
        np.testing.assert_array_equal(found.numpy(), embedder.embed_layers([sentence])[0])


@pytest.mark.slow
def test_joblib_workers_give_the_same_vectors(make) -> None:
    embedder = make()
    found = joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(embedder.embed_layers)([s]) for s in SENTENCES)
    for (layers,), sentence in zip(found, SENTENCES, strict=True):
        np.testing.assert_array_equal(layers, embedder.embed_layers([sentence])[0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("precision", "num_processes"),
    [("int8", 1), *(pytest.param(precision, 2, marks=pytest.mark.slow) for precision in ("fp32", "int8"))],
)
def test_a_pool_of_processes_encodes_the_same_bits(
    published_model: PublishedModel, precision: str, num_processes: int
) -> None:
    embedder = Embedder.from_pretrained(published_model.pair, precision=precision)
    expected = embedder.encode(TEXTS, batch_size=8)
    with embedder.start_multi_process_pool(["cpu"] * num_processes) as pool:
        np.testing.assert_array_equal(embedder.encode(TEXTS, batch_size=8, pool=pool), expected)
        tensor = embedder.encode(TEXTS[0], pool=pool, convert_to_tensor=True)
    np.testing.assert_array_equal(tensor.numpy(), embedder.encode(TEXTS[0]))


@pytest.mark.slow
def test_a_list_of_devices_starts_a_pool_for_one_call(published_model: PublishedModel) -> None:
    embedder = Embedder.from_pretrained(published_model.pair)
    expected = embedder.encode(TEXTS, batch_size=8)
    np.testing.assert_array_equal(embedder.encode(TEXTS, batch_size=8, device=["cpu", "cpu"]), expected)


def test_a_pool_cannot_carry_a_state(published_model: PublishedModel) -> None:
    with pytest.raises(InputError, match="state 'carry'"):
        Embedder.from_pretrained(published_model.pair, state="carry").start_multi_process_pool(["cpu"])
