"""Train a comparison encoder from files to a saved folder. The same call resumes an interrupted run."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from elmokit.atomic import remove_leftovers, write_json
from elmokit.encoders.context2vec_objective import ContextObjective
from elmokit.encoders.cove_objective import TranslationObjective
from elmokit.encoders.layer_sources import Context2VecLayers, CoVeLayers, LoadedEncoder
from elmokit.encoders.loop import train_encoder
from elmokit.encoders.pairs import number_pairs, read_pairs
from elmokit.encoders.progress import Report
from elmokit.encoders.recipe import Context2VecRecipe, CoVeRecipe
from elmokit.encoders.saved import save_encoder
from elmokit.encoders.sentences import number_sentences, read_sentences
from elmokit.encoders.state import EncoderState
from elmokit.encoders.static_vectors import read_static_vectors
from elmokit.errors import ConfigError
from elmokit.runs.claim import claimed
from elmokit.runs.journal import ignore_entry
from elmokit.runs.layout import MODEL, RECIPE
from elmokit.runs.world import ALONE
from elmokit.text.vocab import Vocab

Progress = Callable[[int], None]
"""Called with the number of pairs or tokens read so far."""


def train_cove(
    recipe: CoVeRecipe,
    run_dir: str | Path,
    *,
    report: Report = ignore_entry,
    stop: threading.Event | None = None,
    progress: Progress = lambda _: None,
) -> Path | None:
    """Train a translation model and save its encoder; return the folder, or None if ``stop`` came first.

    Args:
        recipe: Files, sizes and training settings.
        run_dir: Folder of the run. An interrupted run there is resumed.
        report: Called with every entry of the log.
        stop: Ends the run after the current step, with a checkpoint.
        progress: Called with the number of pairs read so far.
    """
    for name in ("source", "target", "dev_source", "dev_target", "vectors"):
        if not getattr(recipe, name):
            raise ConfigError(f"the recipe names no {name}; give {name}=FILE")
    assert recipe.vectors is not None
    run_dir, stop = Path(run_dir), threading.Event() if stop is None else stop
    with claimed(run_dir, ALONE):
        remove_leftovers(run_dir)
        vectors = read_static_vectors(recipe.vectors)
        pairs = read_pairs(recipe, dev=False, progress=progress)
        vocab = Vocab.from_counts(Counter(word for pair in pairs for word in pair.target), max_size=recipe.max_words)
        dev = number_pairs(read_pairs(recipe, dev=True), vectors, vocab, recipe)
        train = number_pairs(pairs, vectors, vocab, recipe)
        objective = TranslationObjective(recipe, vectors, len(vocab), train=train, dev=dev)
        write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))
        state = EncoderState(objective, recipe.training)
        if not train_encoder(state, run_dir, report=report, stop=stop):
            return None
        objective.model.load_state_dict(state.best_weights)
        description = f"CoVe's encoder, trained on {objective.num_pairs:,} pairs of sentences."
        encoder = CoVeLayers(objective.model.encoder, vectors, lower=recipe.lower)
        return _save(encoder, run_dir, description)


def train_context2vec(
    recipe: Context2VecRecipe,
    run_dir: str | Path,
    *,
    report: Report = ignore_entry,
    stop: threading.Event | None = None,
    progress: Progress = lambda _: None,
) -> Path | None:
    """Train context2vec and save it; return the folder, or None if ``stop`` came first.

    Args:
        recipe: Files, sizes and training settings.
        run_dir: Folder of the run. An interrupted run there is resumed.
        report: Called with every entry of the log.
        stop: Ends the run after the current step, with a checkpoint.
        progress: Called with the number of tokens read so far.
    """
    for name in ("train", "dev"):
        if not getattr(recipe, name):
            raise ConfigError(f"the recipe names no {name}; give {name}=FILE")
    run_dir, stop = Path(run_dir), threading.Event() if stop is None else stop
    with claimed(run_dir, ALONE):
        remove_leftovers(run_dir)
        counts: Counter[str] = Counter()
        for sentence in read_sentences(recipe.train, recipe, max_tokens=recipe.max_tokens, progress=progress):
            counts.update(sentence)
        vocab = Vocab.from_counts(counts, max_size=recipe.max_words, min_count=recipe.min_count)
        train = number_sentences(read_sentences(recipe.train, recipe, max_tokens=recipe.max_tokens), vocab)
        dev = number_sentences(read_sentences(recipe.dev, recipe, max_tokens=None), vocab)
        objective = ContextObjective(recipe, vocab, train=train, dev=dev)
        write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))
        state = EncoderState(objective, recipe.training)
        if not train_encoder(state, run_dir, report=report, stop=stop):
            return None
        objective.model.load_state_dict(state.best_weights)
        description = f"context2vec, trained on {len(train.ids_N):,} tokens."
        return _save(Context2VecLayers(objective.model, vocab), run_dir, description)


def _save(encoder: LoadedEncoder, run_dir: Path, description: str) -> Path:
    save_encoder(encoder, run_dir / MODEL, description=description)
    return run_dir / MODEL
