"""A pretraining run from a recipe to a model folder.

A run is a folder. To start the same run again is to go on with it:

    recipe.json        what was asked for
    text, heldout      the prepared text (`elmokit.text.corpus`)
    vocab.txt          the words that the model can predict
    log.jsonl          losses and held-out perplexities; with tensorboard installed also in the folder tensorboard
    checkpoints        the newest states of the run
    best               the model with the lowest held-out perplexity so far
    model              the model at the end of the run
    finished.json      the step after which it was saved
    lock               held as long as a process works here
"""

import fnmatch
import json
import threading
import warnings
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from elmokit.atomic import atomic_file, remove_leftovers, write_json
from elmokit.errors import ConfigError, ElmokitWarning
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.heldout import held_out_look
from elmokit.pretrain.loop import train
from elmokit.pretrain.progress import Report
from elmokit.pretrain.recipe import DataSettings, Recipe, VocabSettings
from elmokit.pretrain.resume_check import ResumeKey, check_resume, recipe_key
from elmokit.pretrain.state import Trainer
from elmokit.runs.checkpoint import newest_facts
from elmokit.runs.claim import claimed
from elmokit.runs.layout import CHECKPOINTS, MODEL, RECIPE
from elmokit.runs.world import join_world, on_first_rank, run_with_heartbeat
from elmokit.score.saved_lm import save_language_model
from elmokit.text.corpus import Corpus
from elmokit.text.lines import find_inputs, read_lines
from elmokit.text.preparation import prepare_corpus, recorded_sources
from elmokit.text.vocab import Vocab, read_vocab
from elmokit.weights.folder import is_replaceable

TEXT, HELDOUT, VOCAB, BEST, FINISHED = "text", "heldout", "vocab.txt", "best", "finished.json"

PrepareProgress = Callable[[int], None]
"""Is told how many characters of a text are prepared."""


def pretrain(
    recipe: Recipe,
    run_dir: str | Path,
    *,
    report: Report,
    stop: threading.Event,
    num_workers: int = 1,
    prepare_progress: PrepareProgress | None = None,
) -> Path | None:
    """Learn a language model as the recipe says; return the model's folder, or None if ``stop`` came before the end.

    Goes on with what the run's folder has; a run that is finished is left as it is, unless the recipe now asks for
    more steps, epochs or hours. Under ``torchrun`` every process calls this with the same arguments, on a disk that
    they share; each of them reports the same.
    """
    run_dir = Path(run_dir)
    with join_world() as world, claimed(run_dir, world):
        world.rows(recipe.training.num_rows)  # refuses what does not divide before hours of preparation
        prepare = partial(_prepare, recipe, run_dir, world.device, num_workers=num_workers, progress=prepare_progress)
        on_first_rank(prepare, world)
        vocab = read_vocab(run_dir / VOCAB)
        make = partial(Trainer, recipe, Corpus.open(run_dir / TEXT), vocab, world=world)
        trainer = run_with_heartbeat(make, world)
        look = None
        if recipe.data.heldout:
            heldout = Corpus.open(run_dir / HELDOUT)
            look = held_out_look(heldout, vocab, max_tokens=recipe.training.heldout_tokens)
        save_best = partial(_save, trainer, run_dir / BEST)
        train(trainer, run_dir, look=look, save_best=save_best, report=report, stop=stop)
        if world.is_first:
            write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))
        if not trainer.is_over:
            return None
        on_first_rank(partial(_finish, trainer, run_dir), world)
    return run_dir / MODEL


