"""Go on learning a language model on the text of a domain, without labels, before it is frozen for a task.

A folder with an output layer keeps its vocabulary; what that lacks is learned as ``<UNK>``. Published weights have no
output layer: the words then come from the text, and a new output layer is learned first, with the biLM frozen, so
that its first blind steps do not spoil the biLM. Then all is learned together.

Until it is done, its work is in a folder beside the output, ``OUTPUT.work``: call it again, and it goes on from there.

    begun.json           what was begun
    corpus/, heldout/    the prepared texts
    softmax/, model/     the runs: first the output layer alone where it is new, then everything
    lock                 held as long as a process works here
"""

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elmokit.atomic import remove_leftovers, write_json
from elmokit.config import FrozenConfig
from elmokit.errors import ConfigError, InputError, OutputError
from elmokit.model.language_model import LanguageModel
from elmokit.model.softmax import Softmax
from elmokit.pretrain.heldout import held_out_look
from elmokit.pretrain.loop import LookAtHeldOut, train
from elmokit.pretrain.pretraining import find_texts, find_vocab, preparation_of, warn_of_cut_words
from elmokit.pretrain.progress import HeldOut, Report
from elmokit.pretrain.recipe import DataSettings, Positive, Recipe, SoftmaxSettings, TrainingSettings, VocabSettings
from elmokit.pretrain.resume_check import check_resume
from elmokit.pretrain.state import Trainer
from elmokit.runs.checkpoint import load_newest, newest_facts
from elmokit.runs.claim import claimed
from elmokit.runs.journal import ignore_entry
from elmokit.runs.layout import CHECKPOINTS
from elmokit.runs.world import World, on_first_rank, run_with_heartbeat
from elmokit.score.saved_lm import load_language_model, save_language_model
from elmokit.text.corpus import Corpus
from elmokit.text.vocab import Vocab
from elmokit.weights.folder import has_softmax, is_replaceable
from elmokit.weights.saved import shapes_of
from elmokit.weights.source import Source, build_bilm, file_hashes, load_saved

ONE_EPOCH = TrainingSettings(epochs=1.0)
BEGUN, CORPUS, HELDOUT = "begun.json", "corpus", "heldout"
SOFTMAX_RUN, MODEL_RUN = "softmax", "model"
OPTIMIZER = "optimizer/"  # before the names of the optimiser's tensors in a checkpoint


class FinetuneSettings(FrozenConfig):
    """How a model is tuned. The defaults are the paper's: one epoch, as in pretraining."""

    training: TrainingSettings = ONE_EPOCH
    softmax: SoftmaxSettings | None = None
    """By default that of ``run_dir``, or else chosen by the number of words."""
    new_vocab: VocabSettings | None = None
    """The words of a new output layer; all of the text's by default. For a model that has none."""
    softmax_epochs: Positive | None = None
    """How long a new output layer is learned alone; one epoch by default. For a model that has none."""
    run_dir: Path | None = None
    """The pretraining run of the model. Adagrad's sums go on from its newest checkpoint, else they begin anew."""


@dataclass(frozen=True)
class Finetuned:
    """How a tuning ended."""

    is_finished: bool
    """False if it was asked to stop: the output is not there yet, and the same call goes on."""
    num_steps: int
    before: HeldOut | None
    """Of the held-out text, with a new output layer after that was learned; None without such text."""
    after: HeldOut | None


@dataclass(frozen=True, eq=False)
class _Begin:
    """A model before it is tuned."""

    model: LanguageModel
    vocab: Vocab
    options: dict[str, Any] | None
    corpus: Corpus
    look: LookAtHeldOut | None
    is_new: bool
    """Whether its output layer has learned nothing yet."""


