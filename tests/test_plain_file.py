"""Files of ours in a folder from someone else: never opened through a link."""

from collections.abc import Callable
from pathlib import Path

import pytest

from elmokit.errors import OutputError
from elmokit.plain_file import open_at, open_end


@pytest.mark.parametrize("open_file", [lambda path: open_at(path, 0), open_end], ids=["at", "end"])
@pytest.mark.parametrize("target", ["precious", "absent"])
def test_a_link_is_rejected_and_its_target_unchanged(
    tmp_path: Path, open_file: Callable[[Path], object], target: str
) -> None:
    (tmp_path / "precious").write_bytes(b"dear")
    (tmp_path / "link").symlink_to(tmp_path / target)
    with pytest.raises(OutputError, match=r"link: is a symbolic link, but must be a plain file; remove the link"):
        open_file(tmp_path / "link")
    assert (tmp_path / "precious").read_bytes() == b"dear"
    assert not (tmp_path / "absent").exists()


def test_a_file_is_created_and_continued_at_its_end(tmp_path: Path) -> None:
    for part in (b"one", b"two"):
        with open_end(tmp_path / "file") as file:
            file.write(part)
    assert (tmp_path / "file").read_bytes() == b"onetwo"


def test_bytes_after_a_position_are_cut_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"whole, torn")
    with open_at(tmp_path / "file", 5) as file:
        file.write(b"!")
    assert (tmp_path / "file").read_bytes() == b"whole!"


def test_an_absent_folder_raises_the_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_end(tmp_path / "none" / "file")
