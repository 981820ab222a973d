"""The cache never gives another vector than computing would."""

from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.embed.token_cache import TokenCache

CPU = torch.device("cpu")


def vector_of(word: str) -> list[float]:
    return [float(hash(word) % 1000), float(len(word))]


class Counting:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, words: Sequence[str]) -> torch.Tensor:
        self.asked += words
        return torch.tensor([vector_of(word) for word in words])


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1), max_size=30), st.integers(0, 6))
def test_every_look_up_gives_the_computed_vectors_within_the_bound(texts: list[list[str]], num_slots: int) -> None:
    cache, compute = TokenCache(2, device=CPU, num_bytes=8 * num_slots), Counting()
    for words in texts:
        found = cache.look_up(words, compute)
        assert found.tolist() == [vector_of(word) for word in words]
        assert len(cache) <= num_slots


def test_a_known_word_is_not_computed_again() -> None:
    cache, compute = TokenCache(2, device=CPU), Counting()
    cache.look_up(["a", "b"], compute)
    cache.look_up(["b", "c", "a"], compute)
    assert compute.asked == ["a", "b", "c"]
    cache.clear()
    cache.look_up(["a"], compute)
    assert compute.asked == ["a", "b", "c", "a"]


def test_the_word_unused_for_longest_makes_room() -> None:
    cache, compute = TokenCache(2, device=CPU, num_bytes=16), Counting()
    cache.look_up(["a"], compute)
    cache.look_up(["b"], compute)
    cache.look_up(["a"], compute)
    cache.look_up(["c"], compute)  # in the place of b
    compute.asked.clear()
    cache.look_up(["a"], compute)
    assert compute.asked == []
    cache.look_up(["b"], compute)
    assert compute.asked == ["b"]