def finetune(
    source: Source,
    data: DataSettings,
    output: str | Path,
    *,
    settings: FinetuneSettings | None = None,
    world: World | None = None,
    report: Report | None = None,
    stop: threading.Event | None = None,
    num_workers: int = 1,
    prepare_progress: Callable[[int], None] | None = None,
) -> Finetuned:
    """Tune the model of ``source`` on ``data.train`` and save it as a folder.

    The folder has the architecture and, if there are any, the published options of the source, so that it can be
    written back as HDF5. ``data.heldout`` is looked at as in pretraining; the model saved is always the last. When
    ``stop`` is set it saves its work and returns; the same call goes on. ``num_workers`` processes prepare the text,
    and ``prepare_progress`` is told how many characters of it are done.
    """
    settings = settings or FinetuneSettings()
    world = world or World(0, 1, torch.device("cpu"))
    report, stop = report or ignore_entry, stop or threading.Event()
    output = Path(output)
    work = work_folder(output)
    is_new = not has_softmax(source)
    _check(settings, output, is_new=is_new)
    settings = _with_softmax(settings)
    config = run_with_heartbeat(lambda: load_saved(source).config, world)
    with claimed(work, world):
        world.rows(settings.training.num_rows)  # refuses what does not divide before text is prepared
        softmax_epochs = (settings.softmax_epochs or ONE_EPOCH.epochs) if is_new else None
        on_first_rank(partial(_note_begin, work, source, softmax_epochs), world)
        max_chars = config.char_encoder.max_chars
        on_first_rank(partial(_prepare, data, work, max_chars, num_workers, prepare_progress), world)
        begin = run_with_heartbeat(partial(_load, source, data, settings, work), world)
        found = _tune(begin, settings, work, world, report, stop)
        if found.is_finished:
            on_first_rank(partial(_save, source, begin, output), world)
    if found.is_finished and world.is_first:
        shutil.rmtree(work, ignore_errors=True)  # the model is saved; some disks keep files that are mapped
    return found


def _tune(
    begin: _Begin, settings: FinetuneSettings, work: Path, world: World, report: Report, stop: threading.Event
) -> Finetuned:
    """Learn; the model of ``begin`` is changed in place."""
    if begin.is_new:
        first = run_with_heartbeat(partial(_trainer, begin, settings, world, only_softmax=True), world)
        _run(first, work / SOFTMAX_RUN, look=None, report=report, stop=stop)
        if not first.is_over:
            return Finetuned(is_finished=False, num_steps=first.step, before=None, after=None)
    trainer = run_with_heartbeat(partial(_trainer, begin, settings, world, only_softmax=False), world)
    before = begin.look(trainer) if begin.look else None
    after = _run(trainer, work / MODEL_RUN, look=begin.look, report=report, stop=stop)
    if not trainer.is_over:
        return Finetuned(is_finished=False, num_steps=trainer.step, before=before, after=None)
    if after is None and begin.look:  # the last step was made by an earlier call
        after = begin.look(trainer)
    return Finetuned(is_finished=True, num_steps=trainer.step, before=before, after=after)


def _save(source: Source, begin: _Begin, output: Path) -> None:
    name = Path(source[1] if isinstance(source, tuple) else source).resolve().name
    description = f"Fine-tuned from {name} on {begin.corpus.num_tokens:,} tokens of text."
    save_language_model(begin.model, begin.vocab, output, options=begin.options, description=description)


def work_folder(output: Path) -> Path:
    """Where the work is until it is done."""
    return output.parent / f"{output.name}.work"


def _trainer(begin: _Begin, settings: FinetuneSettings, world: World, *, only_softmax: bool) -> Trainer:
    training = settings.training
    if only_softmax:
        epochs = settings.softmax_epochs or ONE_EPOCH.epochs
        training = training.model_copy(update={"epochs": epochs, "steps": None, "hours": None})
    recipe = Recipe(model=begin.model.bilm.config, softmax=settings.softmax or SoftmaxSettings(), training=training)
    trainer = Trainer(recipe, begin.corpus, begin.vocab, world=world, model=begin.model, frozen_bilm=only_softmax)
    if settings.run_dir is not None and not only_softmax:
        _load_sums(trainer, settings.run_dir)
    return trainer


def _run(
    trainer: Trainer, run_dir: Path, *, look: LookAtHeldOut | None, report: Report, stop: threading.Event
) -> HeldOut | None:
    run_dir.mkdir(exist_ok=True)
    return train(trainer, run_dir, look=look, save_best=None, report=report, stop=stop)


# What there is at the beginning


def _check(settings: FinetuneSettings, output: Path, *, is_new: bool) -> None:
    """Refuse settings that would have no effect, and an output that is something else."""
    if not is_new and (settings.new_vocab is not None or settings.softmax_epochs is not None):
        raise InputError(
            "the model has an output layer and keeps its words; "
            "leave out new_vocab (--vocab-size) and softmax_epochs (--softmax-epochs)"
        )
    if is_new and settings.run_dir is not None:
        raise InputError("the model has no output layer, so it is of no run of ours; leave out run_dir (--run-dir)")
    if output.exists() and not is_replaceable(output) and (output.is_file() or any(output.iterdir())):
        raise OutputError(f"{output}: exists and is not a model of ours; name a new folder")


