"""One process at a time in a folder."""

import errno
from pathlib import Path

import pytest

from elmokit.errors import ElmokitWarning, OutputError
from elmokit.locking import locked


def test_a_second_holder_is_refused(tmp_path: Path):
    with (
        locked(tmp_path, work="painting it"),
        pytest.raises(OutputError, match="another process is painting it"),
        locked(tmp_path, work="painting it"),
    ):
        pytest.fail("both hold the lock")


def test_a_lock_is_free_after_its_block_however_that_ends(tmp_path: Path):
    with pytest.raises(KeyError), locked(tmp_path, work="working"):
        raise KeyError
    with locked(tmp_path, work="working"):
        pass


def test_a_file_system_without_locks_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.warns(ElmokitWarning, match="no locks"), locked(tmp_path, work="working"):
        pass


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(OutputError, match="cannot be written"), locked(tmp_path / "none", work="working"):
        pytest.fail("a lock in no folder")
