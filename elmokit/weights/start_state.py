"""The state in which ``warm`` sentences begin: how it is computed, and how a folder stores it.

Shapes: L layers, B rows.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.text.spelling import Dictionary, Spelling
from elmokit.weights.saved import SavedBiLM

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


def warm_state(bilm: BiLM, dictionary: Dictionary | None = None) -> BiLMState:
    """Return the state that the LSTMs settle into, (L, 1, …): a text is repeated until its final state converges.

    Every sentence is a row that carries its own state; the mean of the rows is kept.
    """
    spelling = Spelling(bilm.config, dictionary)
    sentences = [[spelling.begin, *sentence.split(), spelling.end] for sentence in WARM_TEXT]
    words = [word for sentence in sentences for word in sentence]
    with torch.no_grad():
        tokens_NP = bilm.encode_tokens(torch.from_numpy(spelling.encode(words).char_ids_WC).to(bilm.device))
        state = bilm.zero_state(len(sentences))
        for _ in range(MOST_PASSES):
            before, state = state, bilm.run(tokens_NP, [len(sentence) for sentence in sentences], state).final
            if _distance(before, state) <= SETTLED:
                break
    return map_state(state, lambda part: part.mean(dim=1, keepdim=True))


def to_tensors(state: BiLMState) -> dict[str, Tensor]:
    """One row's state as a folder keeps it: every tensor (L, width)."""
    return {name: part[:, 0].clone() for name, part in state.parts().items()}


def from_tensors(tensors: Mapping[str, Tensor]) -> BiLMState:
    """Return the state of such tensors: the inverse of `to_tensors`."""
    return BiLMState.from_parts({name: tensor[:, None] for name, tensor in tensors.items()})


def stored_state(saved: SavedBiLM) -> BiLMState | None:
    """Return the settled state that was saved with a biLM, or None."""
    return None if saved.start_state is None else from_tensors(saved.start_state)


def map_state(state: BiLMState, change: Callable[[Tensor], Tensor]) -> BiLMState:
    """Apply a function to every tensor of a state."""
    return BiLMState.from_parts({name: change(part) for name, part in state.parts().items()})


def _distance(first: BiLMState, second: BiLMState) -> float:
    other = second.parts()
    return max(float((part - other[name]).abs().max()) for name, part in first.parts().items())
