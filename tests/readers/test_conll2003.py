"""Named-entity columns: both styles of tags, documents, and what each fault says."""

from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.conll2003 import TaggedSentence, read_conll2003


def write(folder: Path, text: str) -> Path:
    path = folder / "a.conll"
    path.write_bytes(text.encode())
    return path


def read(folder: Path, text: str) -> list[TaggedSentence]:
    return list(read_conll2003(write(folder, text)))


def tags(folder: Path, *column: str) -> tuple[str, ...]:
    (sentence,) = read(folder, "".join(f"w{index} {tag}\n" for index, tag in enumerate(column)))
    return sentence.tags


def test_sentences_end_at_blank_lines_and_at_the_end_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, "\nAda B-PER\nran O\n\n \t \n\nHome B-LOC") == [
        TaggedSentence(("Ada", "ran"), ("B-PER", "O"), 0),
        TaggedSentence(("Home",), ("B-LOC",), 0),
    ]


def test_iob1_becomes_bio(tmp_path: Path) -> None:
    iob1 = ("I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG", "I-ORG", "B-ORG", "I-ORG")
    bio = ("B-PER", "I-PER", "B-PER", "O", "B-LOC", "B-ORG", "I-ORG", "B-ORG", "I-ORG")
    assert tags(tmp_path, *iob1) == bio


def test_bio_stays_as_it_is(tmp_path: Path) -> None:
    bio = ("B-PER", "I-PER", "B-PER", "O", "B-creative-work", "I-creative-work", "B-LOC")
    assert tags(tmp_path, *bio) == bio


def test_a_span_does_not_go_on_in_the_next_sentence(tmp_path: Path) -> None:
    first, second = read(tmp_path, "Ada I-PER\n\nBo I-PER\n")
    assert (first.tags, second.tags) == (("B-PER",), ("B-PER",))


@pytest.mark.parametrize(
    "row", ["Ada I-PER", "Ada NNP I-PER", "Ada  NNP I-NP   I-PER ", "Ada\tI-PER", "Ada\tNNP\tI-PER"]
)
def test_two_to_four_columns_divided_by_tabs_or_spaces(tmp_path: Path, row: str) -> None:
    assert read(tmp_path, f"{row}\n") == [TaggedSentence(("Ada",), ("B-PER",), 0)]


def test_other_white_space_belongs_to_a_token(tmp_path: Path) -> None:
    (spaces,) = read(tmp_path, "2\xa01/2 O\na\u3000b O\n")
    (tabs,) = read(tmp_path, "New York\tB-LOC\n")
    assert (spaces.tokens, tabs.tokens) == (("2\xa01/2", "a\u3000b"), ("New York",))


# CoNLL-2003 has the line before every document, Wikigold after.
@pytest.mark.parametrize(
    "text",
    [
        "-DOCSTART- -X- O O\n\na x O O\n\nb x O O\n\n-DOCSTART- -X- O O\n\nc x O O\n",
        "a x O O\n\nb x O O\n\n-DOCSTART- O\n\nc x O O\n\n-DOCSTART- O\n",
        "-DOCSTART-\n\n-DOCSTART-\n\na O\n\nb O\n-DOCSTART-\nc O",
    ],
)
def test_docstart_lines_count_documents_and_are_no_tokens(tmp_path: Path, text: str) -> None:
    found = [(sentence.tokens, sentence.document) for sentence in read(tmp_path, text)]
    assert found == [(("a",), 0), (("b",), 0), (("c",), 1)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("Ada", r"1 column in 'Ada', but there must be 2 to 4, .*; give it its tag"),
        ("Ada x x x B-PER", r"5 columns .* but there must be 2 to 4"),
        ("Ada NNP B-PER", r"3 columns in 'Ada NNP B-PER', but 2 in the lines before"),
        ("\tO", r"column 1 of '\\tO' is empty"),
        ("Ada\t", r"column 2 of 'Ada\\t' is empty"),
        ("Ada S-PER", r"tag 'S-PER', but a tag must be O, B-TYPE or I-TYPE; convert"),
        ("Ada B-", r"tag 'B-'"),
        ("Ada NNP", r"tag 'NNP'"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    sentences = read_conll2003(write(tmp_path, f"fine O\n\nstill O\n{row}\n"))
    assert next(sentences).tokens == ("fine",)
    with pytest.raises(InputError, match=rf"a\.conll, line 4: {message}"):
        next(sentences)


@pytest.mark.parametrize(
    ("name", "num_sentences", "num_tokens", "num_documents", "num_spans"),
    [
        ("wikigold", 1696, 39_007, 145, 3558),
        ("wnut17.train", 3394, 62_730, 1, 1975),
        ("wnut17.dev", 1009, 15_733, 1, 836),
        ("wnut17.test", 1287, 23_394, 1, 1079),
    ],
)
def test_published_files_are_read_whole(
    data_dir: Path, name: str, num_sentences: int, num_tokens: int, num_documents: int, num_spans: int
) -> None:
    sentences = list(read_conll2003(data_dir / "ner" / f"{name}.conll.xz"))
    assert len(sentences) == num_sentences
    assert sum(len(sentence.tokens) for sentence in sentences) == num_tokens
    assert len({sentence.document for sentence in sentences}) == sentences[-1].document + 1 == num_documents
    assert sum(tag.startswith("B-") for sentence in sentences for tag in sentence.tags) == num_spans
