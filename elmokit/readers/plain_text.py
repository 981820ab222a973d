"""Texts of any data file, without their annotation: sentences or paragraphs, as strings.

The format follows from the file's name, or from its first line. What is no known format is read as plain text: one text
per line, or per cell where lines have tabs. Paragraphs of several lines follow as texts of their own, since a sentence
may be wrapped.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from elmokit.errors import InputError
from elmokit.readers.blimp import read_blimp
from elmokit.readers.conll2003 import read_conll2003
from elmokit.readers.conll2012 import read_conll2012, read_conll2012_archive
from elmokit.readers.conllu import read_conllu
from elmokit.readers.ptb import read_ptb
from elmokit.readers.snli import read_snli
from elmokit.readers.squad import MAX_BYTES, read_squad
from elmokit.readers.sst import read_sst
from elmokit.readers.wsd import find_keys, read_wsd
from elmokit.text.lines import STDIN, read_lines
from elmokit.text.paragraphs import join_wrapped, unwrap

# First lines of data in files whose names do not say so: JSON objects, trees, columns of CoNLL-U and of CoNLL-2012.
LOOKS_LIKE_DATA = re.compile(
    r"""\{\s*("|$)|\(\s*(\(|[A-Z][A-Z-]* +\().*\)$|-DOCSTART-|# (sent_id|text) = """
    r"""|\d+([-.]\d+)?\t[^\t]+(\t[^\t]*){6,}$|\S+\s+\d+\s+\d+\s+\S+\s+\S+\s+\S*[(*]"""
)
# Both of the first two lines: columns that end with a tag (BIO, BIOES, BIOUL), or a single tab after a label or token.
TWO_LINES_LOOK_LIKE_DATA = re.compile(r"(\S+[\t ]+)+(O|[BIESUL]-[A-Z]\S*)$|\S+[\t ][BIESUL]-\S+$|\S+\t[^\t]+$")


def read_texts(path: str | Path) -> Iterator[str]:
    """Yield the texts of a data file; .gz and .xz are unpacked."""
    path = Path(path)
    name, (first, *_) = _name_and_first_lines(path)
    for name_pattern, line_pattern, read in FORMATS:
        if re.search(name_pattern, name) and re.match(line_pattern, first):
            return read(path)
    return _read_plain(path)


def reject_data_files(paths: Iterable[str]) -> None:
    """Reject files of labeled data, whose annotation would be read as prose; standard input is not examined."""
    for path in paths:
        if path == STDIN:
            continue
        name, lines = _name_and_first_lines(Path(path))
        first = lines[0]
        known = any(re.search(pattern, name) and re.match(line, first) for pattern, line, _ in FORMATS)
        both = len(lines) == 2 and all(map(TWO_LINES_LOOK_LIKE_DATA.match, lines))
        if known or both or LOOKS_LIKE_DATA.match(first):
            raise InputError(
                f"{path}: is labeled data, not prose (it begins {first[:40]!r}); extract its text first: "
                f"elmokit task text TASK {Path(path).name} > text.txt, then give text.txt with --tokenized"
            )


def _name_and_first_lines(path: Path) -> tuple[str, list[str]]:
    """Return the name without the suffix of a compressed file, and the first two lines with text; ``""`` if none."""
    name = path.name.removesuffix(".gz").removesuffix(".xz").lower()
    line_bytes = MAX_BYTES if name.endswith(".json") else None  # a whole document may be one line
    lines = read_lines([path], or_latin1=True, line_bytes=line_bytes)  # raises for a missing file at the call
    if ".tar" in path.suffixes:
        return name, [""]
    return name, list(islice((line.text for line in lines if line.text.strip()), 2)) or [""]


def _read_plain(path: Path) -> Iterator[str]:
    yield from (cell for line in read_lines([path], or_latin1=True) for cell in line.text.split("\t") if cell.strip())
    for paragraph in join_wrapped(read_lines([path], or_latin1=True)):
        if "\n" in paragraph.text and "\t" not in paragraph.text:
            yield " ".join(unwrap(paragraph.text).split())


def _join(sentences: Iterable[tuple[str, ...]]) -> Iterator[str]:
    return (" ".join(tokens) for tokens in sentences)


def _read_squad(path: Path) -> Iterator[str]:
    context = None
    for question in read_squad(path):
        if question.context != context:  # the questions of a paragraph follow each other
            context = question.context
            yield context
        yield question.question


def _read_wsd(path: Path) -> Iterator[str]:
    return _join(sentence.tokens for sentence in read_wsd(path, find_keys(path)))


FORMATS: tuple[tuple[str, str, Callable[[Path], Iterator[str]]], ...] = (
    # (pattern of the name, pattern of the first line, reader)
    (r"blimp.*\.tar$", "", lambda path: (text for pair in read_blimp(path) for text in (pair.good, pair.bad))),
    (
        r"\.tar$",
        "",
        lambda path: _join(
            one.tokens for document in read_conll2012_archive(path, roles=False) for one in document.sentences
        ),
    ),
    (
        r"\.jsonl$",
        r'.*"sentence_good"',
        lambda path: (text for pair in read_blimp(path) for text in (pair.good, pair.bad)),
    ),
    (r"\.jsonl$", "", lambda path: (text for pair in read_snli(path) for text in (pair.premise, pair.hypothesis))),
    (r"\.json$", "", _read_squad),
    (r"\.data\.xml$", "", _read_wsd),
    (r"\.conllu$", "", lambda path: _join(sentence.tokens for sentence in read_conllu(path))),
    (
        "",
        r"#begin document ",
        lambda path: _join(one.tokens for document in read_conll2012(path, roles=False) for one in document.sentences),
    ),
    (r"\.conll$", "", lambda path: _join(sentence.tokens for sentence in read_conll2003(path))),
    (r"\.(ptb|mrg)$", "", lambda path: _join(sentence.tokens for sentence in read_ptb(path))),
    ("", r"\([0-4] [(\S].*\)$", lambda path: _join(tree.tokens for tree in read_sst(path))),
)
