"""Semantic roles in files and in typed lines, and predictions as people and programs read them."""

import json
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.tasks.srl import TASK, RoleExample

# Files


ROWS = """\
#begin document (tale); part 000
tale 0 0 Ann NNP * - - - - * (ARG0*) * -
tale 0 1 wants VBZ * want 01 - - * (V*) * -
tale 0 2 to TO * - - - - * (ARG1* * -
tale 0 3 leave VB * leave 01 - - * *) (V*) -

tale 0 0 Why WRB * - - - - * -
tale 0 1 ? . * - - - - * -

#end document
"""


def test_a_file_gives_one_example_per_predicate_and_none_for_sentences_without(tmp_path: Path):
    (tmp_path / "tale.conll").write_text(ROWS, "utf-8")
    tokens = ("Ann", "wants", "to", "leave")
    assert TASK.read_training(tmp_path / "tale.conll") == [
        RoleExample(tokens, 1, ("B-ARG0", "B-V", "B-ARG1", "I-ARG1")),
        RoleExample(tokens, 3, ("O", "O", "O", "B-V")),
    ]


def test_a_folder_is_read_with_all_folders_below_it(tmp_path: Path):
    for name, word in (("b/two.v4_gold_conll", "Ben"), ("a/one.gold_conll", "Ann")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(ROWS.replace("Ann", word).replace("(tale)", f"({word})"), "utf-8")
    (tmp_path / "a" / "notes.txt").write_text("nothing to read", "utf-8")
    assert [one.tokens[0] for one in TASK.read(tmp_path)] == ["Ann", "Ann", "Ben", "Ben"]


def test_a_document_that_a_folder_has_twice_is_rejected(tmp_path: Path):
    for name in ("tale.v4_gold_conll", "tale.v4_auto_conll"):
        (tmp_path / name).write_text(ROWS, "utf-8")
    with pytest.raises(InputError, match="'tale', part 0, occurs twice"):
        TASK.read_training(tmp_path)


def test_a_file_without_predicates_is_rejected(tmp_path: Path):
    path = tmp_path / "none.conll"
    path.write_text("#begin document (x); part 000\nx 0 0 Why WRB * - - - - * -\n\n#end document\n", "utf-8")
    with pytest.raises(InputError, match=r"none\.conll: no sentence has a predicate with roles"):
        TASK.read_training(path)


def test_an_empty_file_is_rejected(tmp_path: Path):
    path = tmp_path / "empty.conll"
    path.touch()
    with pytest.raises(InputError, match=r"empty\.conll: no documents"):
        TASK.read_training(path)


def test_a_damaged_file_is_rejected_with_its_line(tmp_path: Path):
    path = tmp_path / "tale.conll"
    path.write_text(ROWS.replace("(ARG1*", "(ARG1"), "utf-8")
    with pytest.raises(InputError, match=r"tale\.conll, line 4: '\(ARG1'"):
        TASK.read_training(path)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "count"), [("train", 31_126), ("dev", 3_793), ("test", 3_652)])
def test_the_web_treebank_is_read_whole(data_dir: Path, part: str, count: int):
    examples = TASK.read(data_dir / "srl" / f"ewt-propbank-{part}.conll.xz")
    assert len(examples) == count
    assert all(one.tags is not None and one.tags[one.predicate] == "B-V" for one in examples)


# Lines that a person types


def test_stars_mark_the_predicates_of_a_line():
    assert TASK.read_text("She *sold* the boat that he had *built*.") == [
        RoleExample(tuple("She sold the boat that he had built .".split()), predicate, None) for predicate in (1, 7)
    ]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ('"*Sell*!", he *cried*…', ["Sell", "cried"]),
        ("(*Stop*) the U.S. *says* etc. - and—*goes* on", ["Stop", "says", "goes"]),
        ("They *don't* know *(it)*", ["don", "it"]),
        ("*go* *go* go", ["go", "go"]),
        ("a*b* *c*d ** *** e**f * g * *run*", ["run"]),
    ],
)
def test_a_mark_finds_its_word_whatever_is_around_it(line: str, asked: list[str]):
    found = TASK.read_text(line)
    assert [one.tokens[one.predicate] for one in found] == asked
    assert len({one.predicate for one in found}) == len(found)


@pytest.mark.parametrize("line", ["She sold it .", "", "2 * 3 * 4", "** bold **"])
def test_a_line_without_a_mark_is_rejected_and_reported_how_to_mark(line: str):
    with pytest.raises(InputError, match=r"^no predicate is marked in .*'She \*sold\* it \.'"):
        TASK.read_text(line)


# Predictions


def test_a_prediction_is_shown_with_its_arguments_in_brackets():
    (asked,) = TASK.read_text("She had *looked* it up yesterday")
    tags = ("B-ARG0", "O", "B-V", "B-ARG1", "B-C-V", "B-ARGM-TMP")
    assert TASK.show(asked, tags) == "[ARG0 She] had *looked* [ARG1 it] [C-V up] [ARGM-TMP yesterday]"
    # A model may put the predicate elsewhere, and into an argument; what it said is what is shown.
    assert TASK.show(asked, ("B-V", "B-ARG1", "I-ARG1", "I-ARG1", "O", "O")) == (
        "[V She] [ARG1 had *looked* it] up yesterday"
    )


def test_a_prediction_as_json():
    (asked,) = TASK.read_text("Ann *sold* the boat")
    made = TASK.to_json(asked, ("B-ARG0", "B-V", "B-ARG1", "I-ARG1"))
    assert json.loads(json.dumps(made)) == {
        "tokens": ["Ann", "sold", "the", "boat"],
        "predicate": {"index": 1, "token": "sold"},
        "tags": ["B-ARG0", "B-V", "B-ARG1", "I-ARG1"],
        "arguments": [
            {"role": "ARG0", "start": 0, "end": 1, "tokens": ["Ann"]},
            {"role": "ARG1", "start": 2, "end": 4, "tokens": ["the", "boat"]},
        ],
    }
