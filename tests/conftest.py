"""Fixtures and settings of all tests: real data, small models in the published format, one torch thread, hypothesis."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from published import PublishedModel, make_published

from elmokit.integrations import allennlp_files

DEFAULT_DATA_DIR = Path(__file__).resolve().parents[2] / "shared" / "data"

# No deadline, because a slow machine is not a failure. In CI the examples are the same on every run. `scripts/check
# --slow` tries more of them.
EXAMPLES = int(os.environ.get("ELMOKIT_EXAMPLES", "25"))
settings.register_profile("local", deadline=None, max_examples=EXAMPLES)
settings.register_profile("ci", deadline=None, max_examples=EXAMPLES, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session", autouse=True)
def _fast_disk() -> Iterator[None]:
    """Do not wait for the disk: no test survives a loss of power, and there are thousands of small files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    """Use one torch thread: the models of the tests are tiny, and more threads only cost time."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_products() -> Iterator[None]:
    """Undo `elmokit.runs.onednn.use_onednn_products`, which the verbs call for their process."""
    switch = getattr(torch.backends.mkldnn, "matmul", None)
    before = None if switch is None else switch.fp32_precision
    yield
    if switch is not None and switch.fp32_precision != before:
        switch.fp32_precision = before


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of published datasets and fixtures; skip the test if it is absent."""
    folder = Path(os.environ.get("ELMOKIT_DATA", DEFAULT_DATA_DIR))
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder}; set ELMOKIT_DATA to the folder that holds fixtures/bilm_skip")
    return folder


@pytest.fixture(scope="session")
def published_model(tmp_path_factory: pytest.TempPathFactory) -> PublishedModel:
    """Return a small model in the published format in which every part of the biLM has an effect, also the clips."""
    return make_published(tmp_path_factory.mktemp("published"))


@pytest.fixture
def no_install(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo `elmokit.integrations.allennlp.install`: leave no module of AllenNLP's name and no folder behind."""
    monkeypatch.setattr(allennlp_files, "_folder", None)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "allennlp"]:
        del sys.modules[name]
