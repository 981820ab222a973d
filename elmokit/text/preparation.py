"""Turn text files into a prepared corpus, once.

While a text is prepared, its distinct words are in memory; its tokens are not. Words are first numbered as they
appear, and renumbered by count when all are known.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.atomic import atomic_folder
from elmokit.errors import ElmokitWarning, InputError
from elmokit.text.chars import BOS_WORD, EOS_WORD, MIN_CHARS, encode_words
from elmokit.text.chunks import EncodedChunk, encode_in_order, read_chunks
from elmokit.text.corpus import (
    LEFT_OUT_FILE,
    META_FILE,
    WORDS_FILE,
    Corpus,
    CorpusMeta,
    CorpusSettings,
    Source,
    read_corpus_meta,
)
from elmokit.text.corpus_check import hash_file
from elmokit.text.exclusion import RULE as EXCLUSION_RULE
from elmokit.text.exclusion import Exclusion, LeftOut
from elmokit.text.grouping import windows
from elmokit.text.lines import STDIN, Line, read_lines
from elmokit.text.rules import RAW_LINES, TextRules
from elmokit.text.tokens import identify_language

TOKENS_AT_ONCE = 1 << 22
WORDS_AT_ONCE = 1 << 16

_PROVISIONAL = "provisional.bin"


def prepare_corpus(
    files: Iterable[str | Path],
    folder: str | Path,
    *,
    rules: TextRules = RAW_LINES,
    max_chars: int = 50,
    num_workers: int = 1,
    progress: Callable[[int], None] | None = None,
    accept: Callable[[str], None] | None = None,
    may_be_gone: bool = False,
    exclude: Exclusion | None = None,
) -> Corpus:
    """Turn text files, plain, .gz or .xz, into a prepared corpus in ``folder``.

    Blank lines are skipped. The result is the same for any ``num_workers``. ``progress`` is called with the number of
    characters done so far.

    A folder that has the same text under the same settings is opened at once. A folder with another corpus is
    replaced when the new one is whole. ``accept`` is called before that with the new one's fingerprint, and may
    raise. With ``may_be_gone`` a missing file is assumed to be the one that the folder was prepared from; a warning
    is issued.

    Sentences that ``exclude`` finds are left out, counted per file, and listed in ``left_out.tsv``.
    """
    names, folder = [str(path) for path in _as_list(files)], Path(folder)
    excluded_names = list(exclude.files) if exclude is not None else []
    gone = _gone([*names, *excluded_names], folder) if may_be_gone else {}
    lines = read_lines([name for name in names if name not in gone])
    settings = CorpusSettings(**asdict(rules), max_chars=max_chars)
    _check(names, settings, num_workers)
    read_lines([name for name in excluded_names if name not in gone])  # checks that they exist
    sources, excluded = (tuple(gone.get(name) or _describe(name) for name in some) for some in (names, excluded_names))
    fingerprint = _fingerprint(sources, settings, excluded)
    if accept is not None:
        accept(fingerprint)
    if corpus := _open_same(folder, fingerprint):
        if gone:
            _warn_of(list(gone), folder)
        return corpus
    read_lines(gone)  # raises: text that is prepared anew must be there
    with atomic_folder(folder, replace=(folder / META_FILE).is_file()) as partial_dir:
        chunks = read_chunks(rules.paragraphs(lines))
        index = exclude.build_index() if exclude is not None else None
        with LeftOut(partial_dir / LEFT_OUT_FILE, excluded) as left_out:
            encoded = left_out.track(encode_in_order(chunks, rules, index, num_workers))
            words = _write_sentences(partial_dir, encoded, progress)
        if not words:
            advice = " and that are not excluded" if left_out.num_sentences else ""
            raise InputError(f"no sentence in {', '.join(names)}; give files that have text{advice}")
        _write_words(partial_dir, words, sources, settings, left_out)
    return Corpus.open(folder)


def recorded_sources(folder: Path) -> tuple[Source, ...]:
    """Return the files that a folder was prepared from; none if it holds no corpus."""
    try:
        return read_corpus_meta(folder).sources
    except InputError:
        return ()


def recorded_exclusion(folder: Path) -> tuple[Source, ...]:
    """Return the files whose sentences were left out of a folder's corpus; none if it holds no corpus."""
    try:
        return tuple(file.source for file in read_corpus_meta(folder).excluded)
    except InputError:
        return ()


