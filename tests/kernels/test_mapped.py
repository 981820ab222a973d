"""Pages of mapped weights: given back only where the file still has what the tensor has."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmokit.kernels.mapped import release_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are looked at on Linux alone")
NUM_VALUES = 2**20


@pytest.fixture
def mapped(tmp_path: Path) -> Tensor:
    save_file({"weight": torch.arange(NUM_VALUES, dtype=torch.float32)}, tmp_path / "one.safetensors")
    with safe_open(tmp_path / "one.safetensors", framework="pt") as file:
        return file.get_tensor("weight")


def bytes_in_memory() -> int:
    """Return this process's memory of files alone, so that what Python does meanwhile does not count."""
    status = Path("/proc/self/status").read_text("utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssFile:"))


def test_pages_that_were_only_read_are_given_back_and_read_again(mapped: Tensor):
    total = mapped.double().sum()
    before = bytes_in_memory()
    assert release_pages(mapped)
    assert before - bytes_in_memory() > 3 * NUM_VALUES  # of 4; the first and last page may be shared
    assert mapped.double().sum() == total


def test_a_changed_tensor_keeps_its_changes(mapped: Tensor):
    assert mapped.sum() > 0
    mapped[NUM_VALUES // 2] = -5.0
    assert not release_pages(mapped)
    mapped.numpy()[7] = -6.0  # leaves no trace in the tensor's version
    assert not release_pages(mapped)
    assert mapped[[7, NUM_VALUES // 2]].tolist() == [-6.0, -5.0]


def test_memory_of_no_file_stays():
    ours = torch.ones(NUM_VALUES)
    assert not release_pages(ours)
    assert ours.sum() == NUM_VALUES
    assert not release_pages(torch.ones(3))
    assert not release_pages(torch.ones(NUM_VALUES // 2, 2).t())
