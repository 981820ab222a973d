"""Files and folders are written whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import pytest

from elmokit.atomic import atomic_file, atomic_folder, write_json
from elmokit.errors import OutputError

not_root = pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "result"
    with atomic_file(path) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(tmp_path) == ["result"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "result"
    path.write_text("old")
    with pytest.raises(error), atomic_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["result"]


def test_new_files_have_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic_file(tmp_path / "result") as temporary:
        temporary.write_text("new")
    assert stat.S_IMODE((tmp_path / "result").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with atomic_file(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("target", ["real", "absent", "folder"])
def test_a_link_that_is_not_followed_is_replaced_itself(tmp_path: Path, target: str) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    for name in ("file", "whole"):
        (tmp_path / name).symlink_to(target)
    write_json(tmp_path / "file", {"new": 1})
    (tmp_path / "whole").unlink()
    (tmp_path / "whole").symlink_to("folder")
    with atomic_folder(tmp_path / "whole", replace=True, follow_link=False) as temporary:
        (temporary / "new").touch()
    assert (tmp_path / "file").read_text() == '{\n  "new": 1\n}\n'
    assert not (tmp_path / "file").is_symlink()
    assert not (tmp_path / "whole").is_symlink()
    assert (names(tmp_path / "whole"), names(tmp_path / "folder")) == (["new"], ["old"])
    assert (tmp_path / "real").read_text() == "old"
    assert names(tmp_path) == ["file", "folder", "real", "whole"]


def test_a_directory_or_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "directory"), (tmp_path / "pipe", "device")):
        with pytest.raises(OutputError, match=f"is a {kind}; name a file"), atomic_file(path):
            pytest.fail("the block must not run")
    assert names(tmp_path) == ["pipe"]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    for context in (atomic_file(tmp_path / "no" / "x"), atomic_folder(tmp_path / "no" / "x", replace=False)):
        with pytest.raises(OutputError, match=r"no/x: cannot be written: No such file.*create the directory"), context:
            pytest.fail("the block must not run")


@not_root
def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="make the directory writable"), atomic_file(tmp_path / "x"):
        pytest.fail("the block must not run")


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_full_disk_is_told_and_other_failures_of_the_block_pass(tmp_path: Path, is_folder: bool) -> None:
    def target() -> object:
        return atomic_folder(tmp_path / "x", replace=False) if is_folder else atomic_file(tmp_path / "x")

    with pytest.raises(OutputError, match=r"x: cannot be written: No space left on device; free some space"), target():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError, match="input"), target():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "input")
    assert names(tmp_path) == []


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "model", replace=False) as temporary:
        (temporary / "a").write_text("new")
        assert not (tmp_path / "model").exists()
    assert (tmp_path / "model" / "a").read_text() == "new"
    assert names(tmp_path) == ["model"]


def test_a_folder_is_replaced_whole_and_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    with pytest.raises(OutputError, match="folder with files in it"), atomic_folder(tmp_path / "model", replace=False):
        pytest.fail("the block must not run")
    assert names(tmp_path / "model") == ["old"]
    with atomic_folder(tmp_path / "model", replace=True) as temporary:
        (temporary / "new").touch()
    assert names(tmp_path / "model") == ["new"]
    assert names(tmp_path) == ["model"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with atomic_folder(tmp_path / "model", replace=False) as temporary:
        (temporary / "new").touch()
    assert names(tmp_path / "model") == ["new"]


def test_an_exchange_that_fails_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    rename = Path.rename

    def fail_on_second(path: Path, target: Path) -> Path:
        if (path / "new").exists():
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_on_second)
    with pytest.raises(OutputError, match="Input/output error"), atomic_folder(tmp_path / "model", replace=True) as new:
        (new / "new").touch()
    assert names(tmp_path / "model") == ["old"]
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize(("is_folder", "is_there"), [(False, False), (True, False), (True, True)])
def test_names_that_cannot_be_flushed_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_folder: bool, is_there: bool
) -> None:
    target = tmp_path / "x"
    if is_there:
        target.mkdir()
        (target / "old").touch()
    fsync = os.fsync

    def fail_for_directory_of_target(handle: int) -> None:
        if os.fstat(handle).st_ino == tmp_path.stat().st_ino:
            raise OSError(errno.EIO, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fail_for_directory_of_target)
    writing = atomic_folder(target, replace=is_there) if is_folder else atomic_file(target)
    with pytest.raises(OutputError, match="x: cannot be written: Input/output error"), writing as new:
        (new / "new").touch() if is_folder else new.write_text("new")
    assert names(tmp_path) == (["x"] if is_there else [])
    assert not is_there or names(target) == ["old"]


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("old")
    with pytest.raises(OutputError, match="is a file; name a folder"), atomic_folder(tmp_path / "model", replace=True):
        pytest.fail("the block must not run")
