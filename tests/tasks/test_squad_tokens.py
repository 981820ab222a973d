"""Tokens never lose their place, and are cut where answers are."""

# ruff: noqa: RUF001

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.metrics.squad import score_answers
from elmokit.readers.squad import read_squad
from elmokit.tasks.squad_tokens import SquadText, tokenize_paragraph, tokenize_question

UNSEEN = "\u200b\u200e\ufeff\x00"
texts = st.text(alphabet="aB1 .,:;'’n\"“–-_/$°()[]…`s t\n\u00a0\u0301\u00ad" + UNSEEN, max_size=40) | st.text(
    max_size=30
)


def is_unseen(char: str) -> bool:
    return char.isspace() or unicodedata.category(char) in ("Cc", "Cf")


def pieces(made: SquadText) -> list[str]:
    return [made.text[start:end] for start, end in zip(made.starts_T, made.ends_T, strict=True)]


@given(texts)
def test_tokens_stand_where_they_say_and_leave_nothing_out_but_what_no_one_sees(text: str):
    for made in (tokenize_paragraph(text), tokenize_question(text)):
        assert made.text == text
        assert len(made.tokens) == len(made.starts_T) == len(made.ends_T)
        rebuilt, place = "", 0
        for start, end in zip(made.starts_T.tolist(), made.ends_T.tolist(), strict=True):
            gap = text[place:start]
            assert all(is_unseen(char) for char in gap)
            assert start < end
            assert not any(char.isspace() for char in text[start:end])
            rebuilt += gap + text[start:end]
            place = end
        assert rebuilt + text[place:] == text
        assert all(is_unseen(char) for char in text[place:])


@given(texts)
def test_a_token_differs_from_its_piece_of_the_text_in_quotes_and_dashes_only(text: str):
    made = tokenize_paragraph(text)
    for token, piece in zip(made.tokens, pieces(made), strict=True):
        if token != piece:
            assert piece.replace("’", "'") == token or not any(char.isalnum() for char in piece)


@given(texts, st.data())
def test_the_tokens_of_a_stretch_are_those_that_share_a_character_with_it(text: str, data: st.DataObject):
    made = tokenize_paragraph(text)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    stretch = set(range(start, end))
    spans = zip(made.starts_T.tolist(), made.ends_T.tolist(), strict=True)
    touched = [index for index, span in enumerate(spans) if stretch & set(range(*span))]
    if end > start:
        assert made.find_tokens(start, end) == ((touched[0], touched[-1]) if touched else None)
    if touched:
        first, last = made.find_characters(touched[0], touched[-1])
        assert set(range(first, last)) >= {place for place in stretch if first <= place < last}
        assert made.find_tokens(first, last) == (touched[0], touched[-1])


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Ann's dog didn't bark.", "Ann 's dog did n't bark ."),
        ("They’re O’Neill’s, DON’T YOU'LL", "They 're O'Neill 's , DO N'T YOU 'LL"),
        ("rock'n'roll dogs' 'tis '90s", "rock'n'roll dogs ' ' tis ' 90s"),
        ("“Yes” ``no'' „nie‟ «non» ‘so’ `x´", '" Yes " " no " " nie " " non " \' so \' \' x \''),
        ("a well-known and/or x--y – z—w", "a well - known and / or x -- y -- z -- w"),
        ("1914–1918, 2-1", "1914 -- 1918 , 2 - 1"),
        ("US$5, £1,000.50 or 3,4 at 9:30: .5", "US $ 5 , £ 1,000.50 or 3,4 at 9:30 : .5"),
        ("12°C 5% #1 AT&T C++", "12 ° C 5 % # 1 AT & T C + +"),
        ("_a_ b_c __ d", "_ a _ b_c _ _ d"),
        ("(see [3]) {x}", "( see [ 3 ] ) { x }"),
        ("Wait... what… now?!", "Wait ... what ... now ? !"),
        ("the U.S. and Ph.D. in Wash. etc.) at example.com", "the U.S. and Ph.D. in Wash. etc. ) at example.com"),
        ("One ended.Two began.", "One ended . Two began ."),
        ("na\u0308ive co\u00adop a\u200bb\ufeff", "na\u0308ive co\u00adop a b"),
        ("", ""),
        (" \n\u00a0 ", ""),
    ],
)
def test_where_a_text_is_cut(text: str, tokens: str):
    assert " ".join(tokenize_paragraph(text).tokens) == tokens
    assert " ".join(tokenize_question(text).tokens) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It rained.  It froze.", "It rained . It froze ."),
        ('He said "Go." Then he went.[4] Ann slept.', 'He said " Go . " Then he went . [ 4 ] Ann slept .'),
        ("He met Dr. No in the U.S. He ran.", "He met Dr. No in the U.S. He ran ."),
        ("Born in Mass. (ca. 1900).\n\nDied.", "Born in Mass. ( ca. 1900 ) . Died ."),
    ],
)
def test_a_full_stop_is_a_token_where_a_sentence_ends(text: str, tokens: str):
    assert " ".join(tokenize_paragraph(text).tokens) == tokens


def test_a_question_is_one_sentence():
    assert tokenize_question("Who said no. That is all?").tokens[2:4] == ("no.", "That")


def test_answers_are_whole_tokens(data_dir: Path):
    """The rest, 3 in 1,000, are annotators' slips: answers that begin or end within a word."""
    gold, found = [], []
    kept: dict[str, SquadText] = {}
    for question in list(read_squad(data_dir / "squad" / "test-small.json.xz"))[:1500]:
        made = kept.get(question.context) or tokenize_paragraph(question.context)
        kept[question.context] = made
        for answer in question.answers:
            tokens = made.find_tokens(answer.start, answer.start + len(answer.text))
            assert tokens is not None
            start, end = made.find_characters(*tokens)
            gold.append([answer.text])
            found.append(question.context[start:end])
    assert score_answers(gold, found).exact_match > 0.997
