"""Unfinished output that survives a crash and can be resumed.

The folder OUT.partial beside OUT holds:

lock        held by the process that works in the folder
job.json    the journal: settings of the job, and its saved progress (lines, tokens, bytes per data file)
vectors …   data files, which only grow; bytes beyond the size in job.json are ignored
state-N     with state ``carry``, the LSTM state after line N

After each window the data files are flushed to disk, then job.json is replaced by rename. It therefore never counts
lines that are not on disk. At the end the finished file is renamed to OUT, and the folder is removed. An output of
several files is the folder itself, renamed.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from elmokit.atomic import ADVICE, atomic_file, exchange
from elmokit.errors import OutputError
from elmokit.locking import LOCK, locked
from elmokit.plain_file import read_plain

JOURNAL, STATE = "job.json", "state-"
OURS = (
    LOCK,
    JOURNAL,
    STATE,
    "vectors",
    "offsets",
    "token",
    "lines",
    "lengths",
    "finished",
    "index.json",
    ".elmokit-",
)  # how our files' names begin


@dataclass(frozen=True)
class Done:
    """Progress that a job has saved."""

    lines: int = 0
    tokens: int = 0
    cut_words: int = 0


class Partial:
    """The locked folder of an unfinished output, with its data files open for appending."""

    def __init__(self, target: Path, job: Mapping[str, Any], *, resume: bool) -> None:
        self.target = target
        self.resume = resume
        self.folder = partial_folder(target)
        self.done = Done()
        self.num_saved_lines = 0  # according to the journal on disk
        self.parts: dict[str, BinaryIO] = {}
        self.sizes: dict[str, int] = {}
        self._job = dict(job)

    @property
    def state_path(self) -> Path:
        """Path of the carried state after the last finished line."""
        return self.folder / f"{STATE}{self.done.lines}"

    def commit(self, done: Done, *, state: bytes | None) -> None:
        """Save everything written so far as finished."""
        with self.explained():
            for name, file in self.parts.items():
                file.flush()
                os.fsync(file.fileno())
                self.sizes[name] = file.tell()
            last_state, self.done = self.state_path, done
            if state is not None:
                with atomic_file(self.state_path) as temporary:
                    temporary.write_bytes(state)
            self._write_journal()
            self.num_saved_lines = done.lines
            if last_state != self.state_path:
                last_state.unlink(missing_ok=True)

    def publish(self, finished: Path) -> None:
        """Rename the finished file, which is in this folder, to the target, and remove the folder."""
        with self.explained():
            with finished.open("r+b") as file:  # some systems cannot flush a file that is opened for reading
                os.fsync(file.fileno())
            os.replace(finished, self.target)
        self.discard()

    def publish_folder(self) -> None:
        """Give the folder itself, with every file that grew, the target's name; a folder that is there is replaced."""
        self.close()
        with self.explained():
            exchange(self.folder, self.target)
            for name in (LOCK, JOURNAL):
                (self.target / name).unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the folder."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn a failure to write into an ``OutputError`` that says how to resume."""
        try:
            yield
        except OutputError:
            raise
        except OSError as error:
            reason, advice = error.strerror or str(error), ADVICE.get(error.errno or 0, "write elsewhere")
            is_saved = self.resume and self.num_saved_lines
            how = f". {self.num_saved_lines:,} lines are saved: the same command resumes after them" if is_saved else ""
            raise OutputError(f"{self.target}: cannot be written: {reason}; {advice}{how}") from error

    def start(self, reserved: Mapping[str, int]) -> None:
        """Start from the beginning, with data files of ``reserved`` zero bytes each."""
        for path in self.folder.iterdir():
            if path.name != LOCK:
                path.unlink()
        self._write_journal()
        for name, num_bytes in reserved.items():
            (self.folder / name).write_bytes(bytes(num_bytes))
        self._open(reserved)
        self.commit(Done(), state=None)

    def resume_from(self, journal: Mapping[str, Any]) -> None:
        """Resume after the lines that the journal counts."""
        self.done = Done(**journal["done"])
        self.num_saved_lines = self.done.lines
        self._open(journal["sizes"])

    def _open(self, sizes: Mapping[str, int]) -> None:
        for name, num_bytes in sizes.items():
            file = self.parts[name] = (self.folder / name).open("r+b")
            file.truncate(num_bytes)
            file.seek(num_bytes)
            self.sizes[name] = num_bytes

    def close(self) -> None:
        """Close the data files."""
        for file in self.parts.values():
            try:
                file.close()
            except OSError:
                continue  # on a full disk; unwritten bytes are not in the journal

    def _write_journal(self) -> None:
        journal = {"job": self._job, "done": asdict(self.done), "sizes": self.sizes}
        with atomic_file(self.folder / JOURNAL) as temporary:
            temporary.write_text(json.dumps(journal, indent=1) + "\n", encoding="utf-8")


