"""A pretraining run from a recipe to a model folder.

A run is a folder. The same command resumes it:

    recipe.json        the recipe
    text, heldout      the prepared texts (`elmokit.text.corpus`)
    vocab.txt          the words that the model can predict
    log.jsonl          losses and held-out perplexities; also as curves in the folder tensorboard if it is installed
    checkpoints        the newest checkpoints
    best               the model with the lowest held-out perplexity so far
    at-STEP            the models of the steps in training.keep_models
    model              the model at the end of the run
    finished.json      the step after which the model was saved
    lock               held while a process works in the folder
"""

import json
import threading
from functools import partial
from pathlib import Path

import torch

from elmokit.atomic import atomic_file, remove_leftovers, write_json
from elmokit.errors import ConfigError
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.heldout import heldout_evaluation
from elmokit.pretrain.loop import train
from elmokit.pretrain.progress import BuildStarted, Report
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.resume_check import ResumeKey, check_resume, recipe_key
from elmokit.pretrain.state import PretrainState
from elmokit.pretrain.texts import PrepareProgress, describe_exclusion, find_recorded_texts, find_texts, find_vocab
from elmokit.runs.checkpoint import facts_explained, newest_facts
from elmokit.runs.claim import claimed
from elmokit.runs.journal import ignore_entry
from elmokit.runs.layout import CHECKPOINTS, MODEL, RECIPE
from elmokit.runs.world import join_world, on_first_rank, run_with_heartbeat
from elmokit.score.saved_lm import save_language_model
from elmokit.text.corpus import Corpus
from elmokit.text.vocab import read_vocab
from elmokit.weights.folder import is_replaceable

TEXT, HELDOUT, VOCAB, BEST, FINISHED = "text", "heldout", "vocab.txt", "best", "finished.json"


def pretrain(
    recipe: Recipe,
    run_dir: str | Path,
    *,
    report: Report | None = None,
    stop: threading.Event | None = None,
    num_workers: int = 1,
    prepare_progress: PrepareProgress | None = None,
) -> Path | None:
    """Train a language model; return the model's folder, or None if ``stop`` was set before the end.

    A run that exists is resumed. A finished run is left as it is, unless the recipe now asks for more steps, epochs or
    hours. Under ``torchrun`` every rank calls this with the same arguments, on a shared disk.

    Args:
        recipe: Model, data, vocabulary and training settings.
        run_dir: The run's folder.
        report: Called with each plan, log line and held-out evaluation, on every rank.
        stop: An event. Once it is set, the run saves a checkpoint after the current step and returns.
        num_workers: The number of processes that prepare text.
        prepare_progress: Called with the number of characters prepared so far.
    """
    run_dir = Path(run_dir)
    report, stop = report or ignore_entry, stop or threading.Event()
    with join_world() as world, claimed(run_dir, world):
        world.rows(recipe.training.num_rows)  # raises before hours of preparation if the rows cannot be divided
        prepare = partial(_prepare, recipe, run_dir, world.device, num_workers=num_workers, progress=prepare_progress)
        on_first_rank(prepare, world)
        report(BuildStarted())
        vocab = read_vocab(run_dir / VOCAB)
        make = partial(PretrainState, recipe, Corpus.open(run_dir / TEXT), vocab, world=world)
        state = run_with_heartbeat(make, world)
        evaluate = None
        if recipe.data.heldout:
            heldout = Corpus.open(run_dir / HELDOUT)
            evaluate = heldout_evaluation(heldout, vocab, max_tokens=recipe.training.heldout_tokens)
        save_best = partial(_save, state, run_dir / BEST)
        save_kept = partial(_save_kept, state, run_dir)
        train(state, run_dir, evaluate=evaluate, save_best=save_best, report=report, stop=stop, save_kept=save_kept)
        if world.is_first:
            write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))
        if not state.is_over:
            return None
        on_first_rank(partial(_finish, state, run_dir), world)
    return run_dir / MODEL


def _prepare(
    recipe: Recipe, run_dir: Path, device: torch.device, *, num_workers: int, progress: PrepareProgress | None
) -> None:
    """Write the texts, the vocabulary and a copy of the recipe, if they are not there.

    Raises ConfigError if the run in this folder cannot be resumed with them, before anything of it is replaced.
    """
    if not recipe.data.train:
        raise ConfigError("the recipe names no training text; give files or patterns as data.train")
    for name in (BEST, MODEL, *(f"at-{step}" for step in recipe.training.keep_models)):
        is_replaceable(run_dir / name)  # raises now if it could not be replaced later
    facts = newest_facts(run_dir / CHECKPOINTS)

    def check(now: ResumeKey) -> None:
        if facts is not None:
            with facts_explained(run_dir):
                check_resume(facts["follows"], now, folder=run_dir)

    check(recipe_key(recipe, device))
    if recipe.vocab.file is not None:
        read_vocab(recipe.vocab.file)
    remove_leftovers(run_dir)
    is_resumed = facts is not None  # then its texts are prepared, and their files may be gone
    find = partial(find_recorded_texts, train_dir=run_dir / TEXT, heldout_dir=run_dir / HELDOUT)
    texts = (find if is_resumed else find_texts)(
        recipe.data, max_chars=recipe.model.char_encoder.max_chars, num_workers=num_workers, progress=progress
    )
    corpus = texts.prepare_train(run_dir / TEXT, accept=lambda fingerprint: check({"text": fingerprint}))
    vocab = find_vocab(recipe.vocab, corpus)
    check({"vocabulary": vocab.fingerprint})
    texts.prepare_heldout(run_dir / HELDOUT)
    with atomic_file(run_dir / VOCAB, follow_link=False) as new:
        new.write_bytes(vocab.to_text().encode())
    if not is_resumed:  # a resumed run keeps its recipe until training has accepted the new one
        write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))


def _save(state: PretrainState, folder: Path, model: LanguageModel) -> None:
    description = f"Pretrained on {state.corpus.num_tokens:,} tokens of text.{describe_exclusion(state.corpus)}"
    save_language_model(model, state.vocab, folder, description=description)


def _save_kept(state: PretrainState, run_dir: Path, step: int, model: LanguageModel) -> None:
    _save(state, run_dir / f"at-{step}", model)


def _finish(state: PretrainState, run_dir: Path) -> None:
    """Save the model, unless an earlier session saved it after this step."""
    if _finished_step(run_dir) != state.step:
        _save(state, run_dir / MODEL, state.model)
        write_json(run_dir / FINISHED, {"step": state.step})


def _finished_step(run_dir: Path) -> int | None:
    try:
        found: int = json.loads((run_dir / FINISHED).read_bytes())["step"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if (run_dir / MODEL).is_dir() else None
