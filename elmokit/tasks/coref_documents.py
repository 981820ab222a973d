"""Documents with coreference: read from files or typed text, and cut to windows for training."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from elmokit.errors import InputError
from elmokit.readers.conll2012 import Document, Mention, Sentence, read_conll2012, read_conll2012_archive
from elmokit.text.rules import RAW_ENGLISH, TextRules

Clusters = tuple[tuple[Mention, ...], ...]

GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")  # OntoNotes: the first part of a document's name, before /
TRAINING_SENTENCES = 50  # of a document per epoch of training
SENTENCE_ENDS = {"/.": ".", "/?": "?"}
FILE_ENDS = ("conll", "conll.gz", "conll.xz")
ARCHIVE_ENDS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")


def read_documents(path: Path, *, roles: bool = False) -> list[Document]:
    """Read the documents of a file in CoNLL-2012's columns, of all such files in a folder, or of a tar archive.

    OntoNotes' ``/.`` and ``/?`` are read as ``.`` and ``?``, as in Lee et al. 2017. The columns of roles are parsed
    only if ``roles`` is true.
    """
    found: dict[tuple[str, int], Document] = {}
    for document in _find_documents(path, roles=roles):
        where = f"{path}: document {document.name!r}, part {document.part}"
        if not document.sentences:
            raise InputError(f"{where}, has no sentences; leave it out, or download the file again")
        if found.setdefault((document.name, document.part), document) is not document:
            raise InputError(f"{where}, occurs twice; give one file of it, gold or automatic")
    if not found:
        raise InputError(f"{path}: no documents; expected '#begin document (name); part 000' and its rows")
    return [
        replace(document, sentences=_without_slashes(document), clusters=tidy_clusters(document.clusters))
        for document in found.values()
    ]


def _without_slashes(document: Document) -> tuple[Sentence, ...]:
    return tuple(
        replace(sentence, tokens=tuple(SENTENCE_ENDS.get(token, token) for token in sentence.tokens))
        for sentence in document.sentences
    )


def make_document(text: str, rules: TextRules = RAW_ENGLISH) -> Document | None:
    """Return running text, split into sentences, as an unlabeled document; None if it has no words."""
    found = [rules.tokens(sentence) for line in text.split("\n") for sentence in rules.sentences(line)]
    sentences = [Sentence(tuple(tokens), (None,) * len(tokens), None, ()) for tokens in found if tokens]
    return Document("text", 0, tuple(sentences), ()) if sentences else None


def tidy_clusters(clusters: Iterable[Sequence[Mention]]) -> Clusters:
    """Merge clusters that share a mention, drop singletons, and sort by position."""
    merged: list[set[Mention]] = []
    for mentions in map(set, clusters):
        meeting = [others for others in merged if not others.isdisjoint(mentions)]
        merged = [others for others in merged if others.isdisjoint(mentions)]
        merged.append(mentions.union(*meeting))
    return tuple(sorted(tuple(sorted(mentions)) for mentions in merged if len(mentions) > 1))


def choose_window(document: Document, chance: np.random.Generator) -> Document:
    """Return a random window of consecutive sentences of a long document, or a short document itself.

    Mentions outside are dropped, and then singletons.
    """
    num_left_out = len(document.sentences) - TRAINING_SENTENCES
    if num_left_out <= 0:
        return document
    start = int(chance.integers(num_left_out + 1))
    inside = range(start, start + TRAINING_SENTENCES)
    clusters = [
        [replace(mention, sentence=mention.sentence - start) for mention in cluster if mention.sentence in inside]
        for cluster in document.clusters
    ]
    sentences = document.sentences[inside.start : inside.stop]
    return replace(document, sentences=sentences, clusters=tidy_clusters(clusters))


def genre(document: Document) -> str | None:
    """Return the genre in the name of an OntoNotes document; None for other documents."""
    first, slash, _ = document.name.partition("/")
    return first if slash and first in GENRES else None


def _find_documents(path: Path, *, roles: bool) -> Iterator[Document]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.name.endswith(FILE_ENDS) and file.is_file())
        if not files:
            raise InputError(f"{path}: no file in the folder has a name that ends in {', '.join(FILE_ENDS)}")
        return chain.from_iterable(read_conll2012(file, roles=roles) for file in files)
    if path.name.lower().endswith(ARCHIVE_ENDS):
        return read_conll2012_archive(path, roles=roles)
    return read_conll2012(path, roles=roles)