def _prepare(
    recipe: Recipe, run_dir: Path, device: torch.device, *, num_workers: int, progress: PrepareProgress | None
) -> None:
    """Make the texts, the vocabulary and the recipe's copy, where they are not there already.

    What the run in this folder cannot go on with is refused before anything of it is replaced.
    """
    if not recipe.data.train:
        raise ConfigError("the recipe names no text; give data.train, files or patterns")
    for name in (BEST, MODEL):
        is_replaceable(run_dir / name)  # refuses now what could not be replaced later
    facts = newest_facts(run_dir / CHECKPOINTS)

    def check(now: ResumeKey) -> None:
        if facts is not None:
            check_resume(facts["follows"], now, folder=run_dir)

    check(recipe_key(recipe, device))
    if recipe.vocab.file is not None:
        read_vocab(recipe.vocab.file)
    remove_leftovers(run_dir)
    goes_on = facts is not None  # then it has its text, and does not need the files
    data = _with_recorded_names(recipe.data, run_dir) if goes_on else recipe.data
    files, heldout = find_texts(data, may_be_gone=goes_on)
    max_chars = recipe.model.char_encoder.max_chars
    make = preparation_of(data, max_chars=max_chars, num_workers=num_workers, progress=progress)
    prepare = partial(make, may_be_gone=goes_on)
    corpus = prepare(files, run_dir / TEXT, accept=lambda fingerprint: check({"text": fingerprint}))
    warn_of_cut_words(corpus)
    vocab = find_vocab(recipe.vocab, corpus)
    check({"vocabulary": vocab.fingerprint})
    if heldout:
        prepare(heldout, run_dir / HELDOUT)
    with atomic_file(run_dir / VOCAB) as new:
        new.write_bytes(vocab.to_text().encode())
    if not goes_on:  # a run that goes on keeps its recipe until it has accepted this one
        write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))


def find_texts(data: DataSettings, *, may_be_gone: bool = False) -> tuple[list[str], list[str]]:
    """The files to learn from, and those held out; what is missing and may not be is told before any is prepared."""
    files, heldout = find_inputs(data.train), find_inputs(data.heldout) if data.heldout else []
    if not may_be_gone:
        read_lines(heldout)  # looks for them, and reads nothing yet
    return files, heldout


def _with_recorded_names(data: DataSettings, run_dir: Path) -> DataSettings:
    """The settings with the names of the files that the run's texts were prepared from, where some are gone."""
    train, heldout = _name_again(data.train, run_dir / TEXT), _name_again(data.heldout, run_dir / HELDOUT)
    return data.model_copy(update={"train": train, "heldout": heldout})


def _name_again(patterns: tuple[str, ...], text: Path) -> tuple[str, ...]:
    """The patterns; or what they once named for a prepared text, if some of that is gone and they still name it."""
    recorded = tuple(source.name for source in recorded_sources(text))
    if all(Path(name).exists() for name in recorded):
        return patterns
    found = [[name] if name in recorded else sorted(set(fnmatch.filter(recorded, name))) for name in patterns]
    return recorded if tuple(chain.from_iterable(found)) == recorded else patterns


def preparation_of(
    data: DataSettings, *, max_chars: int, num_workers: int, progress: PrepareProgress | None
) -> Callable[..., Corpus]:
    """`prepare_corpus`, told what the text is like: a function of files, a folder, and ``accept``."""
    return partial(
        prepare_corpus,
        tokenized=data.tokenized,
        split=data.split,
        wrapped=data.wrapped,
        language=data.language,
        max_chars=max_chars,
        num_workers=num_workers,
        progress=progress,
    )


def warn_of_cut_words(corpus: Corpus) -> None:
    """Say how many words of a text are longer than the model can read."""
    if corpus.num_cut_words:
        max_chars = corpus.meta.settings.max_chars
        warnings.warn(
            f"{corpus.num_cut_words:,} of the text's {corpus.num_words:,} distinct words have more than "
            f"{max_chars - 2} bytes and are read without the rest (max_chars = {max_chars})",
            ElmokitWarning,
            stacklevel=2,
        )


def find_vocab(settings: VocabSettings, corpus: Corpus) -> Vocab:
    """The vocabulary that the settings name, or the one that follows from the text."""
    if settings.file is not None:
        return read_vocab(settings.file)
    return Vocab.from_counts(corpus.word_counts(), max_size=settings.max_size, min_count=settings.min_count)


def _save(trainer: Trainer, folder: Path, model: LanguageModel) -> None:
    description = f"Pretrained on {trainer.corpus.num_tokens:,} tokens of text."
    save_language_model(model, trainer.vocab, folder, description=description)


def _finish(trainer: Trainer, run_dir: Path) -> None:
    """Save the model, unless an earlier piece of the run has done it after this very step."""
    if _finished_step(run_dir) != trainer.step:
        _save(trainer, run_dir / MODEL, trainer.model)
        write_json(run_dir / FINISHED, {"step": trainer.step})


def _finished_step(run_dir: Path) -> int | None:
    try:
        found: int = json.loads((run_dir / FINISHED).read_bytes())["step"]
    except (OSError, ValueError, KeyError):
        return None
    return found if (run_dir / MODEL).is_dir() else None
