"""CKY against every binary tree there is."""

from collections.abc import Iterator

import pytest
import torch

from elmokit.nn.chart import Span, best_trees


def all_trees(start: int, end: int) -> Iterator[list[Span]]:
    if end - start == 1:
        yield [(start, end)]
        return
    for middle in range(start + 1, end):
        for left in all_trees(start, middle):
            for right in all_trees(middle, end):
                yield [(start, end), *left, *right]


def tree_score(scores_IJ: torch.Tensor, tree: list[Span]) -> float:
    return sum(float(scores_IJ[span]) for span in tree)


@pytest.mark.parametrize("num_tokens", range(1, 7))
def test_the_best_tree_is_the_best_of_all_trees(num_tokens: int) -> None:
    generator = torch.Generator().manual_seed(num_tokens)
    for _ in range(20):
        scores_IJ = torch.randn(num_tokens + 1, num_tokens + 1, generator=generator, dtype=torch.double)
        (found,) = best_trees(scores_IJ[None], [num_tokens])
        trees = list(all_trees(0, num_tokens))
        assert found in trees
        assert tree_score(scores_IJ, found) == pytest.approx(max(tree_score(scores_IJ, tree) for tree in trees))


def test_sentences_of_other_lengths_and_padding_change_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [5, 1, 3, 6]
    scores_BIJ = torch.randn(4, 8, 8, generator=generator)
    together = best_trees(scores_BIJ, lengths)
    for index, length in enumerate(lengths):
        alone = best_trees(scores_BIJ[index : index + 1, : length + 1, : length + 1], [length])
        assert together[index] == alone[0]


def test_parents_come_before_children_from_the_left() -> None:
    scores_IJ = torch.zeros(4, 4)
    scores_IJ[1, 3] = 1.0
    assert best_trees(scores_IJ[None], [3]) == [[(0, 3), (0, 1), (1, 3), (1, 2), (2, 3)]]


def test_what_is_no_span_is_never_read() -> None:
    scores_IJ = torch.zeros(4, 4)
    scores_IJ[0, 2] = 1.0
    expected = best_trees(scores_IJ[None], [3])
    scores_IJ[torch.ones(4, 4).tril().bool()] = float("nan")
    assert best_trees(scores_IJ[None], [3]) == expected
