"""The state in which the LSTMs start a sentence.

``reset``  every sentence begins from zero.
``warm``   every sentence begins from one fixed state, the one the LSTMs settle into on running text.
``carry``  row k of a batch begins where row k of the batch before ended, as bilm-tf and AllenNLP do.

Under the first two a sentence's vectors depend on the sentence alone.

Shapes: L layers, B rows.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.text.spelling import Dictionary
from elmokit.weights.start_state import map_state, warm_state

State = Literal["reset", "warm", "carry"]


class StartStates:
    """Gives every batch the state in which it begins, and under ``carry`` keeps the one in which it ended."""

    def __init__(self, policy: State, *, warm: BiLMState | None, dictionary: Dictionary | None = None) -> None:
        """``warm`` is the settled state if it is known; else the first batch waits until it is found."""
        if policy not in get_args(State):
            raise InputError(f"state {policy!r}; expected 'reset', 'warm' or 'carry'")
        self.policy = policy
        self.warm = warm
        self._dictionary = dictionary
        self.carried: BiLMState | None = None

    def begin(self, bilm: BiLM, num_rows: int) -> BiLMState:
        """Return the state in which ``num_rows`` sentences start."""
        if self.policy == "carry" and self.carried is not None:
            return _overwrite(bilm.zero_state(num_rows), self.carried)
        one = bilm.zero_state(1)
        if self.policy == "warm":
            if self.warm is None:
                self.warm = warm_state(bilm, self._dictionary)
            like = one.forward.hidden_LBP
            one = map_state(self.warm, lambda part: part.to(like))
        return map_state(one, lambda part: part.expand(-1, num_rows, -1))  # not copied: whoever writes to it copies

    def end(self, final: BiLMState) -> None:
        """Store the final state of a batch under ``carry``; other rows are unchanged."""
        if self.policy != "carry":
            return
        final = map_state(final, Tensor.detach)
        self.carried = final if self.carried is None else _join(final, self.carried)

    def reset(self) -> None:
        """Drop the carried state."""
        self.carried = None


def _overwrite(fresh: BiLMState, kept: BiLMState) -> BiLMState:
    """Write the first rows of ``kept`` over those of ``fresh``."""
    sources = kept.parts()
    for name, target in fresh.parts().items():
        num_rows = min(target.shape[1], sources[name].shape[1])
        target[:, :num_rows] = sources[name][:, :num_rows]
    return fresh


def _join(newer: BiLMState, older: BiLMState) -> BiLMState:
    """Return ``newer`` followed by the rows that only ``older`` has."""
    old = older.parts()
    return BiLMState.from_parts(
        {
            name: torch.cat([new, old[name][:, new.shape[1] :].to(new.device)], dim=1)
            for name, new in newer.parts().items()
        }
    )
