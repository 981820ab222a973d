"""Raw sentences to tokens, and each token's place in the raw string."""

# ruff: noqa: RUF001

import json
import lzma
import re
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.text.tokens import identify_language, tokenize, tokenize_with_offsets

# Written apart from the code: the raw form of every character that English text may lose, and of the placeholder.
PLAIN = {"‘": "'", "’": "'", "“": '"', "”": '"', "„": '"', "″": '"', "…": "...", "–": "--", "—": "--"}
DROPPED = {chr(code) for code in range(32)}

# Pieces that meet in hard ways, between stretches of anything.
SPACES = [" ", "\n", "\t\x1c", "\x00", "\x07", "\x85", "\xa0", "\u200b"]
MARKS = [
    ".",
    "..",
    "...",
    "…",
    "--",
    "-",
    "–",
    "—",
    "'",
    "’",
    '"',
    "”",
    "&amp;",
    "&",
    "<",
    ",",
    "\u0301",
    "😀",
    "\ud800",
]
WORDS = [
    "n't",
    "'s",
    "DOT",
    "MULTI",
    "DOTMULTI",
    "DOTDOTMULTI",
    "5",
    "e\u0301",
    "Mr.",
    "U.S.",
    "İ",
    "ﬁ",
    "中",
    "한",
    "क्ष",
]
pieces = st.sampled_from([*SPACES, *MARKS, *WORDS])
any_text = st.lists(st.one_of(pieces, st.text(st.characters(), max_size=4)), max_size=30).map("".join)


def raw_form(raw: str, language: str) -> str:
    """Return the token that a stretch of raw text becomes."""
    plain = "".join(PLAIN.get(char, char) if language == "en" else char for char in raw if char not in DROPPED)
    return re.sub(r"((?:DOT)+)MULTI", lambda match: "." * (len(match[1]) // 3), plain)


def check_offsets(text: str, language: str) -> int:
    """Check every offset of a text by its characters; return the number of tokens."""
    result = tokenize_with_offsets(text, language=language)
    assert result.tokens == tokenize(text, language=language)
    assert len(result.offsets) == len(result.tokens)
    last = 0
    for token, (start, stop) in zip(result.tokens, result.offsets, strict=True):
        assert last <= start < stop <= len(text), "offsets are in order and do not overlap"
        assert all(char.isspace() or char in DROPPED for char in text[last:start]), "no character is left out"
        raw = text[start:stop]
        assert raw_form(raw, language) == token
        assert not any(char.isspace() for char in raw)
        assert not {raw[0], raw[-1]} & DROPPED, "offsets are as narrow as can be"
        last = stop
    assert all(char.isspace() or char in DROPPED for char in text[last:])
    return len(result.tokens)


def check_published_lines(data_dir: Path, *, lines_per_file: int) -> int:
    files = {"wiki.train.0": "en", "novels-all.train": "en", "un.train": "en", "la.train": "it"}
    num_lines = 0
    for name, language in files.items():
        with lzma.open(data_dir / "lm" / f"{name}.txt.xz", "rt", encoding="utf-8", newline="\n") as file:
            for line in islice(file, lines_per_file):
                check_offsets(line, language)
                num_lines += 1
    return num_lines


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        ("Don't!", "Don 't !"),
        ("He won 6-3, 6-7 (5/7).", "He won 6-3 , 6-7 ( 5 / 7 ) ."),
        ('"Crazy Talk: Cures & You."', '" Crazy Talk : Cures & You . "'),
        ("The U.S. paid $5.50, or 3,000%...", "The U.S. paid $ 5.50 , or 3,000 % ..."),
        ("It’s “fine”—he said…", 'It \'s " fine " -- he said ...'),
        ("Elk calling--a skill--sells.", "Elk calling -- a skill -- sells ."),
        ("a ----- b", "a ----- b"),
        ("<S> is text", "< S > is text"),
        ("", ""),
    ],
)
def test_english_tokens_are_those_of_the_benchmark(raw: str, tokens: str) -> None:
    assert tokenize(raw) == tokens.split()


