"""Evaluation of a pretraining run on held-out text."""

from collections.abc import Callable

from elmokit.embed.state import StartStates
from elmokit.model.directions import direction_threads
from elmokit.pretrain.progress import HeldOut
from elmokit.pretrain.state import Trainer
from elmokit.score.perplexity import NUM_ROWS, check_measurable, first_sentences, measure_sentences
from elmokit.text.corpus import Corpus
from elmokit.text.vocab import Vocab

SHORT_NAME = 12  # digits of a fingerprint


def held_out_look(corpus: Corpus, vocab: Vocab, *, max_tokens: int) -> Callable[[Trainer], HeldOut]:
    """How a training run looks at held-out text: sentence by sentence, ``warm``, shared among all processes."""
    corpus = first_sentences(corpus, max_tokens)

    def look(trainer: Trainer) -> HeldOut:
        model, world = trainer.model, trainer.world
        check_measurable(model, corpus, vocab, NUM_ROWS)
        states = StartStates("warm", warm=None)
        with direction_threads(world.device) as executor:
            found = measure_sentences(model, corpus, vocab, states, NUM_ROWS, world, executor)
        return HeldOut(
            step=trainer.step,
            forward_perplexity=found.forward,
            backward_perplexity=found.backward,
            perplexity=found.arithmetic_mean,
            geometric_mean=found.geometric_mean,
            unknown_share=found.unknown_share,
            text=f"{corpus.fingerprint[:SHORT_NAME]}, {corpus.num_tokens} words",
        )

    return look
