"""The folder of an unfinished output, when it comes from someone else."""

import json
from pathlib import Path

import pytest

from elmokit.embed.partial import open_partial
from elmokit.errors import OutputError

JOB = {"inputs": ["a.txt"]}


def write_journal(folder: Path, sizes: dict[str, int]) -> None:
    done = {"lines": 3, "tokens": 9, "cut_words": 0}
    (folder / "job.json").write_text(json.dumps({"job": JOB, "done": done, "sizes": sizes}))


@pytest.mark.parametrize("name", ["lock", "vectors"])
def test_a_link_in_the_folder_is_rejected_and_not_followed(tmp_path: Path, name: str):
    precious = tmp_path / "precious"
    precious.write_bytes(b"dear")
    (tmp_path / "out.npy.partial").mkdir()
    (tmp_path / "out.npy.partial" / name).symlink_to(precious)
    write_journal(tmp_path / "out.npy.partial", {"vectors": 0})
    with (
        pytest.raises(OutputError, match="symbolic link"),
        open_partial(tmp_path / "out.npy", JOB, reserved={"vectors": 0}, resume=True, replace=True),
    ):
        pytest.fail("a folder with a link was opened")
    assert precious.read_bytes() == b"dear"


def test_a_journal_cannot_name_files_outside_of_its_folder(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"dear")
    (tmp_path / "out.npy.partial").mkdir()
    write_journal(tmp_path / "out.npy.partial", {"../precious": 0})
    with open_partial(tmp_path / "out.npy", JOB, reserved={"vectors": 0}, resume=True, replace=False) as partial:
        assert partial.done.lines == 0
    assert precious.read_bytes() == b"dear"
