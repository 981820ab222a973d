"""Files of ours in a folder from someone else: never opened through a link."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elmokit.config import read_recipe
from elmokit.errors import ConfigError, OutputError, WeightsError
from elmokit.plain_file import open_at, open_end, read_plain
from elmokit.pretrain.recipe import Recipe
from elmokit.weights.options import read_json_object
from elmokit.weights.sums import read_sums


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


def test_a_regular_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_plain(tmp_path / "file") == b"content"
    assert read_plain(tmp_path / "file", max_bytes=3) == b"con"
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "absent")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_fifo_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read_plain(tmp_path / "pipe")
    recipe = tmp_path / "pipe"
    with pytest.raises(ConfigError, match=r"pipe: cannot be read: it is not a regular file; name a recipe"):
        read_recipe(Recipe, recipe, ())
    with pytest.raises(ConfigError, match=r"pipe: cannot be read: it is not a regular file"):
        read_json_object(recipe)
    os.mkfifo(tmp_path / "SHA256SUMS")
    with pytest.raises(WeightsError, match=r"SHA256SUMS: cannot be read: it is not a regular file; get the folder"):
        read_sums(tmp_path)
