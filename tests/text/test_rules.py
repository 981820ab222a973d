"""Raw and tokenized text, and how each task reads it."""

import pytest

from elmokit.errors import InputError
from elmokit.tasks.names import TASKS, get_task
from elmokit.text.lines import Line
from elmokit.text.rules import RAW_ENGLISH, TextRules

TOKENIZED = TextRules(tokenized=True)
FRENCH = TextRules(language="fr")


def test_raw_text_is_split_by_its_language() -> None:
    assert RAW_ENGLISH.sentences("It rains. We stay.") == ["It rains.", "We stay."]
    assert RAW_ENGLISH.tokens("It rains.") == ["It", "rains", "."]
    assert FRENCH.tokens("l'eau") == ["l'", "eau"]
    german = TextRules(split=True, language="de")  # which knows the abbreviation
    assert german.sentences("Er kam bzw. Sie ging. Es regnet.") == ["Er kam bzw. Sie ging.", "Es regnet."]


def test_tokenized_text_is_left_as_it_is() -> None:
    assert TOKENIZED.sentences("It rains. We stay.") == ["It rains. We stay."]
    assert TOKENIZED.tokens(" It  rains. ") == ["It", "rains."]


def test_lines_are_sentences_unless_they_are_split_or_wrapped() -> None:
    assert TextRules().sentences("It rains. We stay.") == ["It rains. We stay."]
    assert TextRules(wrapped=True).sentences("A well-\nknown man. He") == ["A well-known man.", "He"]


def test_wrapped_lines_are_joined_to_paragraphs() -> None:
    lines = [Line(text, "a.txt", number) for number, text in enumerate(["It", "rains.", "", "We"], start=1)]
    assert [line.text for line in TextRules(wrapped=True).paragraphs(lines)] == ["It\nrains.", "We"]
    assert list(TextRules().paragraphs(lines)) == lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenized": True, "split": True}, "one sentence per line already; leave out split or tokenized"),
        ({"tokenized": True, "wrapped": True}, "leave out wrapped or tokenized"),
        ({"language": "xx"}, "'xx' has no tokenizer"),
    ],
)
def test_rules_that_contradict_each_other_are_rejected(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextRules(**options)


def test_the_language_of_tokenized_text_does_not_matter() -> None:
    assert TextRules(tokenized=True, language="xx").tokens("a b") == ["a", "b"]


@pytest.mark.parametrize("name", ["ner", "sst"])
def test_tasks_read_one_sentence_per_line(name: str) -> None:
    (example,) = get_task(name).read_text("don't stop.", TOKENIZED)
    assert example.tokens == ("don't", "stop.")


def test_pairs_are_separated_by_a_tab() -> None:
    (pair,) = get_task("snli").read_text("don't stop.\tgo on.", TOKENIZED)
    assert (pair.premise, pair.hypothesis) == (("don't", "stop."), ("go", "on."))


def test_marked_predicates_are_tokens_of_the_text() -> None:
    first, second = get_task("srl").read_text("She (then) *sold* it, and *ran*.", TOKENIZED)
    assert first.tokens == ("She", "(then)", "sold", "it,", "and", "ran.")
    assert (first.predicate, second.predicate) == (2, 5)


def test_a_documents_lines_are_sentences() -> None:
    (document,) = get_task("coref").read_text("Ann ran. Ben too.\nThey won.", TOKENIZED)
    assert [sentence.tokens for sentence in document.sentences] == [("Ann", "ran.", "Ben", "too."), ("They", "won.")]


def test_questions_are_asked_of_raw_text_only() -> None:
    for rules in (TOKENIZED, FRENCH):
        with pytest.raises(InputError, match="without --tokenized and --language"):
            get_task("squad").read_text("A b.\tC?", rules)


def test_every_task_reads_raw_text() -> None:
    lines = {"squad": "A b.\tC?", "snli": "A.\tB.", "srl": "A *b* c."}
    for name in TASKS:
        assert get_task(name).read_text(lines.get(name, "A b."), RAW_ENGLISH)
