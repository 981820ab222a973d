"""Checkpoints: whole or not at all, and never fewer good ones than before."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from elmokit.errors import ElmokitWarning, OutputError, WeightsError
from elmokit.runs.checkpoint import (
    Checkpoint,
    checkpoints,
    facts_explained,
    load_checkpoint,
    load_newest,
    newest_facts,
    save_checkpoint,
)
from elmokit.weights.sums import write_sums


def make(step: int, size: int = 4) -> Checkpoint:
    return Checkpoint(step, {"model/a": torch.full((size,), float(step)), "b": torch.arange(3)}, {"seconds": step / 3})


def save(folder: Path, *steps: int, keep: int = 9) -> None:
    for step in steps:
        save_checkpoint(make(step), folder, keep=keep)


def steps(folder: Path) -> list[int]:
    return [int(place.name.removeprefix("step-")) for place in checkpoints(folder)]


def damage(folder: Path, step: int, file: str = "state.safetensors") -> None:
    path = folder / f"step-{step:09d}" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@contextmanager
def no_file_larger_than(num_bytes: int) -> Iterator[None]:
    """Limit the size of files, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_was_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    save(tmp_path, 3)
    found = load_newest(tmp_path)
    assert found.step == 3
    assert found.facts == {"seconds": 1.0}
    assert found.tensors.keys() == {"model/a", "b"}
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in make(3).tensors.items())


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "absent") is None


def test_the_newest_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 8, 9, 10, 100, keep=2)
    assert steps(tmp_path) == [10, 100]
    assert load_newest(tmp_path).step == 100


@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "SHA256SUMS"])
def test_a_damaged_newest_one_is_passed_over_with_a_warning(tmp_path: Path, file: str) -> None:
    save(tmp_path, 1, 2)
    damage(tmp_path, 2, file)
    with pytest.warns(ElmokitWarning, match=r"step-000000002.*the checkpoint before it"):
        assert load_newest(tmp_path).step == 1


def test_a_truncated_or_missing_file_is_damage_too(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3)
    (tmp_path / "step-000000003" / "state.safetensors").write_bytes(b"")
    (tmp_path / "step-000000002" / "state.json").unlink()
    with pytest.warns(ElmokitWarning) as warned:
        assert load_newest(tmp_path).step == 1
    assert len(warned) == 2


def test_no_intact_one_at_all_is_an_error_and_no_new_start(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    damage(tmp_path, 1)
    damage(tmp_path, 2)
    with pytest.warns(ElmokitWarning), pytest.raises(WeightsError, match="none of its 2 checkpoints is intact"):
        load_newest(tmp_path)


def test_damaged_later_ones_never_push_a_good_one_out(tmp_path: Path) -> None:
    save(tmp_path, 1, 20, 30)
    damage(tmp_path, 20)
    damage(tmp_path, 30)
    save(tmp_path, 2, keep=2)  # what a run does that had to go back to step 1
    assert steps(tmp_path) == [1, 2]


def test_a_step_saved_again_takes_the_place_of_the_damaged_one(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    damage(tmp_path, 2)
    save(tmp_path, 2)
    assert load_newest(tmp_path).step == 2


def test_a_full_disk_is_an_error_and_leaves_the_older_ones(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, keep=2)
    with no_file_larger_than(4096), pytest.raises(OutputError, match="step-000000003"):
        save_checkpoint(make(3, size=100_000), tmp_path, keep=2)
    assert steps(tmp_path) == [1, 2]
    assert load_newest(tmp_path).step == 2
    assert len(list(tmp_path.iterdir())) == 2  # nothing half done is left


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="name another run folder"):
        save_checkpoint(make(1), tmp_path / "file" / "checkpoints", keep=2)


def test_a_half_deleted_old_one_does_no_harm(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, keep=2)
    (tmp_path / "step-000000001" / "SHA256SUMS").unlink()
    assert load_newest(tmp_path).step == 2
    save(tmp_path, 3, keep=2)
    assert steps(tmp_path) == [2, 3]


@pytest.mark.parametrize(
    "content", ["[]", "3", "null", "{}", '{"step": "3"}', '{"step": -1}', '{"step": true}', "[" * 9999]
)
def test_facts_without_a_step_are_damage(tmp_path: Path, content: str) -> None:
    save(tmp_path, 3)
    place = tmp_path / "step-000000003"
    (place / "state.json").write_text(content, "utf-8")
    write_sums(place, ("state.safetensors", "state.json"))
    with pytest.raises(WeightsError, match=r"step-000000003: cannot be read"):
        load_checkpoint(place)
    assert newest_facts(tmp_path) is None


@pytest.mark.parametrize(
    "error", [KeyError("best"), TypeError("x"), ValueError("x"), AttributeError("x"), RuntimeError("Error(s) in\nload")]
)
def test_values_that_a_run_cannot_use_name_its_folder(tmp_path: Path, error: Exception) -> None:
    message = rf"{tmp_path}: its newest checkpoint is not one of this kind of run"
    with pytest.raises(WeightsError, match=message), facts_explained(tmp_path):
        raise error


@pytest.mark.parametrize("error", [WeightsError("own"), RuntimeError("can't allocate memory"), KeyboardInterrupt()])
def test_other_errors_pass(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as found, facts_explained(tmp_path):
        raise error
    assert found.value is error
