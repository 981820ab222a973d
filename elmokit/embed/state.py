"""In which state the LSTMs are when a sentence begins.

``reset``  every sentence begins from zero.
``warm``   every sentence begins from one fixed state, the one the LSTMs settle into on running text.
``carry``  row k of a batch begins where row k of the batch before ended, as bilm-tf and AllenNLP do.

Under the first two a sentence's vectors depend on the sentence alone.

Shapes: L layers, B rows.
"""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.text.chars import BOS_WORD, EOS_WORD, encode_words
from elmokit.weights.saved import SavedBiLM

State = Literal["reset", "warm", "carry"]

WARM_TEXT = (
    "The river rose three feet in one night , and by morning the lower road was closed .",
    "She asked whether the letter had come , but nobody at the office could say .",
    "In 1987 the company moved its main plant to a smaller town near the coast .",
    "What would you do if the train were two hours late ?",
    "Most of the money went to schools , hospitals and new housing .",
    "He sat down , opened the book and began to read aloud .",
    '" We did not expect so many people , " the mayor said on Tuesday .',
    "Prices fell by 2.5 percent last year , the first drop since the war .",
)
SETTLED = 1e-3  # a pass over the text that moves no sentence's last state by more than this ends the warm-up
MOST_PASSES = 20


class StartStates:
    """Gives every batch the state in which it begins, and under ``carry`` keeps the one in which it ended."""

    def __init__(self, policy: State, *, warm: BiLMState | None) -> None:
        """``warm`` is the settled state if it is known; else the first batch waits until it is found."""
        if policy not in get_args(State):
            raise InputError(f"state {policy!r}; expected 'reset', 'warm' or 'carry'")
        self.policy = policy
        self._warm = warm
        self.carried: BiLMState | None = None

    def begin(self, bilm: BiLM, num_rows: int) -> BiLMState:
        """The state of ``num_rows`` rows that the biLM is about to read."""
        fresh = bilm.zero_state(num_rows)
        if self.policy == "warm":
            if self._warm is None:
                self._warm = warm_state(bilm)
            like = fresh.forward.hidden_LBP
            return _for_each(self._warm, lambda part: part.to(like).expand(-1, num_rows, -1))
        if self.carried is None:
            return fresh
        return _overwrite(fresh, self.carried)

    def end(self, final: BiLMState) -> None:
        """Remember where a batch ended. Rows that it did not have stay as they were."""
        if self.policy != "carry":
            return
        final = _for_each(final, Tensor.detach)
        self.carried = final if self.carried is None else _join(final, self.carried)

    def reset(self) -> None:
        """Forget what was carried."""
        self.carried = None


def warm_state(bilm: BiLM) -> BiLMState:
    """The state the LSTMs settle into, (L, 1, …): the same text again and again until its ends stand still.

    Every sentence is a row that carries its own state; the mean of the rows is kept.
    """
    sentences = [[BOS_WORD, *sentence.split(), EOS_WORD] for sentence in WARM_TEXT]
    words = [word for sentence in sentences for word in sentence]
    device = bilm.char_encoder.char_embedding.device
    with torch.no_grad():
        encoded = encode_words(words, max_chars=bilm.config.char_encoder.max_chars)
        tokens_NP = bilm.encode_tokens(torch.from_numpy(encoded.char_ids_WC).to(device))
        state = bilm.zero_state(len(sentences))
        for _ in range(MOST_PASSES):
            before, state = state, bilm.run(tokens_NP, [len(sentence) for sentence in sentences], state).final
            if _distance(before, state) <= SETTLED:
                break
    return _for_each(state, lambda part: part.mean(dim=1, keepdim=True))


def to_tensors(state: BiLMState) -> dict[str, Tensor]:
    """One row's state as a folder keeps it: every tensor (L, width)."""
    return {name: part[:, 0].clone() for name, part in state.parts().items()}


def from_tensors(tensors: Mapping[str, Tensor]) -> BiLMState:
    """The inverse of `to_tensors`."""
    return BiLMState.from_parts({name: tensor[:, None] for name, tensor in tensors.items()})


def stored_state(saved: SavedBiLM) -> BiLMState | None:
    """The settled state that was saved with a biLM, if there is one."""
    return None if saved.start_state is None else from_tensors(saved.start_state)


def _for_each(state: BiLMState, change: Callable[[Tensor], Tensor]) -> BiLMState:
    return BiLMState.from_parts({name: change(part) for name, part in state.parts().items()})


def _overwrite(fresh: BiLMState, kept: BiLMState) -> BiLMState:
    """The first rows of ``kept`` over those of ``fresh``."""
    sources = kept.parts()
    for name, target in fresh.parts().items():
        num_rows = min(target.shape[1], sources[name].shape[1])
        target[:, :num_rows] = sources[name][:, :num_rows]
    return fresh


def _join(newer: BiLMState, older: BiLMState) -> BiLMState:
    """``newer``, and after it the rows that only ``older`` has."""
    old = older.parts()
    return BiLMState.from_parts(
        {
            name: torch.cat([new, old[name][:, new.shape[1] :].to(new.device)], dim=1)
            for name, new in newer.parts().items()
        }
    )


def _distance(first: BiLMState, second: BiLMState) -> float:
    other = second.parts()
    return max(float((part - other[name]).abs().max()) for name, part in first.parts().items())
