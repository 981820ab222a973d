"""A bounded cache of the token vectors of words.

A word's token vector depends on what the model reads of its spelling alone, so it is computed once and looked up
afterwards. A word of any length takes no more memory than what is read of it.

Shapes: W words, P width, S slots.
"""

import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from elmokit.forking import renew_in_children

NUM_BYTES = 16 * 2**20
KEY_BYTES = 224  # of a slot beside its vector: a spelling of 48 bytes as an object, a number, and a place in a dict


class TokenCache:
    """The vectors of the words used last; safe for several threads."""

    def __init__(
        self, dim: int, *, device: torch.device, key_of: Callable[[str], str | bytes] = str, num_bytes: int = NUM_BYTES
    ) -> None:
        self.num_slots = num_bytes // (4 * dim + KEY_BYTES)
        self._dim, self._device, self._key_of = dim, device, key_of
        # Filled, so that all of its memory is there from the beginning and none is asked for later.
        self._vectors_SP = torch.full((self.num_slots, dim), torch.nan, dtype=torch.float32, device=device)
        self._slots: dict[str | bytes, int] = {}  # by spelling; the one that was asked for longest ago comes first
        self._lock = threading.Lock()
        renew_in_children(self)

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._slots.clear()

    def renew_after_fork(self) -> None:
        """Replace the lock. If a thread of the parent held it, the slots may not agree with the vectors: empty them."""
        if self._lock.locked():
            self._slots.clear()
        self._lock = threading.Lock()

    def look_up(self, words: Sequence[str], compute: Callable[[list[str]], Tensor]) -> Tensor:
        """Return the vectors of distinct words, (W, P); those not cached are computed in one call."""
        keys = [self._key_of(word) for word in words]
        with self._lock:
            found = {place: self._touch(key) for place, key in enumerate(keys) if key in self._slots}
            known_WP = self._vectors_SP[torch.tensor(list(found.values()), dtype=torch.long, device=self._device)]
        if len(found) == len(words):
            return known_WP
        missing = [place for place in range(len(words)) if place not in found]
        computed_WP = compute([words[place] for place in missing])
        vectors_WP = computed_WP.new_empty(len(words), self._dim)
        vectors_WP[torch.tensor(missing, device=self._device)] = computed_WP
        vectors_WP[torch.tensor(list(found), dtype=torch.long, device=self._device)] = known_WP
        with self._lock:
            self._keep([keys[place] for place in missing], computed_WP)
        return vectors_WP

    def _touch(self, key: str | bytes) -> int:
        slot = self._slots.pop(key)
        self._slots[key] = slot
        return slot

    def _keep(self, keys: list[str | bytes], vectors_WP: Tensor) -> None:
        keys, vectors_WP = keys[: self.num_slots], vectors_WP[: self.num_slots]
        slots = [self._touch(key) if key in self._slots else self._free_slot(key) for key in keys]
        self._vectors_SP[torch.tensor(slots, dtype=torch.long, device=self._device)] = vectors_WP

    def _free_slot(self, key: str | bytes) -> int:
        slot = len(self._slots)
        if slot >= self.num_slots:
            slot = self._slots.pop(next(iter(self._slots)))
        self._slots[key] = slot
        return slot
