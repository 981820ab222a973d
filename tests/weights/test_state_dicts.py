"""Pickled state dicts that are damaged."""

import contextlib
import pickle
from pathlib import Path

import pytest
import torch

from elmokit.errors import WeightsError
from elmokit.weights.state_dicts import load_state_dict


@pytest.mark.parametrize("zipped", [True, False])
def test_no_damage_ends_in_an_error_that_is_not_ours(tmp_path: Path, *, zipped: bool) -> None:
    path = tmp_path / "a.pth"
    torch.save({"weight": torch.ones(2, 2)}, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    assert torch.equal(load_state_dict(path)["weight"], torch.ones(2, 2))
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with contextlib.suppress(WeightsError):
            load_state_dict(path)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AssertionError("storage key '1' not found"), r"damaged one \(storage key '1' not found\); download it again"),
        (EOFError(), r"damaged one \(EOFError\)"),
        (pickle.UnpicklingError(), r"not a plain state dict.*\(UnpicklingError\)"),
    ],
)
def test_every_error_of_torch_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def load(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(WeightsError, match=message):
        load_state_dict(tmp_path / "a.pth")


def test_other_values_than_tensors_are_rejected(tmp_path: Path) -> None:
    torch.save([torch.ones(1)], tmp_path / "a.pth")
    with pytest.raises(WeightsError, match="holds a list; expected a state dict"):
        load_state_dict(tmp_path / "a.pth")
