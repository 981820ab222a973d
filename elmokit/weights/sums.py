"""The hashes of a folder's files, in the form of ``sha256sum``: written last, checked first."""

import hashlib
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from elmokit.errors import ElmokitWarning, WeightsError
from elmokit.plain_file import read_plain

SUMS, CARD = "SHA256SUMS", "README.md"
MAX_SUMS_BYTES = 2**16
SHORT_HASH = 12


def sha256(path: Path) -> str:
    """Return the hash of a file, as ``sha256sum`` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identify_file(path: Path) -> tuple[int, int, int] | None:
    """Return what tells one state of a file from another: inode, size and time of the last change; None if absent."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Write down the hashes of these files of a folder."""
    (folder / SUMS).write_text("".join(f"{sha256(folder / name)}  {name}\n" for name in names), "utf-8")


def read_sums(folder: Path) -> dict[str, str]:
    """Read the hashes; a name among them may only be that of a file in the same folder."""
    path = folder / SUMS
    try:
        lines = read_plain(path, max_bytes=MAX_SUMS_BYTES).decode("utf-8").splitlines()
    except FileNotFoundError:
        raise WeightsError(
            f"{path}: missing, so the files cannot be checked; get the whole folder, or if you trust it, "
            f"run there: sha256sum $(ls | grep -e json -e safetensors -e vocab.txt) > {SUMS}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise WeightsError(f"{path}: cannot be read: {reason}; get the folder again") from error
    sums = {}
    for line in lines:
        match = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](.+)", line)
        if match is None:
            raise WeightsError(f"{path}: the line {line[:80]!r} is not one of sha256sum's; get the folder again")
        name = match[2]
        if re.search(r"[/\\:\0]", name) or name in (".", ".."):
            raise WeightsError(f"{path}: names {name[:80]!r}, which is outside the folder; expected plain file names")
        sums[name] = match[1].lower()
    return sums


def check_sum(folder: Path, name: str, sums: dict[str, str]) -> None:
    """Reject a file that is missing or does not have the recorded hash."""
    path = folder / name
    if name not in sums:
        raise WeightsError(f"{folder / SUMS}: has no line for {name}; get the folder again")
    if not path.is_file():
        raise WeightsError(f"{path}: missing; get the folder again")
    try:
        found = sha256(path)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror}") from error
    if found != sums[name]:
        raise WeightsError(
            f"{path}: its SHA-256 is {found[:SHORT_HASH]}…, {SUMS} says {sums[name][:SHORT_HASH]}…; "
            "the file was changed or damaged, get the folder again"
        )


def warn_of_changed_card(folder: Path, sums: dict[str, str]) -> None:
    """Warn if the model card is not the one that was saved. Cards of older versions have no hash."""
    path = folder / CARD
    if CARD in sums and path.is_file() and sha256(path) != sums[CARD]:
        warnings.warn(
            f"{path}: the model card was changed since the model was saved. If you changed it, write its hash anew: "
            f"run sha256sum {CARD} there, and put the line into {SUMS}",
            ElmokitWarning,
            stacklevel=3,
        )


def check_sums(folder: Path, names: Iterable[str]) -> None:
    """Check several files of a folder."""
    sums = read_sums(folder)
    for name in names:
        check_sum(folder, name, sums)
