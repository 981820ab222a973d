"""A small model on disk for the libraries of `make integrations`."""

from pathlib import Path

import pytest
import torch
from toy import toy_model

from elmokit.embed.embedder import Embedder
from elmokit.model.bilm import BiLM


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a small model of width 12."""
    folder: Path = tmp_path_factory.mktemp("model") / "toy"
    torch.manual_seed(3)
    Embedder(BiLM(toy_model())).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def embedder(model: str) -> Embedder:
    return Embedder.from_pretrained(model)
