"""Sentiment trees: their shape, any depth, and what each fault says."""

from collections import Counter
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.sst import SentimentTree, read_sst


def write(folder: Path, *lines: str) -> Path:
    path = folder / "a.txt"
    path.write_bytes("\n".join(lines).encode())
    return path


def test_a_tree_has_labels_tokens_and_children(tmp_path: Path) -> None:
    (tree,) = read_sst(write(tmp_path, "(3 (2 It) (4 (2 's) (4 lovely)))", ""))
    its, lovely = SentimentTree(2, ("'s",), ()), SentimentTree(4, ("lovely",), ())
    phrase = SentimentTree(4, ("'s", "lovely"), (its, lovely))
    assert tree == SentimentTree(3, ("It", "'s", "lovely"), (SentimentTree(2, ("It",), ()), phrase))


def test_subtrees_come_from_the_left_a_phrase_before_its_parts(tmp_path: Path) -> None:
    (tree,) = read_sst(write(tmp_path, "(0 (1 (2 a) (3 b)) (4 c))"))
    assert [(part.label, " ".join(part.tokens)) for part in tree.subtrees()] == [
        (0, "a b c"),
        (1, "a b"),
        (2, "a"),
        (3, "b"),
        (4, "c"),
    ]


def test_tokens_are_kept_as_they_are_written(tmp_path: Path) -> None:
    (tree,) = read_sst(write(tmp_path, r"(2 (2 -LRB-) (2 (2 and\/or) (2 (2 8 1\/2) (2 3))))".replace("8 1", "8\xa01")))
    assert tree.tokens == ("-LRB-", r"and\/or", "8\xa01\\/2", "3")


def test_spaces_between_brackets_do_not_matter(tmp_path: Path) -> None:
    spaced, tight = read_sst(write(tmp_path, " ( 3 ( 2 a )\t(1 b) ) ", "(3(2 a)(1 b))"))
    assert spaced == tight


@pytest.mark.long
def test_depth_has_no_limit(tmp_path: Path) -> None:
    depth = 20_000
    (tree,) = read_sst(write(tmp_path, "(1 " * depth + "deep" + ")" * depth))
    assert tree.tokens == ("deep",)
    assert sum(1 for _ in tree.subtrees()) == depth
    assert repr(tree) == "SentimentTree(label=1, tokens=('deep',))"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("It shines", r"character 1: found 'It', but expected \("),
        (")", r"character 1: found '\)', but expected \("),
        ("(5 It)", r"character 2: found '5', but expected a label from 0 to 4"),
        ("(It)", r"character 2: found 'It', but expected a label from 0 to 4"),
        ("((2 It))", r"character 2: found '\(', but expected a label from 0 to 4"),
        ("()", r"character 2: found '\)', but expected a label from 0 to 4"),
        ("(2)", r"character 3: found '\)', but expected \( or a word"),
        ("(2 It shines)", r"character 7: found 'shines', but expected \)"),
        ("(2 It (2 a))", r"character 7: found '\(', but expected \)"),
        ("(2 (2 It) shines)", r"character 11: found 'shines', but expected \( or \)"),
        ("(2 (2 It)", r"the line ends, but expected \( or \)"),
        ("(2", r"the line ends, but expected \( or a word"),
        ("(2 It))", r"character 7: found '\)', but expected the end of the line"),
        ("(2 It) (2 a)", r"character 8: found '\(', but expected the end of the line"),
    ],
)
def test_a_wrong_tree_is_named_with_line_and_character(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.txt, line 2: {message}; correct the tree"):
        list(read_sst(write(tmp_path, "(2 It)", line)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("split", "labels", "num_phrases"),
    [
        pytest.param("train", (1092, 2218, 1624, 2322, 1288), 318_582, marks=pytest.mark.slow),
        ("dev", (139, 289, 229, 279, 165), 41_447),
        ("test", (279, 633, 389, 510, 399), 82_600),
    ],
)
def test_published_files_are_read_whole(data_dir: Path, split: str, labels: tuple[int, ...], num_phrases: int) -> None:
    found: Counter[int] = Counter()
    phrases = 0
    for tree in read_sst(data_dir / "sst" / f"{split}.txt.xz"):
        found[tree.label] += 1
        phrases += sum(1 for _ in tree.subtrees())
        assert len(tree.tokens) == sum(not part.children for part in tree.subtrees())
    assert tuple(found[label] for label in range(5)) == labels
    assert phrases == num_phrases
    assert sum(labels) == {"train": 8544, "dev": 1101, "test": 2210}[split]
