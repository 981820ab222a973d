"""SQuAD's JSON: shared contexts, answers at their place, and what each fault says."""

import json
from pathlib import Path
from typing import Any

import pytest

from elmokit.errors import InputError
from elmokit.readers.squad import Answer, Question, read_squad

CONTEXT = "Ada wrote to Bo. Bo answered."


def question(name: str, *answers: tuple[object, object]) -> dict[str, Any]:
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"{name}?", "answers": listed}


def document(*questions: object, context: object = CONTEXT) -> dict[str, Any]:
    first = {"context": "Rain fell.", "qas": [question("first", ("Rain", 0))]}
    paragraphs = [first, {"context": context, "qas": list(questions)}]
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def write(folder: Path, content: object) -> Path:
    path = folder / "a.json"
    path.write_text(json.dumps(content, indent=1))
    return path


def test_questions_have_all_answers(tmp_path: Path) -> None:
    path = write(tmp_path, document(question("who", ("Ada", 0), ("Bo", 17)), question("why")))
    assert list(read_squad(path))[1:] == [
        Question("who", CONTEXT, "who?", (Answer("Ada", 0), Answer("Bo", 17))),
        Question("why", CONTEXT, "why?", ()),
    ]


def test_questions_on_a_paragraph_share_one_context(tmp_path: Path) -> None:
    path = write(tmp_path, document(question("who", ("Ada", 0)), question("whom", ("Bo", 13))))
    first, second, third = read_squad(path)
    assert second.context is third.context
    assert first.context != second.context


@pytest.mark.parametrize(
    ("text", "start", "message"),
    [
        ("Bo", 14, r"'Bo' is not at character 14 of the context, where there is 'o\.'; it first comes at 13: correct"),
        ("Bo", -12, r"'Bo' is not at character -12"),
        ("Bo", 900, r"'Bo' is not at character 900 of the context, where there is ''"),
        ("Eve", 0, r"'Eve' is not at character 0 of the context, where there is 'Ada'; it is nowhere"),
        ("", 0, "the text is empty"),
        (3, 0, "text is '3', but must be a string"),
        ("Ada", "0", "answer_start is '0', but must be a whole number"),
        ("Ada", False, "answer_start is 'False', but must be a whole number"),
        ("Ada", 0.0, "answer_start is '0.0', but must be a whole number"),
    ],
)
def test_an_answer_that_is_not_at_its_place_is_named(tmp_path: Path, text: object, start: object, message: str) -> None:
    path = write(tmp_path, document(question("who", ("Ada", 0)), question("whom", ("Bo", 13), (text, start))))
    place = r"a\.json: data\[0\]\.paragraphs\[1\]\.qas\[1\] \(question 'whom'\), answer 2"
    with pytest.raises(InputError, match=f"{place}: {message}"):
        list(read_squad(path))


def test_a_question_id_comes_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"paragraphs\[1\]\.qas\[0\]: id 'first' is there already"):
        list(read_squad(write(tmp_path, document(question("first")))))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"the document is '\[\]', but must be an object with 'data'"),
        ({"version": "1.1"}, "the document has no 'data', only version"),
        ({"data": {}}, "the document: data is '{}', but must be a list"),
        ({"data": [{"title": "t"}]}, r"data\[0\] has no 'paragraphs', only title"),
        ({"data": [{"paragraphs": ["x"]}]}, r"data\[0\]\.paragraphs\[0\] is 'x', but must be an object"),
        (document(context=None), r"data\[0\]\.paragraphs\[1\]: context is 'None', but must be a string"),
        (document({}), r"data\[0\]\.paragraphs\[1\]\.qas\[0\] has no 'id', only nothing"),
        (
            document({"id": "who", "question": "?"}),
            r".*qas\[0\] \(question 'who'\) has no 'answers', only id, question",
        ),
        (document({**question("who"), "question": 1}), r".*\(question 'who'\): question is '1'"),
    ],
)
def test_what_is_missing_or_of_another_kind_is_named(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.json: {message}"):
        list(read_squad(write(tmp_path, content)))


def test_text_that_is_no_json_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"version": "1.1",\n "data": [}')
    with pytest.raises(InputError, match=r"a\.json, line 2: no JSON \(Expecting value, character 11\)"):
        list(read_squad(path))
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"a\.json: JSON that cannot be read"):
        list(read_squad(path))
    path.write_text(f'{{"data": {"9" * 10_000}}}')
    with pytest.raises(InputError, match=r"a\.json: JSON that cannot be read"):
        list(read_squad(path))


@pytest.mark.parametrize(("split", "num_questions", "num_contexts"), [("train", 11_235, 2179), ("test", 3335, 688)])
def test_published_files_are_read_whole(data_dir: Path, split: str, num_questions: int, num_contexts: int) -> None:
    questions = list(read_squad(data_dir / "squad" / f"{split}-small.json.xz"))
    assert len(questions) == num_questions
    assert len({id(question.context) for question in questions}) == num_contexts
    assert all(question.answers for question in questions)
