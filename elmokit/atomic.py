"""Write a file or a folder whole or not at all.

Everything is written under a temporary name beside the target, flushed to the disk, and renamed. Whoever looks
sees the old content or the new one, never a part of either; of a folder that is replaced, for a moment none.
"""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import OutputError

ADVICE = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some of your quota, or write elsewhere",
    errno.EFBIG: "the file system or a limit (ulimit -f) allows no file so large; write elsewhere",
    errno.EACCES: "make the directory writable, or write elsewhere",
    errno.EPERM: "make the directory writable, or write elsewhere",
    errno.ENOENT: "create the directory first",
    errno.ENOTDIR: "a part of the path is a file; write elsewhere",
}
# A caller's block may also read other files, and a failure there is none of the target's. These are, for sure.
DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@contextmanager
def atomic_file(path: str | Path, *, follow_link: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; what is written there becomes ``path`` if the block succeeds.

    If ``path`` is a symbolic link, the file that it names is replaced, or the link itself without ``follow_link``.
    """
    target = _resolve(path, follow_link=follow_link)
    # Renaming onto a device or a pipe would replace it.
    if target.exists() and not (target.is_file() or target.is_symlink()):
        raise OutputError(f"{path}: is a {'directory' if target.is_dir() else 'device'}; name a file to write to")
    temporary = _beside(target)
    with explained(path):
        temporary.touch(exist_ok=False)
    try:
        with explained(path, only=DISK_FAILURES):
            yield temporary
        with explained(path):
            _flush(temporary)
            is_new = not target.exists()
            os.replace(temporary, target)
            try:
                _flush(target.parent)
            except OSError:
                if is_new:  # else the same command would find a file in its way
                    os.replace(target, temporary)
                raise
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write an object as a file of its own; a symbolic link in its place is replaced, not followed."""
    with atomic_file(path, follow_link=False) as new:
        new.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


@contextmanager
def atomic_folder(path: str | Path, *, replace: bool, follow_link: bool = True) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; it becomes ``path`` if the block succeeds.

    If ``path`` is a symbolic link, the folder that it names is replaced, or the link itself without ``follow_link``.
    An existing folder that is not empty is only replaced with ``replace``. It is moved aside for the moment of the
    exchange and moved back if that fails.
    """
    target = _resolve(path, follow_link=follow_link)
    with explained(path):
        if target.exists() and not target.is_dir():
            raise OutputError(f"{path}: is a file; name a folder to write to")
        if target.is_dir() and any(target.iterdir()) and not replace:
            raise OutputError(f"{path}: is a folder with files in it; name a new folder, or empty this one")
        temporary = _beside(target)
        temporary.mkdir()
    try:
        with explained(path, only=DISK_FAILURES):
            yield temporary
        with explained(path):
            for file in temporary.iterdir():
                _flush(file)
            _flush(temporary)
            exchange(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _resolve(path: str | Path, *, follow_link: bool) -> Path:
    """Follow symbolic links: to the end, or only those of the folders above."""
    return Path(os.path.realpath(path)) if follow_link else Path(os.path.realpath(Path(path).parent), Path(path).name)


def _beside(target: Path) -> Path:
    # Not `tempfile`: its files are private to the user whatever the umask says, and would stay so.
    return target.parent / f".elmokit-{secrets.token_hex(8)}.tmp"


def _flush(path: Path) -> None:
    """Wait until the disk has a file, or the names in a directory."""
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no directory
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def exchange(new: Path, target: Path) -> None:
    """Put ``new`` in the place of ``target``, which may be absent, and flush the names; undo both if one fails."""
    if target.is_symlink():
        target.unlink()
    old = _beside(target) if target.exists() else None
    if old is not None:
        target.rename(old)
    try:
        new.rename(target)
        _flush(target.parent)
    except BaseException:
        if not new.exists():
            target.rename(new)
        if old is not None:
            old.rename(target)
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def explained(path: str | Path, *, only: Collection[int] | None = None) -> Iterator[None]:
    """Turn a failure to write into an ``OutputError``; with ``only``, no failure but those error numbers."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        reason = error.strerror or str(error)
        advice = ADVICE.get(error.errno or 0, "write elsewhere")
        raise OutputError(f"{path}: cannot be written: {reason}; {advice}") from error


def remove_leftovers(directory: Path) -> None:
    """Delete what blocks that were killed left in a directory; nothing may be writing there meanwhile."""
    for left in directory.glob(".elmokit-*.tmp"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
