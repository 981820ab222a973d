"""Embed text files, one sentence per line, into one file of vectors, in bounded memory.

Lines are embedded in windows. A window ends at a line number that is a multiple of 1,024, or before it exceeds 8,192
tokens. The text alone therefore determines the windows. Each finished window is saved (`elmokit.embed.partial`): an
interrupted job resumes after the last one and ends with the same bytes as an uninterrupted job. Shards start at
multiples of 1,024 lines, so their rows are the same bytes as in an unsplit job.

Shapes: L layers, T tokens, D width.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors

from elmokit import __version__
from elmokit.embed.embedder import Embedder
from elmokit.embed.partial import Done, Partial, open_partial
from elmokit.embed.picking import Layers, Pooling, check_layers, check_pooling, pick_layers, pool_tokens
from elmokit.embed.writers import (
    LINES,
    DTypeName,
    EmbeddedLine,
    FileFormat,
    FormatName,
    Layout,
    Unfinished,
    find_format,
    to_stored,
)
from elmokit.errors import InputError, OutputError
from elmokit.kernels.library import available, load
from elmokit.model.bilm import BiLMState
from elmokit.text.lines import STDIN, Line, find_inputs, read_lines
from elmokit.text.rules import TextRules

STDOUT = "-"
WINDOW_LINES = 1024
MAX_NAME_CHARS = 100
WINDOW_TOKENS = 8_192  # 100 MB of float32 with all layers of the paper's model


@dataclass(frozen=True)
class Shard:
    """One part of a job that is split into parts of about equal size; parts are counted from 1."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise InputError(
                f"shard {self.number}/{self.count}; expected a number from 1 to the number of parts, such as 1/4"
            )

    def path(self, output: Path) -> Path:
        """Return the name of the shard's file: NAME-00002-of-00004.SUFFIX."""
        return output.with_name(f"{output.stem}-{self.number:05d}-of-{self.count:05d}{output.suffix}")

    def lines(self, num_lines: int, step: int) -> range:
        """Return the shard's lines, which start at a multiple of ``step``."""
        num_steps = -(-num_lines // step)
        start, stop = (num_steps * part // self.count * step for part in (self.number - 1, self.number))
        return range(min(start, num_lines), min(stop, num_lines))


@dataclass(frozen=True)
class Progress:
    """Progress of a job."""

    lines: int
    tokens: int
    total_lines: int | None
    """None for a stream, which can be read only once."""


@dataclass(frozen=True)
class EmbedReport:
    """Summary of a finished job."""

    output: str
    lines: int
    tokens: int
    cut_words: int
    """Number of truncated words, which are longer than the model reads; a word counts once per batch."""
    resumed_lines: int
    """Lines that an earlier run had embedded."""
    seconds: float
    """Duration of this run."""


@dataclass(frozen=True)
class _Window:
    """Lines embedded together, and the progress of the job after they are written."""

    lines: list[EmbeddedLine]
    done: Done


@dataclass(frozen=True)
class _Options:
    """Options that determine the vectors of a line."""

    layers: Layers
    pool: Pooling | None
    tokenized: bool
    batch_size: int


def embed_files(
    embedder: Embedder,
    inputs: Sequence[str | Path],
    output: str | Path,
    *,
    file_format: FormatName | None = None,
    dtype: DTypeName | None = None,
    layers: Layers = "all",
    pool: Pooling | None = None,
    tokenized: bool = False,
    batch_size: int = 64,
    shard: Shard | None = None,
    replace: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> EmbedReport:
    """Embed every line of ``inputs`` as one sentence, and write the vectors to ``output``; `writers` has the formats.

    An input is a path, a pattern such as ``texts/*.txt.gz``, or ``-`` for standard input. ``output`` can be ``-``
    for JSON lines on standard output. With ``tokenized`` the tokens of a line are separated by white space. The name of
    a shard's output contains the number of the shard. An existing output is replaced only with ``replace``.
    Inputs and output are checked before the model runs.
    """
    check_layers(layers, embedder.num_layers)
    if pool is not None:
        check_pooling(pool)
    if batch_size < 1:
        raise InputError(f"batch_size {batch_size}; expected 1 or more")
    options = _Options(layers, pool, tokenized, batch_size)
    form = _output_format(output, file_format)
    num_layers = embedder.num_layers if layers == "all" else None
    layout = Layout(dtype or form.dtype, num_layers, embedder.width, pooled=pool is not None)
    paths = find_inputs(inputs)
    total = _count_lines(paths)
    lines = _lines_to_embed(embedder, total, options, shard)
    job = _Job(embedder, options, layout, form, paths, lines, progress)
    if str(output) == STDOUT:
        return job.run_to_stdout()
    target = Path(output) if shard is None else shard.path(Path(output))
    return job.run_to_file(target, replace=replace)


@dataclass(frozen=True)
class _Job:
    """Everything that one run needs."""

    embedder: Embedder
    options: _Options
    layout: Layout
    form: FileFormat
    paths: list[str]
    lines: range | None  # None: all lines of a stream
    progress: Callable[[Progress], None]

    def run_to_file(self, target: Path, *, replace: bool) -> EmbedReport:
        start = time.monotonic()
        _check_target(target, replace=replace)
        if target.is_symlink():
            target = Path(os.path.realpath(target))  # the link is kept, and its target is written
        self.embedder.reset_state()
        resume = self.lines is not None  # a stream can be read only once
        with open_partial(
            target, self._fingerprint(), reserved=self.form.reserved, resume=resume, replace=replace
        ) as partial:
            resumed = partial.done.lines
            if not resumed:
                _check_beside(self.form.beside(target), replace=replace)
            elif self.embedder.state == "carry":
                self.embedder.carried_state = BiLMState.from_parts(load_file(partial.state_path))
            for window in self._run(partial.done):
                with partial.explained():
                    for line in window.lines:
                        self.form.write_line(partial.parts, line, self.layout)
                partial.commit(window.done, state=self._state_to_save())
            partial.close()
            with partial.explained():
                partial.publish(self.form.finish(self._unfinished(partial)))
        return self._report(str(target), partial.done, resumed, start)

    def run_to_stdout(self) -> EmbedReport:
        start = time.monotonic()
        self.embedder.reset_state()
        done = Done()
        for window in self._run(done):
            for line in window.lines:
                self.form.write_line({LINES: sys.stdout.buffer}, line, self.layout)
            sys.stdout.buffer.flush()
            done = window.done
        return self._report(STDOUT, done, 0, start)

    def _run(self, done: Done) -> Iterator[_Window]:
        """Embed the lines that are not done, window by window."""
        total = None if self.lines is None else len(self.lines)
        first = 0 if self.lines is None else self.lines.start
        self.progress(Progress(done.lines, done.tokens, total))
        lines = islice(read_lines(self.paths), first + done.lines, None if self.lines is None else self.lines.stop)
        cut_before = done.cut_words - self.embedder.num_cut_words
        for window in self._windows(lines, first + done.lines):
            if not available():
                # torch may round a word differently in another batch; a resumed job would then differ.
                self.embedder.forget_words()
            embedded: list[EmbeddedLine | None] = [None] * len(window)
            lines_done, tokens_done = done.lines, done.tokens
            found = self.embedder.iter_unordered(window, batch_size=self.options.batch_size)
            for index, layers_LTD in found:
                number = first + done.lines + index
                embedded[index] = EmbeddedLine(number, window[index], self._pick(layers_LTD))
                lines_done, tokens_done = lines_done + 1, tokens_done + len(window[index])
                self.progress(Progress(lines_done, tokens_done, total))
            done = Done(lines_done, tokens_done, cut_before + self.embedder.num_cut_words)
            yield _Window([line for line in embedded if line is not None], done)

    def _windows(self, lines: Iterable[Line], first: int) -> Iterator[list[list[str]]]:
        """Yield tokenized lines in windows; the first line has the number ``first``."""
        step = _step(self.embedder, self.options)
        rules = TextRules(tokenized=self.options.tokenized, language=self.embedder.language)
        # Under "carry" a window is one batch of whole lines.
        max_tokens = None if self.embedder.state == "carry" else WINDOW_TOKENS
        window: list[list[str]] = []
        num_tokens = 0
        for number, line in enumerate(lines, start=first):
            tokens = rules.tokens(line.text)
            too_large = max_tokens is not None and num_tokens + len(tokens) > max_tokens
            if window and (number % step == 0 or too_large):
                yield window
                window, num_tokens = [], 0
            window.append(tokens)
            num_tokens += len(tokens)
        if window:
            yield window

    def _pick(self, layers_LTD: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        picked = pick_layers(layers_LTD, self.options.layers)
        if self.options.pool is not None:
            picked = pool_tokens(picked, self.options.pool)
        return to_stored(picked, self.layout)

    def _state_to_save(self) -> bytes | None:
        carried = self.embedder.carried_state
        if carried is None:
            return None
        return to_safetensors({name: part.cpu().contiguous() for name, part in carried.parts().items()})

    def _fingerprint(self) -> dict[str, Any]:
        """Return everything that must be equal for a job to be resumed, as JSON values."""
        compiled = load()
        files = [[path, Path(path).stat().st_size, Path(path).stat().st_mtime_ns] for path in _regular(self.paths)]
        return {
            "elmokit": __version__,
            "torch": str(torch.__version__),
            "runs on": f"{_processor(self.embedder.device)}, kernels: {compiled.isa if compiled else 'none'}",
            "language": self.embedder.language,
            "model": self.embedder.fingerprint(),
            "inputs": files,
            "lines": None if self.lines is None else [self.lines.start, self.lines.stop],
            "format": self.form.name,
            "parts": sorted(self.form.reserved),
            "dtype": self.layout.dtype,
            **asdict(self.options),
        }

    def _unfinished(self, partial: Partial) -> Unfinished:
        first = 0 if self.lines is None else self.lines.start
        layers = self.options.layers
        about = {
            "format": "elmokit.vectors",
            "model": _short_name(self.embedder),
            "layers": ",".join(map(str, layers)) if isinstance(layers, tuple) else str(layers),
            "pool": self.options.pool or "none",
            "state": self.embedder.state,
            "first_line": str(first),
        }
        return Unfinished(
            partial.folder, partial.target, self.layout, first, partial.done.lines, dict(partial.sizes), about
        )

    def _report(self, output: str, done: Done, resumed: int, start: float) -> EmbedReport:
        return EmbedReport(output, done.lines, done.tokens, done.cut_words, resumed, time.monotonic() - start)


def parse_shard(text: str) -> Shard:
    """Parse a shard in the form ``2/4``."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise InputError(f"shard {text!r}; expected the number of the part and the number of parts, such as 2/4")
    return Shard(int(number), int(count))


def _output_format(output: str | Path, name: FormatName | None) -> FileFormat:
    if str(output) != STDOUT:
        return find_format(Path(output), name)
    if name not in (None, "jsonl"):
        raise InputError(f"format {name!r} cannot go to standard output; use jsonl, or name a file")
    return find_format(Path(output), "jsonl")


def _processor(device: torch.device) -> str:
    """Return what determines torch's rounding: the model of the GPU, or the instruction set of the CPU."""
    if device.type == "cuda":
        return f"{device}, {torch.cuda.get_device_name(device)}"
    return f"{device}, {torch.backends.cpu.get_cpu_capability()}"


def _short_name(embedder: Embedder) -> str:
    """Return the model's name without the folders above it, for a header of fixed size."""
    return Path(embedder.name or "in memory").name[:MAX_NAME_CHARS]


def _regular(paths: Iterable[str]) -> list[str]:
    """Return the paths of regular files, without standard input and pipes, which can be read only once."""
    return [str(Path(path).resolve()) for path in paths if path != STDIN and Path(path).is_file()]


def has_stream(paths: Sequence[str]) -> bool:
    """Return whether one of the inputs can be read only once."""
    return len(_regular(paths)) < len(paths)


def _count_lines(paths: list[str]) -> int | None:
    """Return the number of lines, or None if an input is a stream; text that cannot be read raises."""
    lines = read_lines(paths)
    return None if has_stream(paths) else sum(1 for _ in lines)


def _step(embedder: Embedder, options: _Options) -> int:
    """Return the step of line numbers at which a window must end."""
    return options.batch_size if embedder.state == "carry" else WINDOW_LINES


def _lines_to_embed(embedder: Embedder, total: int | None, options: _Options, shard: Shard | None) -> range | None:
    if shard is None:
        return None if total is None else range(total)
    if total is None:
        raise InputError("a stream has no shards, because its lines cannot be counted; write the text to a file first")
    if embedder.state == "carry":
        raise InputError("state 'carry' has no shards, because a line depends on all before it; use 'reset' or 'warm'")
    return shard.lines(total, _step(embedder, options))


def _check_target(target: Path, *, replace: bool) -> None:
    if target.is_dir():
        raise OutputError(f"{target}: is a directory; name a file in it, such as {target / 'vectors.safetensors'}")
    if target.exists() and not target.is_file():
        raise OutputError(f"{target}: is a device; name a file, or - for JSON lines on standard output")
    if target.exists() and not replace:
        raise OutputError(f"{target}: exists; name another file, or replace it (--force)")
    if not target.parent.is_dir():
        raise OutputError(f"{target}: there is no directory {target.parent}; create it first")


def _check_beside(paths: list[Path], *, replace: bool) -> None:
    for path in paths:
        _check_target(path, replace=replace)
