"""Models by name from a hub on loopback: announced, cached, offline-safe; failures in one message."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from published import PublishedModel
from tiny_hub import COMMIT, TinyHub, run_hub

from elmokit.embed.embedder import Embedder
from elmokit.errors import ElmokitWarning, MissingExtraError, OutputError, WeightsError
from elmokit.weights.source import load_saved

hub_library = pytest.importorskip("huggingface_hub", reason="needs the extra hub")
pytest.importorskip("huggingface_hub.constants")

SENTENCES = [["The", "bank"]]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published_model: PublishedModel) -> Iterator[TinyHub]:
    """Run a hub with one model; the client's cache is empty, and the working directory has no folder of its name."""
    monkeypatch.chdir(tmp_path)
    with run_hub() as hub:
        Embedder.from_pretrained(published_model.pair).save_pretrained(tmp_path / "saved")
        hub.repos["org/tiny"] = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
        hub.repos["org/tiny"]["training.log"] = b"not a file of the model"
        constants = hub_library.constants
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        downloads = "huggingface_hub.file_download"  # old versions keep a copy there
        monkeypatch.setattr(f"{downloads}.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)  # old versions lack it
        monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None, raising=False)
        yield hub


def load(name: str = "org/tiny", **options: str) -> Embedder:
    return Embedder.from_pretrained(name, state="reset", **options)  # type: ignore[arg-type]


def test_a_download_is_announced_and_then_cached(hub: TinyHub, tmp_path: Path) -> None:
    with pytest.warns(
        ElmokitWarning, match=rf"downloading org/tiny at {COMMIT[:12]} from {hub.url}: 4 files, [\d,]+ bytes"
    ):
        embedder = load()
    expected = Embedder.from_pretrained(tmp_path / "saved", state="reset").embed_layers(SENTENCES)[0]
    assert (embedder.embed_layers(SENTENCES)[0] == expected).all()
    assert not any("training.log" in request for request in hub.requests)
    hub.requests.clear()
    assert (load().embed_layers(SENTENCES)[0] == expected).all()
    assert (load(revision=COMMIT).embed_layers(SENTENCES)[0] == expected).all()
    assert hub.requests == []


def test_a_branch_is_asked_for_and_taken_from_the_cache_if_the_hub_is_down(hub: TinyHub) -> None:
    with pytest.warns(ElmokitWarning, match="downloading"):
        load(revision="main")
    hub.repos.clear()
    load()  # without a revision the hub is not asked
    with pytest.warns(ElmokitWarning, match=r"org/tiny cannot be downloaded from .* The copy in the cache is used"):
        load(revision="main")


@pytest.mark.usefixtures("hub")
@pytest.mark.filterwarnings("ignore:downloading")
def test_a_hub_that_is_down_or_lacks_the_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WeightsError, match=r"org/other cannot be downloaded from http://127.* check the name"):
        load("org/other")
    monkeypatch.setattr(hub_library.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(WeightsError, match=r"org/tiny cannot be downloaded from http://127\.0\.0\.1:9"):
        load()


@pytest.mark.filterwarnings("ignore:downloading")
def test_a_truncated_file_is_an_error_and_nothing_is_left_to_load(
    hub: TinyHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client waits before it tries again
    hub.cut = 10
    with pytest.raises(WeightsError, match="org/tiny cannot be downloaded"):
        load()
    hub.cut = 0
    assert load().num_layers == 3


def test_a_folder_of_the_same_name_comes_first(hub: TinyHub, tmp_path: Path) -> None:
    (tmp_path / "org").mkdir()
    with pytest.raises(WeightsError, match="org/tiny: does not exist"):
        load_saved("org/tiny")
    assert hub.requests == []


def test_a_pushed_model_comes_back_the_same(hub: TinyHub, published_model: PublishedModel) -> None:
    embedder = Embedder.from_pretrained(published_model.pair, state="reset")
    url = embedder.push_to_hub("org/new", description="A tiny model.")
    assert url.startswith(hub.url)
    assert b"A tiny model." in hub.repos["org/new"]["README.md"]
    with pytest.warns(ElmokitWarning, match="downloading org/new"):
        again = load("org/new")
    # Not bit for bit: mapped weights may be aligned otherwise than those in memory.
    np.testing.assert_allclose(again.embed_layers(SENTENCES)[0], embedder.embed_layers(SENTENCES)[0], atol=1e-5)
    with pytest.raises(OutputError, match="'new' is no name on a hub; expected org/name"):
        embedder.push_to_hub("new")


def test_a_revision_needs_a_name_on_a_hub_and_the_extra(
    published_model: PublishedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError, match="revision 'main' is given with two files"):
        Embedder.from_pretrained(published_model.pair, revision="main")
    with pytest.raises(WeightsError, match="revision 'main' is given, but this is no model on a hub"):
        load(str(tmp_path), revision="main")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    monkeypatch.setattr("elmokit.weights.hub.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[hub\]'"):
        load(revision="main")
