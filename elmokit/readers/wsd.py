"""Word senses: the XML and gold keys of the Raganato framework, and WordNet's sense index.

    <corpus><text><sentence>
    <wf lemma="the" pos="DET">The</wf>
    <instance id="d000.s000.t000" lemma="primary_election" pos="NOUN">primary election</instance>

An element can hold several words. Each becomes a token, with the element's lemma and part of speech.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from elmokit.errors import InputError
from elmokit.text.lines import Line, read_lines

DATA, KEYS = ".data.xml", ".gold.key.txt"
PACKED = ("", ".gz", ".xz")

_POS_OF_TYPE = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}  # 5 is an adjective satellite
_PLACES = dict.fromkeys(("corpus", "text", "sentence"), "no sentence") | dict.fromkeys(("wf", "instance"), "a sentence")
_SENSE = re.compile(r"((\S+)%([1-5]):\S+) [0-9]+ ([0-9]+) [0-9]+")


@dataclass(frozen=True)
class SenseInstance:
    """A word or phrase, tokens ``start`` to ``end`` (not included), and the senses that annotators gave it."""

    id: str
    start: int
    end: int
    lemma: str
    pos: str
    """NOUN, VERB, ADJ or ADV."""
    senses: tuple[str, ...]
    """WordNet sense keys, one or more; any of them is right."""


@dataclass(frozen=True)
class SenseSentence:
    """A sentence; lemmas and parts of speech are one a token."""

    tokens: tuple[str, ...]
    lemmas: tuple[str, ...]
    pos: tuple[str, ...]
    instances: tuple[SenseInstance, ...]


class _Key(NamedTuple):
    line: int
    senses: tuple[str, ...]


def read_wsd(data_path: str | Path, keys_path: str | Path) -> Iterator[SenseSentence]:
    """Yield the sentences of a ``.data.xml`` file with the senses of its ``.gold.key.txt``; .gz and .xz are unpacked.

    The keys are read whole. Every instance must have one, and every key an instance.
    """
    return _read_sentences(data_path, read_lines([data_path]), keys_path, read_lines([keys_path]))


def find_keys(data_path: str | Path) -> Path:
    """Return the ``.gold.key.txt`` file beside a ``.data.xml`` file; both may be packed."""
    path = Path(data_path)
    if DATA not in path.name:
        raise InputError(f"{path}: expected a file NAME{DATA}, also .gz and .xz")
    stem = path.name[: path.name.index(DATA)]
    keys = [path.with_name(f"{stem}{KEYS}{suffix}") for suffix in PACKED]
    found = [one for one in keys if one.exists()]
    if not found:
        raise InputError(f"{path}: its keys are missing; expected {keys[0].name} beside it")
    return found[0]


def read_sense_index(path: str | Path) -> dict[tuple[str, str], str]:
    """Return the first sense of every (lemma, part of speech) in WordNet's ``index.sense``.

    Parts of speech have the framework's names: NOUN, VERB, ADJ, ADV.
    """
    first_senses: dict[tuple[str, str], str] = {}
    for line in read_lines([path]):
        match = _SENSE.fullmatch(line.text)
        if not match:
            raise InputError(
                f"{line.path}, line {line.number}: found {line.text[:80]!r}, but expected a sense key, an offset, a "
                "sense number and a count, such as 'bank%1:17:01:: 09213565 1 25'; use WordNet's own index.sense"
            )
        sense, lemma, synset_type, number = match.groups()
        if number == "1":
            word = lemma, _POS_OF_TYPE[synset_type]
            if word in first_senses:
                raise InputError(
                    f"{line.path}, line {line.number}: {sense} is a first sense of {word[0]!r} ({word[1]}), but "
                    f"{first_senses[word]} is one already; use WordNet's own index.sense"
                )
            first_senses[word] = sense
    return first_senses


def _read_sentences(
    data_path: str | Path, data_lines: Iterable[Line], keys_path: str | Path, key_lines: Iterable[Line]
) -> Iterator[SenseSentence]:
    keys = _read_keys(key_lines)
    parser = _CorpusParser(data_path, keys_path, keys)
    for line in data_lines:
        yield from parser.feed(line.text + "\n")
    yield from parser.feed("", is_last=True)
    for instance_id, key in keys.items():  # those that are left
        raise InputError(
            f"{keys_path}, line {key.line}: {instance_id!r} is no instance of {data_path}; check that the two files "
            "belong together"
        )


def _read_keys(lines: Iterable[Line]) -> dict[str, _Key]:
    keys: dict[str, _Key] = {}
    for line in lines:
        if not line.text.strip():
            continue
        instance_id, *senses = line.text.split()
        if not senses:
            raise InputError(
                f"{line.path}, line {line.number}: found {line.text[:80]!r}, but expected an instance's id and one or "
                "more sense keys; correct the line"
            )
        if instance_id in keys:
            raise InputError(
                f"{line.path}, line {line.number}: {instance_id!r} has a line already ({keys[instance_id].line}); "
                "delete one of the two"
            )
        keys[instance_id] = _Key(line.number, tuple(senses))
    return keys


class _CorpusParser:
    """Turn XML into sentences, piece by piece. A key is taken out of ``keys`` when its instance comes.

    A document type is rejected, because it can declare entities: nested ones blow up a small file to any size. The
    framework's files have none.
    """

    def __init__(self, path: str | Path, keys_path: str | Path, keys: dict[str, _Key]) -> None:
        self._path, self._keys_path, self._keys = path, keys_path, keys
        self._finished: list[SenseSentence] = []
        self._in_sentence = False
        self._word: dict[str, str] | None = None  # attributes of the open <wf> or <instance>
        self._text = ""
        self._clear()
        self._expat = expat.ParserCreate()
        self._expat.buffer_text = True
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._add_text
        self._expat.StartDoctypeDeclHandler = self._refuse_document_type

    def feed(self, text: str, *, is_last: bool = False) -> list[SenseSentence]:
        """Return the sentences that end in this piece."""
        try:
            self._expat.Parse(text, is_last)
        except expat.ExpatError as error:
            raise InputError(
                f"{self._path}, line {error.lineno}: no XML, damaged or cut short ({expat.ErrorString(error.code)}); "
                "download the file again"
            ) from error
        finished, self._finished = self._finished, []
        return finished

    def _clear(self) -> None:
        self._tokens: list[str] = []
        self._lemmas: list[str] = []
        self._pos: list[str] = []
        self._instances: list[SenseInstance] = []

    def _fault(self, message: str) -> InputError:
        return InputError(f"{self._path}, line {self._expat.CurrentLineNumber}: {message}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        inside = "a word" if self._word is not None else "a sentence" if self._in_sentence else "no sentence"
        if _PLACES.get(name) != inside:
            raise self._fault(
                f"<{name}> inside {inside}, but expected corpus > text > sentence > wf or instance; check that the "
                "file is in the framework's format"
            )
        if name == "sentence":
            self._in_sentence = True
        elif inside == "a sentence":
            for wanted in ("lemma", "pos", "id") if name == "instance" else ("lemma", "pos"):
                if wanted not in attributes:
                    raise self._fault(f"<{name}> has no attribute {wanted!r}; correct the line")
            self._word, self._text = attributes, ""

    def _add_text(self, text: str) -> None:
        if self._word is not None:
            self._text += text
        elif text.strip():
            raise self._fault(f"text {text.strip()[:80]!r} outside of wf and instance; put it into one of them")

    def _end(self, name: str) -> None:
        if self._word is not None:
            self._end_word(name, self._word)
            self._word = None
        elif name == "sentence":
            if not self._tokens:
                raise self._fault("the sentence that ends here has no words; take it out")
            parts = tuple(self._tokens), tuple(self._lemmas), tuple(self._pos), tuple(self._instances)
            self._finished.append(SenseSentence(*parts))
            self._in_sentence = False
            self._clear()

    def _end_word(self, name: str, attributes: dict[str, str]) -> None:
        words = self._text.split()
        if not words:
            raise self._fault(f"<{name}> has no text; correct the line")
        lemma, pos = attributes["lemma"], attributes["pos"]
        start = len(self._tokens)
        self._tokens += words
        self._lemmas += [lemma] * len(words)
        self._pos += [pos] * len(words)
        if name == "instance":
            key = self._keys.pop(attributes["id"], None)
            if key is None:
                raise self._fault(
                    f"instance {attributes['id']!r} has no line in {self._keys_path}, or comes twice; check that "
                    "the two files belong together"
                )
            end = len(self._tokens)
            self._instances.append(SenseInstance(attributes["id"], start, end, lemma, pos, key.senses))

    def _refuse_document_type(self, name: str, *_: object) -> None:
        raise self._fault(f"<!DOCTYPE {name}> is not allowed, as it can declare entities; take the declaration out")
