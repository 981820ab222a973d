"""Tags against spans that are known, and the rules against every short sequence."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.metrics.tags import (
    Span,
    ViterbiRules,
    bio_rules,
    bio_to_bioul,
    bio_to_spans,
    bioul_rules,
    bioul_to_bio,
)

BIO = ["O", "B-X", "I-X", "B-Y", "I-Y"]
BIOUL = ["O", *[f"{kind}-{label}" for label in "XY" for kind in "BIUL"]]


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Spans in a sentence, made from the lengths of what lies between and in them."""
    spans, end = [], 0
    for gap, length, label in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(["PER", "C-ARG1"])), max_size=5)
    ):
        spans.append(Span(end + gap, end + gap + length, label))
        end += gap + length
    return spans, end + draw(st.integers(0, 2))


def allowed(rules: ViterbiRules, path: tuple[int, ...]) -> bool:
    inside = all(rules.transitions_KK[pair] for pair in pairwise(path))
    return bool(rules.start_K[path[0]] and rules.end_K[path[-1]] and inside)


def spans_to_bio(spans: list[Span], num_tokens: int) -> list[str]:
    """The tags of a sentence with these spans."""
    tags = ["O"] * num_tokens
    for span in spans:
        tags[span.start : span.end] = [f"B-{span.label}", *[f"I-{span.label}"] * (span.end - span.start - 1)]
    return tags


def test_spans_of_a_known_sentence() -> None:
    tags = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC", "B-PER"]
    spans = [Span(0, 2, "PER"), Span(3, 4, "LOC"), Span(4, 6, "LOC"), Span(6, 7, "PER")]
    assert bio_to_spans(tags) == spans
    assert bio_to_bioul(tags) == ["B-PER", "L-PER", "O", "U-LOC", "B-LOC", "L-LOC", "U-PER"]
    assert bio_to_bioul(["B-C-V", "I-C-V", "I-C-V"]) == ["B-C-V", "I-C-V", "L-C-V"]
    assert bio_to_spans([]) == bio_to_bioul([]) == bioul_to_bio([]) == []


@given(sentences())
def test_spans_and_both_schemes_go_there_and_back(sentence: tuple[list[Span], int]) -> None:
    spans, num_tokens = sentence
    tags = spans_to_bio(spans, num_tokens)
    assert len(tags) == num_tokens
    assert bio_to_spans(tags) == spans
    assert bioul_to_bio(bio_to_bioul(tags)) == tags


def test_rules_allow_exactly_the_sequences_that_spans_can_make() -> None:
    for num_tokens in (1, 2, 3, 4):
        every = {tuple(spans_to_bio(spans, num_tokens)) for spans in all_span_sets(num_tokens)}
        for tags, rules, written in (
            (BIO, bio_rules(BIO), every),
            (BIOUL, bioul_rules(BIOUL), {tuple(bio_to_bioul(path)) for path in every}),
        ):
            paths = product(range(len(tags)), repeat=num_tokens)
            assert {tuple(tags[k] for k in path) for path in paths if allowed(rules, path)} == written


def all_span_sets(num_tokens: int, start: int = 0) -> list[list[Span]]:
    if start >= num_tokens:
        return [[]]
    found = all_span_sets(num_tokens, start + 1)
    for end in range(start + 1, num_tokens + 1):
        rest = all_span_sets(num_tokens, end)
        found = found + [[Span(start, end, label), *spans] for label in "XY" for spans in rest]
    return found


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["O", "I-X"], "'I-X' after 'O' at token 1"),
        (["I-X"], "'I-X' first"),
        (["B-X", "I-Y"], "'I-Y' after 'B-X' at token 1"),
        (["B-X", "L-X"], "tag 'L-X'"),
        (["B-"], "tag 'B-'"),
        (["PER"], "tag 'PER'"),
        (["-X"], "tag '-X'"),
    ],
)
def test_what_is_not_bio_is_rejected_with_its_place(tags: list[str], message: str) -> None:
    for convert in (bio_to_spans, bio_to_bioul):
        with pytest.raises(InputError) as caught:
            convert(tags)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["B-X", "O"], "'O' after 'B-X' at token 1"),
        (["O", "B-X"], "'B-X' last"),
        (["L-X"], "'L-X' first"),
        (["E-X"], "tag 'E-X'"),
    ],
)
def test_what_is_not_bioul_is_rejected_with_its_place(tags: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        bioul_to_bio(tags)
    assert message in str(caught.value)


def test_rules_refuse_a_tag_of_another_scheme() -> None:
    with pytest.raises(InputError, match="U-X"):
        bio_rules(["O", "U-X"])
