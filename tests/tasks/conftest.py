"""A tiny biLM and static vectors for runs of the toy task."""

from pathlib import Path

import pytest
import torch
from toy import toy_model
from toy_task import (
    verses,
)

from elmokit.model.bilm import BiLM
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedBiLM


@pytest.fixture
def bilm(tmp_path: Path) -> str:
    torch.manual_seed(3)
    config = toy_model()
    save_folder(SavedBiLM(config, dict(BiLM(config).state_dict())), tmp_path / "bilm")
    return str(tmp_path / "bilm")


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    words = sorted({word for one in verses(60, seed=1) for word in one.tokens})
    lines = [f"{word} {i / 10} {-i / 7} 0.5\n" for i, word in enumerate(words)]
    (tmp_path / "vectors.txt").write_text("".join(lines), "utf-8")
    return str(tmp_path / "vectors.txt")
