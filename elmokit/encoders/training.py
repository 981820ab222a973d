"""Train a comparison encoder from files to a saved folder. The same call resumes an interrupted run."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import Any

from elmokit.atomic import remove_leftovers, write_json
from elmokit.encoders.context2vec_objective import ContextObjective
from elmokit.encoders.cove_objective import TranslationObjective
from elmokit.encoders.layer_sources import Context2VecLayers, CoVeLayers, LoadedEncoder
from elmokit.encoders.loop import train_steps
from elmokit.encoders.pairs import number_pairs, read_pairs
from elmokit.encoders.progress import Report
from elmokit.encoders.recipe import Context2VecRecipe, CoVeRecipe, EncoderRecipe
from elmokit.encoders.saved import is_encoder, save_encoder
from elmokit.encoders.sentences import number_sentences, read_sentences
from elmokit.encoders.state import EncoderState, Objective
from elmokit.encoders.static_vectors import read_static_vectors
from elmokit.runs.claim import claimed
from elmokit.runs.journal import ignore_entry
from elmokit.runs.layout import MODEL, RECIPE
from elmokit.runs.world import ALONE
from elmokit.text.vocab import Vocab
from elmokit.weights.options import read_json_object

RESULT = "result.json"

Progress = Callable[[int], None]
"""Called with the number of pairs or tokens read so far."""


@dataclass(frozen=True)
class EncoderResult:
    """Result of a finished run. Losses are per target, in nats."""

    kind: str
    num_examples: int
    """Pairs of sentences, or tokens, of the training data."""
    epochs: float
    step: int
    seconds: float
    dev_loss: float
    test_loss: float | None
    unknown_share: float | None
    """Share of the test targets that are out of vocabulary, which a perplexity depends on."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, with the perplexities of a translation model."""
        values = asdict(self)
        if self.kind == "cove":
            values["dev_perplexity"] = exp(self.dev_loss)
            values["test_perplexity"] = None if self.test_loss is None else exp(self.test_loss)
        return values


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Objective, result and description of one kind of encoder."""

    objective: Objective
    make_encoder: Callable[[], LoadedEncoder]
    num_examples: int
    description: str
    test: Callable[[], tuple[float, float]] | None = None
    """Returns the loss on test data and the share of unknown targets."""


def train_encoder(
    recipe: EncoderRecipe,
    run_dir: str | Path,
    *,
    report: Report = ignore_entry,
    stop: threading.Event | None = None,
    progress: Progress = lambda _: None,
) -> EncoderResult | None:
    """Train an encoder and save it in the folder ``model`` of the run; return None if ``stop`` came first.

    Args:
        recipe: Files, sizes and training settings; its type selects the encoder.
        run_dir: Folder of the run. An interrupted run there is resumed.
        report: Called with every entry of the log.
        stop: Ends the run after the current step, with a checkpoint.
        progress: Called with the number of pairs or tokens read so far.
    """
    recipe.check_files()
    run_dir, stop = Path(run_dir), threading.Event() if stop is None else stop
    with claimed(run_dir, ALONE):
        remove_leftovers(run_dir)
        prepared = _prepare(recipe, progress)
        write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))
        state = EncoderState(prepared.objective, recipe.training)
        if not train_steps(state, run_dir, report=report, stop=stop):
            return None
        prepared.objective.model.load_state_dict(state.best_weights)
        save_encoder(prepared.make_encoder(), run_dir / MODEL, description=prepared.description)
        assert state.best is not None
        test_loss, unknown_share = (None, None) if prepared.test is None else prepared.test()
        epochs = state.step / prepared.objective.steps_per_epoch
        result = EncoderResult(
            recipe.kind, prepared.num_examples, epochs, state.step, state.seconds, state.best, test_loss, unknown_share
        )
        write_json(run_dir / RESULT, result.to_json())
        return result


def read_result(model: str | Path) -> dict[str, Any] | None:
    """Return `EncoderResult.to_json` of the run that trained a saved encoder; None if it is not beside the encoder."""
    path = Path(model).parent / RESULT
    if not (is_encoder(model) and path.is_file()):
        return None
    found = read_json_object(path)
    return found if "num_examples" in found else None  # those of older versions have none


def _prepare(recipe: EncoderRecipe, progress: Progress) -> _Prepared:
    if isinstance(recipe, CoVeRecipe):
        return _prepare_cove(recipe, progress)
    return _prepare_context2vec(recipe, progress)


def _prepare_cove(recipe: CoVeRecipe, progress: Progress) -> _Prepared:
    assert recipe.vectors is not None
    vectors = read_static_vectors(recipe.vectors)
    pairs = read_pairs(recipe, "train", progress=progress)
    vocab = Vocab.from_counts(Counter(word for pair in pairs for word in pair.target), max_size=recipe.max_words)
    objective = TranslationObjective(
        recipe,
        vectors,
        len(vocab),
        train=number_pairs(pairs, vectors, vocab, recipe),
        dev=number_pairs(read_pairs(recipe, "dev"), vectors, vocab, recipe),
    )

    def test() -> tuple[float, float]:
        numbered = number_pairs(read_pairs(recipe, "test"), vectors, vocab, recipe)
        num_unknown = sum(int((pair.target == vocab.unk_id).sum()) for pair in numbered)
        return objective.corpus_loss(numbered), num_unknown / sum(len(pair.target) - 1 for pair in numbered)

    return _Prepared(
        objective,
        make_encoder=lambda: CoVeLayers(objective.model.encoder, vectors, lower=recipe.lower),
        num_examples=objective.num_pairs,
        description=f"CoVe's encoder, trained on {objective.num_pairs:,} pairs of sentences.",
        test=test if recipe.test_source else None,
    )


def _prepare_context2vec(recipe: Context2VecRecipe, progress: Progress) -> _Prepared:
    counts: Counter[str] = Counter()
    for sentence in read_sentences(recipe.train, recipe, max_tokens=recipe.max_tokens, progress=progress):
        counts.update(sentence)
    vocab = Vocab.from_counts(counts, max_size=recipe.max_words, min_count=recipe.min_count)
    train = number_sentences(read_sentences(recipe.train, recipe, max_tokens=recipe.max_tokens), vocab)
    dev = number_sentences(read_sentences(recipe.dev, recipe, max_tokens=None), vocab)
    objective = ContextObjective(recipe, vocab, train=train, dev=dev)
    return _Prepared(
        objective,
        make_encoder=lambda: Context2VecLayers(objective.model, vocab),
        num_examples=len(train.ids_N),
        description=f"context2vec, trained on {len(train.ids_N):,} tokens.",
    )
