"""Documents with coreference: read from files or typed text, cut to windows, and clustered from a model's output.

Shapes: M spans that a model kept, N pairs of them with nonzero probability, K spans of several models together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class CorefOutput:
    """Probability of pairs of mention and antecedent. Models of an ensemble may keep different spans.

    The rest to 1 is the probability that a mention has no antecedent; a span that is not listed has none.
    """

    mentions_M3: NDArray[np.int64]
    """Sentence, start and end of the kept spans, in document order."""
    pairs_N2: NDArray[np.int64]
    """Index of a mention in that list, and of an antecedent."""
    probabilities_N: NDArray[np.float64]


def link_mentions(output: CorefOutput) -> Clusters:
    """Link every mention to its most probable antecedent, unless none is more probable; return the clusters."""
    mentions = [Mention(*row) for row in output.mentions_M3.tolist()]
    clusters: dict[int, list[Mention]] = {}  # by the place of each of their mentions
    for place, antecedent in enumerate(_choose_antecedents(output)):
        clusters[place] = clusters[antecedent] if antecedent < place else []
        clusters[place].append(mentions[place])
    distinct = {id(cluster): tuple(cluster) for cluster in clusters.values()}
    return tuple(cluster for cluster in distinct.values() if len(cluster) > 1)


def mean_output(outputs: Sequence[CorefOutput]) -> CorefOutput:
    """Return the mean of all probabilities; a span that a model did not keep has no antecedent for that model."""
    mentions_M3, places_K = np.unique(
        np.concatenate([output.mentions_M3 for output in outputs]), axis=0, return_inverse=True
    )
    ends = np.cumsum([len(output.mentions_M3) for output in outputs])[:-1]
    of_models = np.split(places_K.reshape(-1), ends)
    pairs = [place_K[output.pairs_N2] for place_K, output in zip(of_models, outputs, strict=True)]
    pairs_N2, places_N = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)
    probabilities = np.concatenate([output.probabilities_N for output in outputs])
    total_N = np.bincount(places_N.reshape(-1), probabilities, minlength=len(pairs_N2))
    return CorefOutput(mentions_M3, pairs_N2, total_N / len(outputs))


def _choose_antecedents(output: CorefOutput) -> list[int]:
    """Return the index of the most probable antecedent of every mention, or its own if none is as probable."""
    num_mentions = len(output.mentions_M3)
    places_N, antecedents_N = output.pairs_N2.T
    none_M = 1.0 - np.bincount(places_N, output.probabilities_N, minlength=num_mentions)
    # By rising probability, so that the last one written is the largest; of equals it is the nearest.
    order = np.lexsort((antecedents_N, output.probabilities_N))
    order = order[output.probabilities_N[order] > none_M[places_N[order]]]
    chosen_M = np.arange(num_mentions)
    chosen_M[places_N[order]] = antecedents_N[order]
    return [int(place) for place in chosen_M]
