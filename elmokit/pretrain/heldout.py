"""Evaluation of a pretraining run on held-out text."""

from collections.abc import Callable

from elmokit.embed.state import StartStates
from elmokit.model.directions import direction_threads
from elmokit.pretrain.progress import HeldOut
from elmokit.pretrain.state import PretrainState
from elmokit.score.perplexity import NUM_ROWS, check_measurable, first_sentences, measure_sentences
from elmokit.score.saved_lm import dictionary_of
from elmokit.text.corpus import Corpus
from elmokit.text.vocab import Vocab

SHORT_FINGERPRINT = 12  # hexadecimal digits


def heldout_evaluation(corpus: Corpus, vocab: Vocab, *, max_tokens: int) -> Callable[[PretrainState], HeldOut]:
    """Return a function that measures held-out perplexity sentence by sentence, ``warm``, shared by all ranks."""
    corpus = first_sentences(corpus, max_tokens)

    def evaluate(state: PretrainState) -> HeldOut:
        model, world = state.model, state.world
        check_measurable(model, corpus, vocab, NUM_ROWS)
        states = StartStates("warm", warm=None, dictionary=dictionary_of(model.bilm.config, vocab))
        with direction_threads(world.device) as executor:
            found = measure_sentences(model, corpus, vocab, states, NUM_ROWS, world, executor)
        alone = {"forward": found.forward, "backward": found.backward}.get(state.recipe.training.direction)
        return HeldOut(
            step=state.step,
            forward_perplexity=found.forward,
            backward_perplexity=found.backward,
            perplexity=found.arithmetic_mean if alone is None else alone,
            geometric_mean=found.geometric_mean if alone is None else alone,
            unknown_share=found.unknown_share,
            text=f"{corpus.fingerprint[:SHORT_FINGERPRINT]}, {corpus.num_tokens} words",
        )

    return evaluate
