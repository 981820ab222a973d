"""Bracket scores against counts worked out by hand by EVALB's rules."""

from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.metrics.brackets import score_brackets
from elmokit.readers.ptb import ParsedSentence, read_ptb

GOLD = "(TOP (S (NP (DT The) (NN dog)) (VP (VBD ran) (PRT (RP off)) (NP (NN today))) (. .)))"


@pytest.fixture
def read(tmp_path: Path):
    def read_trees(*texts: str) -> list[ParsedSentence]:
        path = tmp_path / "trees.ptb"
        path.write_text("\n".join(texts) + "\n", "utf-8")
        return list(read_ptb(path))

    return read_trees


@pytest.mark.parametrize(
    ("predicted", "correct", "num_predicted"),
    [
        (GOLD, 5, 5),
        # ADVP equals PRT.
        ("(TOP (S (NP (DT The) (NN dog)) (VP (VBD ran) (ADVP (RP off)) (NP (NN today))) (. .)))", 5, 5),
        # The stop does not count, wherever it hangs.
        ("(TOP (S (NP (DT The) (NN dog)) (VP (VBD ran) (PRT (RP off)) (NP (NN today)) (. .))))", 5, 5),
        # A wrong label, then a wrong span.
        ("(TOP (S (NP (DT The) (NN dog)) (VP (VBD ran) (PP (RP off)) (NP (NN today))) (. .)))", 4, 5),
        ("(TOP (S (NP (DT The) (NN dog)) (VP (VBD ran) (PRT (RP off) (NN today))) (. .)))", 3, 4),
        # A unary chain with the same label twice is two brackets, of which one is gold.
        ("(TOP (S (NP (NP (DT The) (NN dog))) (VP (VBD ran) (PRT (RP off)) (NP (NN today))) (. .)))", 5, 6),
        # Over punctuation alone there is no bracket.
        ("(TOP (S (NP (DT The) (NN dog)) (VP (VBD ran) (PRT (RP off)) (NP (NN today))) (X (. .))))", 5, 5),
        # TOP itself does not count.
        ("(TOP (NP (DT The) (NN dog)) (VP (VBD ran) (PRT (RP off)) (NP (NN today))) (. .))", 4, 4),
        # Function tags are cut off.
        ("(TOP (S (NP-SBJ (DT The) (NN dog)) (VP (VBD ran) (PRT (RP off)) (NP-TMP=2 (NN today))) (. .)))", 5, 5),
    ],
)
def test_brackets_are_counted_as_evalb_counts_them(read, predicted: str, correct: int, num_predicted: int) -> None:
    scores = score_brackets(read(GOLD), read(predicted))
    assert scores.precision == pytest.approx(correct / num_predicted)
    assert scores.recall == pytest.approx(correct / 5)
    assert scores.f1 == pytest.approx(2 * correct / (num_predicted + 5))
    assert scores.exact_match == float(correct == num_predicted == 5)


def test_counts_are_summed_over_the_corpus_not_averaged(read) -> None:
    short = "(TOP (NP (NN x)))"
    scores = score_brackets(read(GOLD, short), read(GOLD, "(TOP (VP (NN x)))"))
    assert scores.f1 == pytest.approx(5 / 6)
    assert scores.exact_match == 0.5


def test_the_second_figure_leaves_long_sentences_out(read) -> None:
    long_tree = "(TOP (NP " + " ".join(["(NN x)"] * 41) + "))"
    wrong = long_tree.replace("NP", "VP")
    scores = score_brackets(read(GOLD, long_tree), read(GOLD, wrong))
    assert scores.short_f1 == 1.0
    assert scores.f1 == pytest.approx(5 / 6)
    # Punctuation counts towards the length: COLLINS.prm leaves out traces alone.
    stopped = "(TOP (NP " + " ".join(["(NN x)"] * 39 + ["(. .)"]) + "))"
    assert score_brackets(read(GOLD, stopped), read(GOLD, stopped.replace("NP", "VP"))).short_f1 == pytest.approx(5 / 6)
    longer = stopped.replace("(. .)", "(NN x) (. .)")
    assert score_brackets(read(GOLD, longer), read(GOLD, longer.replace("NP", "VP"))).short_f1 == 1.0


@pytest.mark.parametrize(
    ("gold", "predicted", "counts"),
    [
        # Quotation marks, commas and colons go, and the spans around them shrink: all of it is right.
        (
            "(TOP (S (`` ``) (NP (PRP We)) (, ,) (VP (VBD won)) ('' '') (: --)))",
            "(TOP (S (`` ``) (NP (PRP We) (, ,)) (VP (VBD won) ('' '')) (: --)))",
            (3, 3, 3),
        ),
        # Hyphens, brackets and NFP of the Web Treebank stay: these spans differ.
        (
            "(TOP (NP (NP (NN a)) (HYPH -) (NP (NN b)) (NFP ...)))",
            "(TOP (NP (NP (NN a) (HYPH -)) (NP (NN b) (NFP ...))))",
            (1, 3, 3),
        ),
        # Four equal brackets on one side match two on the other.
        ("(TOP (NP (NP (NN a))))", "(TOP (NP (NP (NP (NP (NN a))))))", (2, 2, 4)),
        # A tag is no bracket, whatever it is called.
        ("(TOP (NP (NP a) (NP b)))", "(TOP (NP (VP a) (VP b)))", (1, 1, 1)),
    ],
)
def test_cases_worked_by_hand(read, gold: str, predicted: str, counts: tuple[int, int, int]) -> None:
    correct, num_gold, num_predicted = counts
    scores = score_brackets(read(gold), read(predicted))
    assert scores.recall == pytest.approx(correct / num_gold)
    assert scores.precision == pytest.approx(correct / num_predicted)


def test_other_tokens_or_another_number_of_trees_are_rejected(read) -> None:
    with pytest.raises(InputError, match="1 predicted trees for 2"):
        score_brackets(read(GOLD, GOLD), read(GOLD))
    with pytest.raises(InputError, match="sentence 0: the predicted tree has other tokens"):
        score_brackets(read("(NP (NN a))"), read("(NP (NN b))"))
