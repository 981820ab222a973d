"""The cache never gives another vector than computing would."""

from collections.abc import Sequence
from functools import partial

import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.embed.token_cache import KEY_BYTES, TokenCache
from elmokit.text.chars import bytes_read

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
    cache, compute = TokenCache(2, device=CPU, num_bytes=(8 + KEY_BYTES) * num_slots), Counting()
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
    cache, compute = TokenCache(2, device=CPU, num_bytes=2 * (8 + KEY_BYTES)), Counting()
    cache.look_up(["a"], compute)
    cache.look_up(["b"], compute)
    cache.look_up(["a"], compute)
    cache.look_up(["c"], compute)  # in the place of b
    compute.asked.clear()
    cache.look_up(["a"], compute)
    assert compute.asked == []
    cache.look_up(["b"], compute)
    assert compute.asked == ["b"]


def test_words_that_are_read_alike_share_a_slot_however_long_they_are():
    cache, compute = TokenCache(2, device=CPU, key_of=partial(bytes_read, max_chars=10)), Counting()
    cache.look_up(["abcdefgh" + "x" * 1000], compute)
    cache.look_up(["abcdefgh" + "y" * 2000], compute)
    cache.look_up(["abcdefg"], compute)
    assert len(cache) == 2
    assert max(map(len, cache._slots)) == 8
