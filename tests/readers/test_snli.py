"""SNLI's JSON lines: labels, tokens from parses, and what each fault says."""

import json
from collections import Counter
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.snli import SentencePair, read_snli

PAIR = {
    "gold_label": "entailment",
    "sentence1": "A dog (brown) runs.",
    "sentence2": "It moves",
    "sentence1_binary_parse": "( ( A ( dog ( -LRB- ( brown -RRB- ) ) ) ) ( runs . ) )",
    "sentence2_binary_parse": "( It moves )",
    "pairID": "17.jpg#0r1e",
    "annotator_labels": ["entailment"],
}


def write(folder: Path, *lines: str) -> Path:
    path = folder / "a.jsonl"
    path.write_bytes("\n".join(lines).encode())
    return path


def changed(**fields: object) -> str:
    pair = {**PAIR, **fields}
    return json.dumps({name: value for name, value in pair.items() if value != "absent"})


def test_official_fields_are_read(tmp_path: Path) -> None:
    assert list(read_snli(write(tmp_path, json.dumps(PAIR), ""))) == [
        SentencePair(
            premise="A dog (brown) runs.",
            hypothesis="It moves",
            label="entailment",
            pair_id="17.jpg#0r1e",
            premise_tokens=("A", "dog", "-LRB-", "brown", "-RRB-", "runs", "."),
            hypothesis_tokens=("It", "moves"),
        )
    ]


def test_without_parses_there_are_no_tokens(tmp_path: Path) -> None:
    line = changed(sentence1_binary_parse="absent", sentence2_binary_parse="absent", pairID="absent")
    (pair,) = read_snli(write(tmp_path, line))
    assert (pair.premise, pair.premise_tokens, pair.hypothesis_tokens, pair.pair_id) == (
        PAIR["sentence1"],
        None,
        None,
        None,
    )


def test_pairs_without_a_label_are_kept_unless_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, changed(gold_label="-"), changed(gold_label="neutral"))
    assert [pair.label for pair in read_snli(path)] == [None, "neutral"]
    assert [pair.label for pair in read_snli(path, drop_unlabelled=True)] == ["neutral"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'gold_label': 1}", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('["entailment"]', "expected a JSON object"),
        (changed(gold_label="absent"), "no 'gold_label' among sentence1, "),
        (changed(sentence1="absent"), "no 'sentence1'"),
        (changed(sentence2=" "), "no 'sentence2' .* or empty"),
        (changed(sentence2=3), "sentence2 is 3, but must be a string"),
        (changed(pairID=3), "pairID is 3, but must be a string"),
        (changed(gold_label="maybe"), "gold_label 'maybe', but must be entailment, neutral, contradiction or -"),
        (changed(sentence1_binary_parse="( a ( b )"), r"2 tokens, 2 opening and 1 closing"),
        (changed(sentence2_binary_parse="( )"), r"0 tokens"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    pairs = read_snli(write(tmp_path, json.dumps(PAIR), line))
    assert next(pairs).label == "entailment"
    with pytest.raises(InputError, match=rf"a\.jsonl, line 2: .*{message}"):
        next(pairs)


@pytest.mark.parametrize(
    ("split", "num_pairs", "num_unlabelled", "has_parses"),
    [
        pytest.param("train-100k", 100_000, 110, True, marks=pytest.mark.slow),
        ("dev", 9842, 0, False),
        ("test", 10_000, 176, True),
    ],
)
def test_published_files_are_read_whole(
    data_dir: Path, split: str, num_pairs: int, num_unlabelled: int, has_parses: bool
) -> None:
    counts = Counter(
        (pair.label is None, pair.premise_tokens is not None, pair.hypothesis_tokens is not None)
        for pair in read_snli(data_dir / "snli" / f"snli_1.0_{split}.jsonl.xz")
    )
    unlabelled = {(True, has_parses, has_parses): num_unlabelled} if num_unlabelled else {}
    assert counts == {(False, has_parses, has_parses): num_pairs - num_unlabelled} | unlabelled