def partial_folder(target: Path) -> Path:
    """Return the folder of the unfinished work for an output."""
    return target.with_name(f"{target.name}.partial")


@contextmanager
def open_partial(
    target: Path, job: Mapping[str, Any], *, reserved: Mapping[str, int], resume: bool, replace: bool
) -> Iterator[Partial]:
    """Open the unfinished output of ``target``: at its saved progress if ``resume``, else from the beginning.

    Unfinished output of another job is deleted only with ``replace``. If no line is saved at the end of the block, the
    folder is removed.
    """
    partial = Partial(target, job, resume=resume)
    with partial.explained():
        partial.folder.mkdir(exist_ok=True)
    with locked(partial.folder, work="writing to it"):
        journal = _read_journal(partial.folder)
        same = journal is not None and journal["job"] == json.loads(json.dumps(job))
        _reject_foreign_files(partial.folder)
        if journal is not None and not (same or replace):
            _reject_other_job(partial.folder, journal["job"], json.loads(json.dumps(job)))
        with partial.explained():
            if same and resume and journal is not None and _is_intact(partial.folder, journal):
                partial.resume_from(journal)
            else:
                partial.start(reserved)
        try:
            yield partial
        finally:
            partial.close()
            if not (resume and _num_recorded_lines(partial.folder)):
                partial.discard()


def _num_recorded_lines(folder: Path) -> int:
    """Return the number of finished lines by the journal on disk: an interrupt can come right after its write."""
    try:
        journal = _read_journal(folder)
    except OutputError:
        return 0
    return 0 if journal is None else int(journal["done"]["lines"])


def _read_journal(folder: Path) -> dict[str, Any] | None:
    """Return the content of a folder's journal; None if there is none."""
    try:
        journal = json.loads(read_plain(folder / JOURNAL))
        _check_journal(journal)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(f"{folder / JOURNAL}: cannot be read ({error}); remove the folder {folder}") from error
    return dict(journal)


def _check_journal(journal: Any) -> None:
    """Reject what is JSON, but no journal."""
    if not (isinstance(journal, dict) and all(isinstance(journal.get(key), dict) for key in ("job", "done", "sizes"))):
        raise ValueError("it has not the parts job, done and sizes")
    counts = [*journal["done"].values(), *journal["sizes"].values()]
    if journal["done"].keys() != asdict(Done()).keys() or not all(
        type(count) is int and count >= 0 for count in counts
    ):
        raise ValueError("its counts are not those of a journal")


def _reject_foreign_files(folder: Path) -> None:
    foreign = sorted(path.name for path in folder.iterdir() if not path.name.startswith(OURS))
    if foreign:
        raise OutputError(
            f"{folder}: contains {foreign[0]}, which elmokit did not write; move the folder, or write elsewhere"
        )
    links = sorted(path.name for path in folder.iterdir() if path.is_symlink())
    if links:  # writing through it would change a file elsewhere
        raise OutputError(f"{folder}: contains {links[0]}, a symbolic link; remove the folder, or write elsewhere")


def _reject_other_job(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    raise OutputError(
        f"{folder}: contains the unfinished output of another job, which differs in {', '.join(changed)}; "
        "finish that job, remove the folder, or replace it (--force)"
    )


def _is_intact(folder: Path, journal: Mapping[str, Any]) -> bool:
    """Return True if all data files of the journal are there with at least their sizes."""
    sizes: Mapping[str, int] = journal["sizes"]
    inside = {path.name for path in folder.iterdir()}
    return bool(sizes) and all(
        name in inside and (folder / name).is_file() and (folder / name).stat().st_size >= size
        for name, size in sizes.items()
    )