def _with_softmax(settings: FinetuneSettings) -> FinetuneSettings:
    """The settings with the softmax of the pretraining run, if they name one; it must have had this optimiser."""
    if settings.run_dir is None:
        return settings
    facts = newest_facts(settings.run_dir / CHECKPOINTS)
    if facts is None:
        raise InputError(f"{settings.run_dir}: has no checkpoint; give the folder of the model's pretraining run")
    before, now = facts["follows"]["training"]["optimizer"], settings.training.optimizer
    if before != now or now == "adam":
        raise ConfigError(
            f"{settings.run_dir}: its optimiser was {before}, and now it is {now}; only Adagrad can go on from "
            f"an earlier run: leave out run_dir (--run-dir), and {now} begins anew"
        )
    softmax = settings.softmax or SoftmaxSettings.model_validate(facts["follows"]["softmax"])
    return settings.model_copy(update={"softmax": softmax})


def _note_begin(work: Path, source: Source, softmax_epochs: float | None) -> None:
    """Write down what the work begins with, or find that it goes on with the same."""
    remove_leftovers(work)
    note, begun = work / BEGUN, {"source": file_hashes(source), "softmax_epochs": softmax_epochs}
    has_learned = any(newest_facts(work / run / CHECKPOINTS) is not None for run in (SOFTMAX_RUN, MODEL_RUN))
    if not has_learned or not note.exists():
        write_json(note, begun)
        return
    before = json.loads(note.read_text("utf-8"))
    if before["source"] != begun["source"]:
        raise ConfigError(
            f"{work}: holds the unfinished tuning of another model; "
            "delete it, name another output, or give the model that it began with"
        )
    if before["softmax_epochs"] != softmax_epochs:
        raise ConfigError(
            f"{work}: its tuning began with {before['softmax_epochs']} epochs of the new output layer alone, not "
            f"{softmax_epochs}; give the same softmax_epochs (--softmax-epochs), or delete it"
        )


def _prepare(
    data: DataSettings, work: Path, max_chars: int, num_workers: int, progress: Callable[[int], None] | None
) -> None:
    """Prepare the text, and the held-out text. Another text than the work's is refused."""
    facts = newest_facts(work / MODEL_RUN / CHECKPOINTS) or newest_facts(work / SOFTMAX_RUN / CHECKPOINTS)

    def check(fingerprint: str) -> None:  # before anything is replaced
        if facts is not None:
            check_resume(facts["follows"], {"text": fingerprint}, folder=work)

    files, heldout = find_texts(data)
    prepare = preparation_of(data, max_chars=max_chars, num_workers=num_workers, progress=progress)
    warn_of_cut_words(prepare(files, work / CORPUS, accept=check))
    if heldout:
        prepare(heldout, work / HELDOUT)


def _load(source: Source, data: DataSettings, settings: FinetuneSettings, work: Path) -> _Begin:
    corpus = Corpus.open(work / CORPUS)
    if has_softmax(source):
        assert not isinstance(source, tuple)
        loaded = load_language_model(source)
        model, vocab, options = loaded.model, loaded.vocab, loaded.options
    else:
        saved = load_saved(source)
        vocab = find_vocab(settings.new_vocab or VocabSettings(), corpus)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(settings.training.seed)
            softmax = Softmax(len(vocab), saved.config.lstm.proj_dim)
        model, options = LanguageModel(build_bilm(saved), softmax), saved.options
    look = None
    if data.heldout:
        look = held_out_look(Corpus.open(work / HELDOUT), vocab, max_tokens=settings.training.heldout_tokens)
    return _Begin(model, vocab, options, corpus, look, is_new=not has_softmax(source))


def _load_sums(trainer: Trainer, run_dir: Path) -> None:
    """Let the optimiser remember what it did in a pretraining run."""
    newest = load_newest(run_dir / CHECKPOINTS)
    if newest is None:
        raise InputError(f"{run_dir}: has no checkpoint; give the folder of the model's pretraining run")
    found = {
        name.removeprefix(OPTIMIZER): tensor for name, tensor in newest.tensors.items() if name.startswith(OPTIMIZER)
    }
    expected = trainer.optimizer.tensors()
    if shapes_of(found) != shapes_of(expected):
        raise ConfigError(
            f"{run_dir}: is of another model than is to be tuned, or of another kind of softmax; "
            "give the run that the model came from"
        )
    trainer.optimizer.load({name: tensor.to(trainer.world.device) for name, tensor in found.items()})
