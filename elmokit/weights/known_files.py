"""Published weight files, known by name, size and hash."""

from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import WeightsError
from elmokit.weights.sums import SHORT_HASH, sha256


@dataclass(frozen=True)
class PublishedFile:
    """A weights file that was published, known by its hash."""

    name: str
    num_bytes: int
    sha256: str


PUBLISHED_FILES = (
    PublishedFile(
        name="elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5",
        num_bytes=54_402_456,
        sha256="747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229",
    ),
)


def published_name(sha256: str, num_bytes: int) -> str | None:
    """Return the name under which a file was published; None if it is unknown."""
    for known in PUBLISHED_FILES:
        if (known.sha256, known.num_bytes) == (sha256.lower(), num_bytes):
            return known.name
    return None


def recognize_download(path: Path) -> str | None:
    """Return the published name of a weights file; None if no file of this name or size was published.

    Raises:
        WeightsError: The file has the name of a published one, but not its size or its hash.
    """
    num_bytes = path.stat().st_size
    for known in PUBLISHED_FILES:
        if path.name != known.name and num_bytes != known.num_bytes:
            continue
        if num_bytes < known.num_bytes:
            raise WeightsError(
                f"{path}: has {num_bytes:,} bytes, the published file has {known.num_bytes:,}; the download was cut "
                "short, download the file again"
            )
        found = sha256(path)
        if (found, num_bytes) == (known.sha256, known.num_bytes):
            return known.name
        if path.name == known.name:
            raise WeightsError(
                f"{path}: has {num_bytes:,} bytes and SHA-256 {found[:SHORT_HASH]}…, the published file has "
                f"{known.num_bytes:,} bytes and {known.sha256[:SHORT_HASH]}…; the file was changed. Download it again, "
                "or give your own model another name"
            )
    return None
