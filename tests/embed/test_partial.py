"""The folder of an unfinished output, when it comes from someone else."""

import errno
import json
from pathlib import Path

import pytest

from elmokit.embed.partial import Done, Partial, open_partial, partial_folder
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


def fail_to_write() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def run_until_full(target: Path, num_safe: int, *, resume: bool) -> None:
    """Save some lines, then fail to write."""
    with open_partial(target, JOB, reserved={"vectors": 0}, resume=resume, replace=False) as partial:
        if num_safe:
            partial.commit(Done(num_safe, 9, 0), state=None)
        with partial.explained():
            fail_to_write()


def run_without_journal(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail while the first lines are saved."""
    with open_partial(target, JOB, reserved={"vectors": 0}, resume=True, replace=False) as partial:
        monkeypatch.setattr(partial, "_write_journal", fail_to_write)
        partial.commit(Done(3, 9, 0), state=None)


@pytest.mark.parametrize(("num_safe", "resume"), [(0, True), (3, True), (3, False)])
def test_lines_are_said_to_be_saved_only_if_they_are(tmp_path: Path, num_safe: int, resume: bool):
    with pytest.raises(OutputError, match="No space left on device") as error:
        run_until_full(tmp_path / "out.npy", num_safe, resume=resume)
    saved = bool(num_safe) and resume
    assert ("3 lines are saved: the same command resumes after them" in str(error.value)) == saved
    assert (tmp_path / "out.npy.partial").exists() == saved


def test_a_first_step_that_was_not_saved_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(OutputError) as error:
        run_without_journal(tmp_path / "out.npy", monkeypatch)
    assert "saved" not in str(error.value)
    assert not (tmp_path / "out.npy.partial").exists()


def test_an_interrupt_right_after_the_journal_keeps_the_finished_lines(tmp_path, monkeypatch):
    write = Partial._write_journal

    def write_then_interrupt(partial: Partial) -> None:
        write(partial)
        if partial.done.lines:
            raise KeyboardInterrupt

    monkeypatch.setattr(Partial, "_write_journal", write_then_interrupt)
    target = tmp_path / "out.npy"
    with (
        pytest.raises(KeyboardInterrupt),
        open_partial(target, {}, reserved={"part": 0}, resume=True, replace=False) as partial,
    ):
        partial.commit(Done(lines=7), state=None)
    assert json.loads((partial_folder(target) / "job.json").read_text())["done"]["lines"] == 7


@pytest.mark.parametrize(
    "content",
    [
        *("[]", "3", "{}", "null", "[" * 5000, '{"job": {}, "done": {}, "sizes": {}}'),
        '{"job": [], "done": {"lines": 1, "tokens": 1, "cut_words": 0}, "sizes": {}}',
        '{"job": {}, "done": {"lines": -1, "tokens": 1, "cut_words": 0}, "sizes": {}}',
        '{"job": {}, "done": {"lines": "1", "tokens": 1, "cut_words": 0}, "sizes": {"vectors": null}}',
    ],
)
def test_json_that_is_no_journal_is_rejected(tmp_path: Path, content: str):
    folder = tmp_path / "out.npy.partial"
    folder.mkdir()
    (folder / "job.json").write_text(content)
    with (
        pytest.raises(OutputError, match=r"job\.json: cannot be read \(.*\); remove the folder"),
        open_partial(tmp_path / "out.npy", JOB, reserved={"vectors": 0}, resume=True, replace=True),
    ):
        pytest.fail("it was taken for a journal")
