"""One process at a time in a folder."""

import errno
import threading
from pathlib import Path

import pytest

from elmokit.errors import ElmokitWarning, OutputError
from elmokit.locking import folder_held, locked


def test_a_second_holder_is_rejected(tmp_path: Path):
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


def test_a_file_system_without_locks_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.warns(ElmokitWarning, match="no locks"), locked(tmp_path, work="working"):
        pass


def test_a_missing_folder_is_an_error(tmp_path: Path):
    with pytest.raises(OutputError, match="cannot be written"), locked(tmp_path / "none", work="working"):
        pytest.fail("a lock in no folder")


@pytest.mark.parametrize("content", [b"dear", b""])
def test_the_lock_file_is_never_emptied(tmp_path: Path, content: bytes):
    (tmp_path / "lock").write_bytes(content)
    with locked(tmp_path, work="working"):
        pass
    assert (tmp_path / "lock").read_bytes() == content


@pytest.mark.parametrize("target", ["precious", "absent"])
def test_a_lock_that_is_a_link_is_rejected_and_not_followed(tmp_path: Path, target: str):
    (tmp_path / "precious").write_bytes(b"dear")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / target)
    with (
        pytest.raises(OutputError, match=r"lock: is a symbolic link, but must be a plain file; remove the link"),
        locked(tmp_path / "run", work="working"),
    ):
        pytest.fail("a lock through a link")
    assert (tmp_path / "precious").read_bytes() == b"dear"
    assert not (tmp_path / "absent").exists()


def test_holders_of_a_folder_take_turns_and_leave_no_file(tmp_path: Path):
    entered, release, order = threading.Event(), threading.Event(), []

    def hold_second() -> None:
        entered.wait()
        with folder_held(tmp_path):
            order.append("second")

    second = threading.Thread(target=hold_second)
    second.start()
    with folder_held(tmp_path):
        entered.set()
        release.wait(0.2)
        order.append("first")
    second.join()
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_cannot_be_held(tmp_path: Path):
    with pytest.raises(OutputError, match="none: cannot be written"), folder_held(tmp_path / "none"):
        pytest.fail("a lock in no folder")
