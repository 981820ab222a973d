"""CoNLL-U: words, what is passed over, and what each fault says."""

from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.conllu import UDSentence, read_conllu

SHE = "1\tShe\tshe\tPRON\tPRP\tCase=Nom\t2\tnsubj\t_\t_"
RAN = "2\tran\trun\tVERB\tVBD\t_\t0\troot\t_\tSpaceAfter=No"


def write(folder: Path, *lines: str) -> Path:
    path = folder / "a.conllu"
    path.write_bytes("\n".join(lines).encode())
    return path


def test_columns_become_fields(tmp_path: Path) -> None:
    path = write(tmp_path, "# text = She ran", SHE, RAN, "", "", "1\t_\t_\tSYM\t_\t_\t0\troot\t_\t_")
    assert list(read_conllu(path)) == [
        UDSentence(
            ("She", "ran"),
            ("PRON", "VERB"),
            ("PRP", "VBD"),
            ("she", "run"),
            (2, 0),
            ("nsubj", "root"),
            ("Case=Nom", "_"),
        ),
        UDSentence(("_",), ("SYM",), ("_",), ("_",), (0,), ("root",), ("_",)),
    ]


def test_text_that_was_tagged_but_not_parsed_is_read(tmp_path: Path) -> None:
    (sentence,) = read_conllu(write(tmp_path, "1\tShe\t_\t_\tPRP\t_\t_\t_\t_\t_"))
    assert (sentence.xpos, sentence.heads) == (("PRP",), (None,))
    assert sentence.directions == ("_",)


def test_the_side_of_a_head_follows_from_its_number(tmp_path: Path) -> None:
    (sentence,) = read_conllu(write(tmp_path, SHE, RAN, "3\tup\tup\tADP\tRP\t_\t2\tprt\t_\t_"))
    assert sentence.directions == ("right", "root", "left")


def test_multi_word_tokens_and_empty_nodes_are_passed_over(tmp_path: Path) -> None:
    blank = "\t".join(["x"] + ["_"] * 8)
    path = write(tmp_path, f"0.1\t{blank}", f"1-2\t{blank}", SHE, f"1.1\t{blank}", RAN, f"2.10\t{blank}")
    (sentence,) = read_conllu(path)
    assert sentence.tokens == ("She", "ran")


def test_spaces_belong_to_a_token(tmp_path: Path) -> None:
    (sentence,) = read_conllu(write(tmp_path, "1\t10 000\xa0\t10 000\tNUM\tCD\t_\t0\troot\t_\t_"))
    assert sentence.tokens == ("10 000\xa0",)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2 ran run VERB VBD _ 0 root _ _", "1 columns in '2 ran"),
        (RAN + "\t_", "11 columns"),
        ("3" + RAN[1:], "word id '3', but 2 comes next"),
        (SHE, "word id '1', but 2 comes next"),
        ("2-b" + RAN[1:], "word id '2-b'"),
        ("a.2" + RAN[1:], "word id 'a.2'"),
        (RAN.replace("ran", ""), "column 2 is empty"),
        (RAN.replace("root", ""), "column 8 is empty"),
        (RAN.replace("\t0\t", "\t3\t"), "head '3', but it must be a number from 0 to 2"),
        (RAN.replace("\t0\t", "\t-1\t"), "head '-1'"),
        (RAN.replace("\t0\t", "\t²\t"), "head '²'"),
        (RAN.replace("\t0\t", f"\t{'9' * 5000}\t"), "head '999"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.conllu, line 3: {message}"):
        list(read_conllu(write(tmp_path, "# text = She ran", SHE, row)))


@pytest.mark.parametrize(
    ("split", "num_sentences", "num_tokens"),
    [
        pytest.param("train", 12_544, 204_577, marks=pytest.mark.slow),
        ("dev", 2001, 25_147),
        ("test", 2077, 25_094),
    ],
)
def test_published_files_are_read_whole(data_dir: Path, split: str, num_sentences: int, num_tokens: int) -> None:
    lengths = [len(sentence.tokens) for sentence in read_conllu(data_dir / "pos" / f"en_ewt-ud-{split}.conllu.xz")]
    assert (len(lengths), sum(lengths)) == (num_sentences, num_tokens)