def _as_list(files: Iterable[str | Path]) -> list[str | Path]:
    if isinstance(files, str | Path):
        raise InputError(f"files is {str(files)!r}, but must be a list of paths; write [{str(files)!r}]")
    return list(files)


def _check(names: list[str], settings: CorpusSettings, num_workers: int) -> None:
    if not names:
        raise InputError("no text file is given; name one or more")
    if STDIN in names:
        raise InputError("standard input cannot be prepared, because it is read twice; write it to a file first")
    for name in names:
        if Path(name).exists() and not Path(name).is_file():
            raise InputError(f"{name}: is not a plain file, and text is read twice; write it to a file first")
    if settings.max_chars < MIN_CHARS:
        raise InputError(f"max_chars is {settings.max_chars}; it must be {MIN_CHARS} or more")
    if num_workers < 1:
        raise InputError(f"num_workers is {num_workers}; it must be 1 or more")


# What there is


def _describe(name: str) -> Source:
    try:
        with Path(name).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return Source(name=name, num_bytes=stream.tell(), sha256=digest)
    except PermissionError as error:
        raise InputError(f"{name}: no permission to read the file; check its owner and mode") from error


def _gone(names: list[str], folder: Path) -> dict[str, Source]:
    """Return the recorded facts about files that are gone."""
    known = {source.name: source for source in (*recorded_sources(folder), *recorded_exclusion(folder))}
    return {name: known[name] for name in names if name in known and not Path(name).exists()}


def _warn_of(gone: list[str], folder: Path) -> None:
    others = len(gone) - 1
    files = f"{gone[0]} and {others} other file{'s' * (others > 1)} are" if others else f"{gone[0]} is"
    warnings.warn(
        f"{files} not there any more; the text that was prepared before is used ({folder})",
        ElmokitWarning,
        stacklevel=3,
    )


def _fingerprint(sources: Iterable[Source], settings: CorpusSettings, excluded: Sequence[Source]) -> str:
    # What has no effect must not tell two corpora apart: the language, where text is tokenized; split, where text is
    # wrapped; and wrapped where it is not, as in corpora from before it was known.
    idle = {"language": settings.tokenized, "split": settings.wrapped, "wrapped": not settings.wrapped}
    how = settings.model_dump(exclude={name for name, is_idle in idle.items() if is_idle})
    if "language" in how:
        how["language"] = identify_language(how["language"])
    content = [CorpusMeta.model_fields["format"].default, [source.sha256 for source in sources], how]
    if excluded:  # only then, so that other corpora keep their fingerprints
        content.append([EXCLUSION_RULE, sorted({source.sha256 for source in excluded})])
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _open_same(folder: Path, fingerprint: str) -> Corpus | None:
    """Open the folder if it holds what would be prepared; None if there is work to do."""
    try:
        corpus = Corpus.open(folder)
    except InputError:
        return None  # absent, or damaged: to prepare it again is the cure
    return corpus if corpus.fingerprint == fingerprint else None


# From numbers to files


def _write_sentences(
    folder: Path, encoded: Iterable[tuple[list[Line], EncodedChunk]], progress: Callable[[int], None] | None
) -> list[str]:
    """Write the sentences, their words numbered as they first appear; return the words."""
    ids: dict[str, int] = {}
    num_tokens = num_chars = 0
    with (
        (folder / _PROVISIONAL).open("wb") as tokens_file,
        (folder / "lengths.bin").open("wb") as lengths_file,
        (folder / "offsets.bin").open("wb") as offsets_file,
    ):
        offsets_file.write(_as_bytes(np.zeros(1), "<i8"))
        for lines, chunk in encoded:
            _check_no_boundary(lines, chunk.words)
            known_ids = np.array([ids.setdefault(word, len(ids)) for word in chunk.words], dtype=np.uint32)
            tokens_file.write(_as_bytes(known_ids[chunk.tokens], "<u4"))
            lengths_file.write(_as_bytes(chunk.lengths, "<u4"))
            offsets_file.write(_as_bytes(num_tokens + np.cumsum(chunk.lengths, dtype=np.int64), "<i8"))
            num_tokens += len(chunk.tokens)
            num_chars += sum(len(line.text) + 1 for line in lines)
            if progress is not None:
                progress(num_chars)
    return list(ids)


