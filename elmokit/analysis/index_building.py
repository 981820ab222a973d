"""Embed every sentence of a text once, for search (`elmokit.analysis.index`).

The index grows in a folder beside its target and becomes the target when it is complete. After each window of
sentences the work done is safe on the disk. An interrupted build resumes there and ends with the same bytes.

Shapes: L layers, T tokens, D width.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from elmokit import __version__
from elmokit.analysis.index_files import (
    ABOUT,
    LENGTHS,
    LINES,
    OFFSETS,
    TOKEN_IDS,
    WORDS,
    IndexInfo,
    TextFile,
    part_names,
    read_words,
    to_json,
    vectors_file,
)
from elmokit.analysis.occurrences import as_tokens
from elmokit.atomic import write_json
from elmokit.embed.embedder import Embedder
from elmokit.embed.files import has_stream
from elmokit.embed.partial import Done, Partial, open_partial
from elmokit.embed.picking import Vectors
from elmokit.errors import InputError, OutputError
from elmokit.kernels.library import available
from elmokit.text.grouping import group_by_size
from elmokit.text.lines import find_inputs, read_lines
from elmokit.weights.sums import sha256

WINDOW_TOKENS, WINDOW_LINES = 8_192, 1_024
LARGEST = float(np.finfo(np.float16).max)

Tokens = tuple[str, ...]
Progress = Callable[[int, int, int], None]
"""Called with lines done, lines in all, and tokens embedded."""


@dataclass(frozen=True)
class _Line:
    """A line of the text; its tokens are empty if an equal sentence came before."""

    number: int
    tokens: Tokens


def build_index(
    files: Sequence[str | Path],
    out_dir: str | Path,
    embedder: Embedder,
    *,
    tokenized: bool = False,
    replace: bool = False,
    progress: Progress = lambda _lines, _total, _tokens: None,
) -> IndexInfo:
    """Embed every line of text files as one sentence, and write all layers as an index.

    Args:
        files: paths or patterns of text files, also .gz and .xz.
        out_dir: the folder to write. It appears when it is complete; the same call resumes an interrupted one.
        embedder: the model. Its state must be ``"warm"`` or ``"reset"``.
        tokenized: split lines at whitespace instead of tokenizing them.
        replace: replace an index that is there.
        progress: called with lines done, lines in all, and tokens embedded.

    Returns:
        Settings and sizes of the index.
    """
    if embedder.state == "carry":
        raise InputError("state is 'carry', under which a vector depends on its batch; index with 'reset' or 'warm'")
    paths = find_inputs(files)
    read_lines(paths)  # looks for the files
    if has_stream(paths):
        raise InputError("a stream can be read only once, and an index needs its text's hash; write it to a file first")
    target = Path(out_dir).resolve()
    _check_target(target, replace=replace)
    num_lines = sum(1 for _ in read_lines(paths))
    texts = tuple(TextFile(str(Path(path).resolve()), Path(path).stat().st_size, sha256(Path(path))) for path in paths)
    job = {
        "elmokit": __version__,
        "model": embedder.fingerprint(),
        "language": embedder.language,
        "tokenized": tokenized,
        "text": [file.sha256 for file in texts],
    }
    reserved = dict.fromkeys(part_names(embedder.num_layers), 0)
    with open_partial(target, job, reserved=reserved, resume=True, replace=replace) as partial:
        builder = _Builder(embedder, partial)
        progress(partial.done.lines, num_lines, partial.done.tokens)
        for window in _windows(embedder, paths, builder, tokenized=tokenized):
            with partial.explained():
                builder.add(window)
            done = Done(window[-1].number + 1, builder.num_tokens)
            partial.commit(done, state=None)
            progress(done.lines, num_lines, done.tokens)
        if not builder.num_tokens:
            partial.discard()
            raise InputError(f"{', '.join(paths)}: no words in the text; give text files, one sentence per line")
        partial.commit(Done(num_lines, builder.num_tokens), state=None)  # the last lines may have no tokens
        info = builder.info(texts, num_lines, tokenized=tokenized)
        with partial.explained():
            write_json(partial.folder / ABOUT, to_json(info))
        partial.publish_folder()
    return info


def _check_target(target: Path, *, replace: bool) -> None:
    if target.exists() and not target.is_dir():
        raise OutputError(f"{target}: is a file; name a folder to write to")
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not (target / ABOUT).is_file():
        raise OutputError(f"{target}: is a folder with other files in it; name a new folder")
    if not replace:
        raise OutputError(f"{target}: already holds an index; name a new folder, or replace it (--force)")


def _windows(embedder: Embedder, paths: list[str], builder: "_Builder", *, tokenized: bool) -> Iterator[list[_Line]]:
    """Group the lines that are not done. Where a window ends follows from where it begins and from the text alone."""

    def lines() -> Iterator[_Line]:
        rest = islice(read_lines(paths), builder.partial.done.lines, None)
        for number, line in enumerate(rest, start=builder.partial.done.lines):
            tokens = tuple(line.text.split()) if tokenized else as_tokens(embedder, line.text)
            yield _Line(number, tokens if builder.is_new(tokens) else ())

    return group_by_size(lines(), size_of=lambda line: len(line.tokens), enough=WINDOW_TOKENS, max_items=WINDOW_LINES)


class _Builder:
    """The words and sentences so far, and the files that grow."""

    def __init__(self, embedder: Embedder, partial: Partial) -> None:
        self.partial = partial
        self.num_tokens = partial.done.tokens
        self._embedder = embedder
        self._words: dict[str, int] = {}
        self._sentences: set[bytes] = set()
        if partial.done.lines:
            self._recall()

    def is_new(self, tokens: Tokens) -> bool:
        """Return whether a sentence has tokens and is the first of its kind."""
        digest = hashlib.blake2b(json.dumps(tokens).encode(), digest_size=16).digest()
        if not tokens or digest in self._sentences:
            return False
        self._sentences.add(digest)
        return True

    def add(self, window: list[_Line]) -> None:
        """Embed the sentences of a window, and write them."""
        lines = [line for line in window if line.tokens]
        if not available():
            # torch may round a word differently beside other words; a resumed build would then differ.
            self._embedder.forget_words()
        found = dict(self._embedder.iter_unordered([line.tokens for line in lines]))
        for index, line in enumerate(lines):
            self._write(line, found.pop(index))

    def _write(self, line: _Line, layers_LTD: Vectors) -> None:
        self.num_tokens += len(line.tokens)
        halves_LTD = layers_LTD.astype("<f2")
        if not np.isfinite(halves_LTD).all():
            raise InputError(
                f"line {line.number}: a vector exceeds {LARGEST:.0f}, the end of float16; is the model damaged?"
            )
        ids = []
        for position, token in enumerate(line.tokens):
            if token not in self._words:
                self._words[token] = len(self._words)
                self._file(WORDS).write(f"{json.dumps(token)}\n".encode())
                self._file(vectors_file(0)).write(halves_LTD[0, position].tobytes())
            ids.append(self._words[token])
        for layer in range(1, len(halves_LTD)):
            self._file(vectors_file(layer)).write(halves_LTD[layer].tobytes())
        exact_LTD = halves_LTD.astype(np.float32)
        lengths_LT = np.linalg.norm(np.concatenate([exact_LTD[1:], exact_LTD.mean(axis=0, keepdims=True)]), axis=2)
        self._file(LENGTHS).write(lengths_LT.T.astype("<f4").tobytes())
        self._file(TOKEN_IDS).write(np.array(ids, dtype="<i4").tobytes())
        self._file(OFFSETS).write(np.array(self.num_tokens, dtype="<i8").tobytes())
        self._file(LINES).write(np.array(line.number, dtype="<i8").tobytes())

    def info(self, files: tuple[TextFile, ...], num_lines: int, *, tokenized: bool) -> IndexInfo:
        """Return what ``index.json`` says."""
        return IndexInfo(
            model=self._embedder.name,
            fingerprint=self._embedder.fingerprint(),
            state=self._embedder.state,
            language=self._embedder.language,
            tokenized=tokenized,
            num_layers=self._embedder.num_layers,
            width=self._embedder.width,
            files=files,
            num_lines=num_lines,
            num_sentences=self.partial.sizes[OFFSETS] // 8,
            num_tokens=self.num_tokens,
            num_words=len(self._words),
            sizes=dict(self.partial.sizes),
        )

    def _recall(self) -> None:
        """Read the words and sentences of an interrupted build."""
        folder = self.partial.folder
        words = read_words(folder / WORDS)
        self._words = {word: number for number, word in enumerate(words)}
        ids = np.fromfile(folder / TOKEN_IDS, dtype="<i4")
        for sentence_ids in np.split(ids, np.fromfile(folder / OFFSETS, dtype="<i8")[:-1]):
            self.is_new(tuple(words[number] for number in sentence_ids))

    def _file(self, name: str) -> BinaryIO:
        return self.partial.parts[name]
