"""Saving while a run continues: on a background thread, in order, with failures raised at the next step."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import OutputError
from elmokit.runs.checkpoint import Checkpoint, checkpoints, save_checkpoint
from elmokit.runs.log import RunLog


class BackgroundWriter:
    """Saves checkpoints and models of a run on one thread, one after the other."""

    def __init__(self, folder: Path, *, keep: int, log: RunLog) -> None:
        """``folder`` gets the checkpoints, of which the newest ``keep`` are kept."""
        self._folder, self._keep, self._log = folder, keep, log
        self._thread = ThreadPoolExecutor(1)
        self._saving: Future[None] | None = None

    def save(self, checkpoint: Checkpoint) -> None:
        """Start to save a checkpoint."""
        self.start(lambda: self._save(checkpoint))

    def start(self, save: Callable[[], None]) -> None:
        """Start any other save, once the one before is done. It must save a copy that nobody changes."""
        self.wait()
        self._saving = self._thread.submit(save)

    def is_free(self, *, within: float) -> bool:
        """Return whether the last save is done, after at most ``within`` seconds; raise its error if it failed."""
        if self._saving is not None:
            if not wait([self._saving], timeout=within).done:
                return False
            self.wait()
        return True

    def raise_if_failed(self) -> None:
        """Raise the error of the last save if that has failed by now, so that a full disk ends the run at once."""
        if self._saving is not None and self._saving.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the last save is on disk; raise its error if it failed."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            saving.result()

    def close(self) -> None:
        """Wait for the last save, then end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _save(self, checkpoint: Checkpoint) -> None:
        self._log.flush()  # after a power cut a checkpoint must not be ahead of its log
        save_checkpoint(checkpoint, self._folder, keep=self._keep)


@contextmanager
def background_writer(folder: Path, *, keep: int, log: RunLog) -> Iterator[BackgroundWriter]:
    """Yield a writer that is closed at the end; errors name the checkpoint from which the run can be resumed."""
    try:
        writer = BackgroundWriter(folder, keep=keep, log=log)
        try:
            yield writer
        finally:
            writer.close()
    except OutputError as error:
        found = checkpoints(folder)
        left = f"the same command resumes from {found[-1].name}" if found else "no checkpoint was saved before"
        raise OutputError(f"{error}; {left}") from error
