"""Models inside .zip and .tar archives. An archive may be damaged or hostile.

Only regular files with the names of a model's files are unpacked, into a temporary folder, under their base names.
Nothing is unpacked from an archive that has links, paths that leave it, or claims far more data than it holds.
"""

import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from elmokit.errors import WeightsError
from elmokit.readers.archive import TAR_DAMAGE, ZIP_DAMAGE, CheckedTarInfo, HostileMemberError
from elmokit.weights.locating import FoundFiles, find_files

MAX_RATIO = 20  # trained weights shrink by a tenth, word lists by four
ALWAYS_ALLOWED = 2**20  # bytes: small archives may compress well
MAX_MEMBERS = 10_000
SUFFIXES = {".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2"}

_DAMAGE = (HostileMemberError, *TAR_DAMAGE, *ZIP_DAMAGE)


class _ModelTarInfo(CheckedTarInfo):
    """A header of an archive in which single files may be larger than those of a dataset."""

    max_bytes = 1 << 40


@dataclass(frozen=True)
class _Member:
    """A regular file of an archive."""

    path: PurePosixPath
    num_bytes: int
    open: Callable[[], IO[bytes]]


def is_archive(path: Path) -> bool:
    """Return True for a file that is a zip or a tar archive, by its content, or called one, by its name."""
    return path.is_file() and (path.suffix in SUFFIXES or zipfile.is_zipfile(path) or _is_tar(path))


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except _DAMAGE:
        return True  # compressed and cut short: opening it reports that


def find_in_archive(archive: Path) -> FoundFiles:
    """Return the model that an archive holds, without unpacking it."""
    with _explained(archive), _opened(archive) as members:
        return _find(members, archive)[0]


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Yield a temporary folder with the files of the model in an archive."""
    # The folder's name appears in error messages about its files.
    with tempfile.TemporaryDirectory(prefix=f"{archive.name.partition('.')[0]}-") as name:
        folder = Path(name)
        with _explained(archive), _opened(archive) as members:
            _, chosen = _find(members, archive)
            for member in chosen:
                _copy(member, folder / member.path.name, archive)
        yield folder


def _copy(member: _Member, target: Path, archive: Path) -> None:
    with member.open() as source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy)
    if target.stat().st_size != member.num_bytes:
        raise WeightsError(f"{archive}: {member.path} is cut short; download the archive again")


def _find(members: list[_Member], archive: Path) -> tuple[FoundFiles, list[_Member]]:
    """Return the one model of an archive, and the members of its folder."""
    _check(members, archive)
    folders: dict[PurePosixPath, list[_Member]] = {}
    for member in members:
        # macOS puts files with a leading dot beside the real ones.
        if not member.path.name.startswith(".") and "__MACOSX" not in member.path.parts:
            folders.setdefault(member.path.parent, []).append(member)
    found = {}
    for folder, inside in folders.items():
        names = [member.path.name for member in inside]
        if files := find_files(names, where=f"{archive}, folder {folder}" if str(folder) != "." else str(archive)):
            found[folder] = files
    if len(found) != 1:
        listed = ", ".join(str(folder) for folder in found) or "none"
        raise WeightsError(
            f"{archive}: expected one model, found {listed}; a model is options.json with one *.hdf5, a TensorFlow "
            "checkpoint, a folder saved by elmokit, or one of ELMoForManyLangs. Unpack the archive and name a folder"
        )
    ((folder, files),) = found.items()
    return files, folders[folder]


def _check(members: list[_Member], archive: Path) -> None:
    if len(members) > MAX_MEMBERS:
        raise WeightsError(f"{archive}: has {len(members):,} files; expected a model, which has a few")
    for member in members:
        if member.path.is_absolute() or ".." in member.path.parts or "\\" in str(member.path):
            raise WeightsError(
                f"{archive}: has the path {str(member.path)[:80]!r}, which leaves the archive; it is damaged or hostile"
            )
    size, total = archive.stat().st_size, sum(member.num_bytes for member in members)
    if total > max(MAX_RATIO * size, ALWAYS_ALLOWED):
        raise WeightsError(
            f"{archive}: claims {total:,} bytes in an archive of {size:,} bytes; the file is damaged or malicious"
        )


@contextmanager
def _opened(archive: Path) -> Iterator[list[_Member]]:
    """Yield the regular files of an archive; reject links and devices."""
    if archive.suffix == ".zip" or zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            yield [
                _Member(PurePosixPath(info.filename), info.file_size, lambda info=info: zipped.open(info))  # type: ignore[misc]
                for info in zipped.infolist()
                if not info.is_dir()
            ]
        return
    with tarfile.open(archive, tarinfo=_ModelTarInfo) as packed:
        members: list[_Member] = []
        for info in packed:  # not getmembers: a bomb is noticed before it is read through
            if len(members) > MAX_MEMBERS or info.size > MAX_RATIO * archive.stat().st_size + ALWAYS_ALLOWED:
                members.append(_tar_member(packed, info))
                break
            if info.isreg() and not info.issparse():
                members.append(_tar_member(packed, info))
            elif not info.isdir():
                raise WeightsError(
                    f"{archive}: {info.name[:80]!r} is a link, a device or a sparse file; expected regular files"
                )
        yield members


def _tar_member(packed: tarfile.TarFile, info: tarfile.TarInfo) -> _Member:
    def open_member() -> IO[bytes]:
        stream = packed.extractfile(info)
        assert stream is not None
        return stream

    return _Member(PurePosixPath(info.name), info.size, open_member)


@contextmanager
def _explained(archive: Path) -> Iterator[None]:
    try:
        yield
    except WeightsError:
        raise
    except _DAMAGE as error:
        # An encrypted archive is a RuntimeError, an unknown compression a NotImplementedError.
        raise WeightsError(
            f"{archive}: cannot be unpacked ({error}); download it again, or unpack it and name the folder"
        ) from error