def test_published_sentences_are_tokenized_as_published(data_dir: Path) -> None:
    """Detokenized by plain rules and tokenized again, every sentence is as before."""
    from sacremoses import MosesDetokenizer

    datasets = json.loads((data_dir / "fixtures" / "bilm_skip" / "sentences.json").read_text())
    sentences = [sentence.split() for dataset in datasets for sentence in dataset]
    detokenizer = MosesDetokenizer("en")
    for tokens in sentences:
        raw = detokenizer.detokenize(tokens, unescape=False).replace(" / ", "/")
        assert tokenize(raw) == tokens
    assert len(sentences) == 30


def test_other_languages_have_their_own_rules() -> None:
    assert tokenize("L'homme n'est pas là.", language="fr") == ["L'", "homme", "n'", "est", "pas", "là", "."]


@pytest.mark.parametrize("run", [tokenize, tokenize_with_offsets])
def test_an_unknown_language_is_rejected_with_the_known_ones(run) -> None:
    with pytest.raises(InputError, match=r"'xx' has no tokenizer; choose one of: as .* en .* zh"):
        run("text", language="xx")


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("It’s  “fine”—he\tsaid…", "It ’s “ fine ” — he said …"),
        ("a.…b –- ––", "a .… b – - – –"),
        ("Wait... what?", "Wait ... what ?"),
        ("do\x00n't\x07 \x07 stop\x01.", "do\x00n 't stop ."),
        ("a DOTMULTI. DOTDOT\x02MULTIx DOT MULTI", "a DOTMULTI . DOTDOT\x02MULTIx DOT MULTI"),
        ("AT&amp;T e\u0301", "AT & amp ; T e \u0301"),
        ("", ""),
        (" \n", ""),
    ],
)
def test_offsets_give_the_raw_form_of_each_token(text: str, forms: str) -> None:
    result = tokenize_with_offsets(text)
    assert [text[start:stop] for start, stop in result.offsets] == forms.split(" ") if forms else not result.offsets
    check_offsets(text, "en")


@pytest.mark.long
@given(any_text, st.sampled_from(["en", "en", "fr", "de", "zh", "ja"]))
def test_offsets_are_exact_on_random_text(text: str, language: str) -> None:
    check_offsets(text, language)


@pytest.mark.long
def test_offsets_are_exact_on_published_text(data_dir: Path) -> None:
    assert check_published_lines(data_dir, lines_per_file=250) == 1000


@pytest.mark.slow
def test_offsets_are_exact_on_100_000_lines(data_dir: Path) -> None:
    assert check_published_lines(data_dir, lines_per_file=25_000) == 100_000


def test_a_language_without_rules_has_generic_ones(tmp_path: Path) -> None:
    (tmp_path / "la.txt").write_text("# Praenomina\nM.\nCn\nlib #NUMERIC_ONLY#\n\n", "utf-8")
    text = "M. Tullius dubius non fuit. tanta enim, inquit: Cn. Pompei lib. 2 et lib. alius vidi."
    plain = "M . Tullius dubius non fuit . tanta enim , inquit : Cn . Pompei lib . 2 et lib . alius vidi ."
    assert " ".join(tokenize(text, language="generic")) == plain
    listed = plain.replace("M .", "M.").replace("Cn .", "Cn.").replace("lib . 2", "lib. 2")
    language = f"generic:{tmp_path / 'la.txt'}"
    assert " ".join(tokenize(text, language=language)) == listed
    for start, stop in tokenize_with_offsets(text, language=language).offsets:
        assert text[start:stop].strip() == text[start:stop] != ""
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        tokenize(text, language="generic:none.txt")


def test_languages_are_equal_by_their_abbreviations(tmp_path: Path) -> None:
    for name, text in {"a.txt": "M.\nCn\n", "b.txt": "# same\nM\nCn.\n", "c.txt": "M\n"}.items():
        (tmp_path / name).write_text(text, "utf-8")
    names = [identify_language(f"generic:{tmp_path / name}") for name in ("a.txt", "b.txt", "c.txt")]
    assert names[0] == names[1] != names[2]
    assert identify_language("de") == "de"