def _check_no_boundary(lines: list[Line], words: list[str]) -> None:
    for boundary in (BOS_WORD, EOS_WORD):
        if boundary in words:
            line = next(line for line in lines if boundary in line.text.split())
            raise InputError(
                f"{line.path}, line {line.number}: has the word {boundary}, but the boundaries of a sentence are "
                "added when the model is trained; delete them from the text"
            )


def _write_words(
    folder: Path, words: list[str], sources: tuple[Source, ...], settings: CorpusSettings, left_out: LeftOut
) -> None:
    """Write what follows once all words are known, and the description."""
    words, counts = _renumber(folder, words)
    meta = CorpusMeta(
        fingerprint=_fingerprint(sources, settings, left_out.sources),
        settings=settings,
        sources=sources,
        num_tokens=int(counts.sum()),
        num_sentences=_size(folder / "lengths.bin", "<u4"),
        num_words=len(words),
        num_cut_words=_write_spellings(folder, words, settings.max_chars),
        words_bytes=_size(folder / WORDS_FILE, "u1"),
        excluded=left_out.counts(),
        num_left_out=left_out.num_sentences,
    )
    meta = meta.model_copy(update={"sums": {name: hash_file(folder / name) for name in meta.arrays}})
    unused = None if left_out.sources else {"excluded", "num_left_out"}
    (folder / META_FILE).write_text(meta.model_dump_json(indent=2, exclude=unused) + "\n", encoding="utf-8")


def _renumber(folder: Path, words: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Renumber the words by descending count, write tokens and counts, and return words and counts in that order."""
    provisional = np.memmap(folder / _PROVISIONAL, dtype="<u4", mode="r")
    blocks = [slice(start, start + TOKENS_AT_ONCE) for start in range(0, len(provisional), TOKENS_AT_ONCE)]
    counts = np.zeros(len(words), dtype=np.int64)
    for block in blocks:
        counts += np.bincount(provisional[block], minlength=len(words))
    # Equal counts go by code point, so that the order of the sentences does not matter.
    order = sorted(range(len(words)), key=list(zip((-counts).tolist(), words, strict=True)).__getitem__)
    new_ids = np.empty(len(words), dtype=np.uint32)
    new_ids[order] = np.arange(len(words), dtype=np.uint32)
    with (folder / "tokens.bin").open("wb") as tokens_file:
        for block in blocks:
            tokens_file.write(_as_bytes(new_ids[provisional[block]], "<u4"))
    del provisional  # an open map could not be deleted everywhere
    (folder / _PROVISIONAL).unlink()
    counts = counts[order]
    (folder / "counts.bin").write_bytes(_as_bytes(counts, "<i8"))
    return [words[word_id] for word_id in order], counts


def _write_spellings(folder: Path, words: list[str], max_chars: int) -> int:
    """Write the words as text and as character ids; return how many of them were cut."""
    num_cut = num_bytes = 0
    with (
        (folder / WORDS_FILE).open("wb") as words_file,
        (folder / "word_offsets.bin").open("wb") as offsets_file,
        (folder / "char_ids.bin").open("wb") as char_file,
    ):
        offsets_file.write(_as_bytes(np.zeros(1), "<i8"))
        for some_words in windows(words, WORDS_AT_ONCE):
            lines = [f"{word}\n".encode() for word in some_words]
            words_file.write(b"".join(lines))
            ends = num_bytes + np.cumsum([len(line) for line in lines])
            offsets_file.write(_as_bytes(ends, "<i8"))
            num_bytes = int(ends[-1])
            encoded = encode_words(some_words, max_chars=max_chars)
            char_file.write(_as_bytes(encoded.char_ids_WC, "<u2"))
            num_cut += encoded.num_cut
        boundaries = encode_words([BOS_WORD, EOS_WORD], max_chars=max_chars)
        char_file.write(_as_bytes(boundaries.char_ids_WC, "<u2"))
    return num_cut


def _as_bytes(array: NDArray[np.generic], dtype: str) -> bytes:
    return array.astype(dtype).tobytes()


def _size(path: Path, dtype: str) -> int:
    return path.stat().st_size // np.dtype(dtype).itemsize
