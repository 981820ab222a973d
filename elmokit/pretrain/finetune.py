"""Continue to train a language model on unlabeled text of a domain, before it is frozen for a task.

A folder with an output layer keeps its vocabulary; out-of-vocabulary words are trained as ``<UNK>``. Published weights
have no output layer. Then the vocabulary comes from the text, and a new output layer is trained first with the biLM
frozen, so that random output weights do not damage the biLM. After that everything is trained together.

Unfinished work is in a folder beside the output, ``OUTPUT.work``. The same call resumes it.

    begun.json           the source and settings of the work
    corpus/, heldout/    the prepared texts
    softmax/, model/     the runs: first a new output layer alone, then everything
    lock                 held while a process works in the folder
"""

import shutil
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elmokit.atomic import remove_leftovers, write_json
from elmokit.config import FrozenConfig, Positive
from elmokit.errors import ConfigError, InputError, OutputError
from elmokit.model.language_model import LanguageModel
from elmokit.model.softmax import Softmax
from elmokit.pretrain.heldout import heldout_evaluation
from elmokit.pretrain.loop import Evaluate, train
from elmokit.pretrain.progress import BuildStarted, EvaluationStarted, HeldOut, Report
from elmokit.pretrain.recipe import DataSettings, PretrainSettings, Recipe, SoftmaxSettings, VocabSettings
from elmokit.pretrain.resume_check import ResumeKey, check_resume
from elmokit.pretrain.state import PretrainState
from elmokit.pretrain.texts import PrepareProgress, describe_exclusion, find_texts, find_vocab
from elmokit.runs.checkpoint import facts_explained, load_newest, newest_facts
from elmokit.runs.claim import claimed
from elmokit.runs.journal import ignore_entry
from elmokit.runs.layout import CHECKPOINTS
from elmokit.runs.world import World, join_world, on_first_rank, run_with_heartbeat
from elmokit.score.saved_lm import load_language_model, save_language_model
from elmokit.text.corpus import Corpus
from elmokit.text.vocab import Vocab
from elmokit.weights.folder import is_replaceable
from elmokit.weights.options import read_json_object
from elmokit.weights.saved import check_reads_bytes, shapes_of
from elmokit.weights.source import Source, build_bilm, file_hashes, has_softmax, load_saved

ONE_EPOCH = PretrainSettings(epochs=1.0)
BEGUN, CORPUS, HELDOUT = "begun.json", "corpus", "heldout"
SOFTMAX_RUN, MODEL_RUN = "softmax", "model"
OPTIMIZER = "optimizer/"  # prefix of the optimizer's tensors in a checkpoint
ADVICE = "delete it to start anew, name another output, or give the settings and the text that it was started with"


class FinetuneSettings(FrozenConfig):
    """Settings of a fine-tuning. The defaults are the paper's: one epoch, as in pretraining."""

    training: PretrainSettings = ONE_EPOCH
    softmax: SoftmaxSettings | None = None
    """Loss of the output layer; by default that of ``run_dir``, else chosen by the number of words."""
    new_vocab: VocabSettings | None = None
    """Words of a new output layer; by default all words of the text. Only for a model without an output layer."""
    softmax_epochs: Positive | None = None
    """Epochs for a new output layer alone, by default one. Only for a model without an output layer."""
    run_dir: Path | None = None
    """Pretraining run of the model. Adagrad's sums continue from its newest checkpoint; without it they start anew."""


@dataclass(frozen=True)
class Finetuned:
    """Result of a fine-tuning."""

    is_finished: bool
    """False if it was stopped: the output does not exist yet, and the same call resumes the work."""
    num_steps: int
    before: HeldOut | None
    """Held-out evaluation before the tuning, after a new output layer was trained; None without held-out text."""
    after: HeldOut | None


@dataclass(frozen=True, eq=False)
class _Begin:
    """The model before it is tuned, and its texts."""

    model: LanguageModel
    vocab: Vocab
    options: dict[str, Any] | None
    corpus: Corpus
    evaluate: Evaluate | None
    is_new: bool
    """True if its output layer is untrained."""


def finetune(
    source: Source,
    data: DataSettings,
    output: str | Path,
    *,
    settings: FinetuneSettings | None = None,
    report: Report | None = None,
    stop: threading.Event | None = None,
    num_workers: int = 1,
    prepare_progress: PrepareProgress | None = None,
) -> Finetuned:
    """Tune a model on text and save it as a folder.

    The folder has the architecture of the source, and its published options if there are any, so that it can be
    exported as HDF5. The saved model is the last one, not the best on held-out text. Under ``torchrun`` every rank
    calls this with the same arguments, on a shared disk.

    Args:
        source: The model: a folder, or the options and weights files of a published model.
        data: The training text, and optionally held-out text, which is evaluated as in pretraining.
        output: The new model's folder.
        settings: How to train; the paper's settings by default.
        report: Called with each plan, log line and held-out evaluation, on every rank.
        stop: An event. Once it is set, the work is saved after the current step, and the same call resumes it.
        num_workers: The number of processes that prepare text.
        prepare_progress: Called with the number of characters prepared so far.
    """
    settings = settings or FinetuneSettings()
    report, stop = report or ignore_entry, stop or threading.Event()
    output = Path(output)
    work = work_folder(output)
    is_new = not has_softmax(source)
    _check(settings, output, is_new=is_new)
    settings = _with_softmax(settings)
    with join_world() as world:
        config = run_with_heartbeat(lambda: load_saved(source).config, world)
        check_reads_bytes(config, purpose="fine-tuning")
        with claimed(work, world):
            world.rows(settings.training.num_rows)  # raises before text is prepared if the rows cannot be divided
            softmax_epochs = (settings.softmax_epochs or ONE_EPOCH.epochs) if is_new else None
            on_first_rank(partial(_record_begin, work, source, softmax_epochs), world)
            max_chars = config.char_encoder.max_chars
            on_first_rank(partial(_prepare, data, work, max_chars, num_workers, prepare_progress), world)
            report(BuildStarted())
            begin = run_with_heartbeat(partial(_load, source, data, settings, work), world)
            result = _tune(begin, settings, work, world, report, stop)
            if result.is_finished:
                on_first_rank(partial(_save, source, begin, output), world)
        if result.is_finished and world.is_first:
            shutil.rmtree(work, ignore_errors=True)  # the model is saved; some file systems keep mapped files
    return result


def _tune(
    begin: _Begin, settings: FinetuneSettings, work: Path, world: World, report: Report, stop: threading.Event
) -> Finetuned:
    """Train the model of ``begin`` in place."""
    if begin.is_new:
        first = run_with_heartbeat(partial(_make_state, begin, settings, world, only_softmax=True), world)
        _run(first, work / SOFTMAX_RUN, evaluate=None, report=report, stop=stop)
        if not first.is_over:
            return Finetuned(is_finished=False, num_steps=first.step, before=None, after=None)
    state = run_with_heartbeat(partial(_make_state, begin, settings, world, only_softmax=False), world)
    if begin.evaluate:
        report(EvaluationStarted(state.step))
    before = begin.evaluate(state) if begin.evaluate else None
    after = _run(state, work / MODEL_RUN, evaluate=begin.evaluate, report=report, stop=stop)
    if not state.is_over:
        return Finetuned(is_finished=False, num_steps=state.step, before=before, after=None)
    if after is None and begin.evaluate:  # an earlier call took the last step
        after = begin.evaluate(state)
    return Finetuned(is_finished=True, num_steps=state.step, before=before, after=after)


def _save(source: Source, begin: _Begin, output: Path) -> None:
    name = Path(source[1] if isinstance(source, tuple) else source).resolve().name
    description = f"Fine-tuned from {name} on {begin.corpus.num_tokens:,} tokens of text."
    description += describe_exclusion(begin.corpus)
    save_language_model(begin.model, begin.vocab, output, options=begin.options, description=description)


def work_folder(output: Path) -> Path:
    """Return the folder of unfinished work."""
    return output.parent / f"{output.name}.work"


def _make_state(begin: _Begin, settings: FinetuneSettings, world: World, *, only_softmax: bool) -> PretrainState:
    training = settings.training
    if only_softmax:
        epochs = settings.softmax_epochs or ONE_EPOCH.epochs
        training = training.model_copy(update={"epochs": epochs, "steps": None, "hours": None})
    recipe = Recipe(model=begin.model.bilm.config, softmax=settings.softmax or SoftmaxSettings(), training=training)
    state = PretrainState(recipe, begin.corpus, begin.vocab, world=world, model=begin.model, frozen_bilm=only_softmax)
    if settings.run_dir is not None and not only_softmax:
        _load_sums(state, settings.run_dir)
    return state


def _run(
    state: PretrainState, run_dir: Path, *, evaluate: Evaluate | None, report: Report, stop: threading.Event
) -> HeldOut | None:
    run_dir.mkdir(exist_ok=True)
    _check_unfinished(run_dir, state.resume_key())
    return train(state, run_dir, evaluate=evaluate, save_best=None, report=report, stop=stop)


def _check_unfinished(run_dir: Path, now: ResumeKey) -> None:
    """Raise ConfigError if unfinished work in this folder was started with other settings or another text."""
    facts = newest_facts(run_dir / CHECKPOINTS)
    if facts is not None:
        with facts_explained(run_dir):
            check_resume(facts["follows"], now, folder=run_dir.parent, advice=ADVICE)


# Before the first step


def _check(settings: FinetuneSettings, output: Path, *, is_new: bool) -> None:
    """Raise InputError for settings without effect, and OutputError for an output that is not a model."""
    if not is_new and (settings.new_vocab is not None or settings.softmax_epochs is not None):
        raise InputError(
            "the model has an output layer and keeps its words; "
            "leave out new_vocab (--vocab-size) and softmax_epochs (--softmax-epochs)"
        )
    if is_new and settings.run_dir is not None:
        raise InputError(
            "the model has no output layer, so it does not come from a run of elmokit; leave out run_dir (--run-dir)"
        )
    if output.exists() and not is_replaceable(output) and (output.is_file() or any(output.iterdir())):
        raise OutputError(f"{output}: exists and is not an elmokit model; name a new folder")


def _with_softmax(settings: FinetuneSettings) -> FinetuneSettings:
    """Return the settings with the softmax of the pretraining run, if they name one; its optimizer must be the same."""
    if settings.run_dir is None:
        return settings
    facts = newest_facts(settings.run_dir / CHECKPOINTS)
    if facts is None:
        raise InputError(f"{settings.run_dir}: has no checkpoint; give the folder of the model's pretraining run")
    with facts_explained(settings.run_dir):
        before, now = facts["follows"]["training"]["optimizer"], settings.training.optimizer
        old_softmax = SoftmaxSettings.model_validate(facts["follows"]["softmax"])
    if before != now or now == "adam":
        raise ConfigError(
            f"{settings.run_dir}: its optimizer was {before}, now it is {now}; only Adagrad's sums can be continued "
            f"from an earlier run: leave out run_dir (--run-dir), and {now} starts anew"
        )
    return settings.model_copy(update={"softmax": settings.softmax or old_softmax})


def _record_begin(work: Path, source: Source, softmax_epochs: float | None) -> None:
    """Record the source and settings of new work; raise ConfigError if existing work has others."""
    remove_leftovers(work)
    note, begun = work / BEGUN, {"source": file_hashes(source), "softmax_epochs": softmax_epochs}
    has_steps = any(newest_facts(work / run / CHECKPOINTS) is not None for run in (SOFTMAX_RUN, MODEL_RUN))
    if not has_steps or not note.exists():
        write_json(note, begun)
        return
    before = read_json_object(note)
    if before.keys() != begun.keys():
        raise ConfigError(f"{note}: is damaged, it has not the keys {', '.join(begun)}; delete {work}, and start again")
    if before["source"] != begun["source"]:
        raise ConfigError(
            f"{work}: holds the unfinished tuning of another model; "
            "delete it, name another output, or give the model that it was started with"
        )
    if before["softmax_epochs"] != softmax_epochs:
        raise ConfigError(
            f"{work}: its tuning was started with {before['softmax_epochs']} epochs of the new output layer alone, not "
            f"{softmax_epochs}; give the same softmax_epochs (--softmax-epochs), or delete it"
        )


def _prepare(
    data: DataSettings, work: Path, max_chars: int, num_workers: int, progress: PrepareProgress | None
) -> None:
    """Prepare the texts; raise ConfigError if the work was started with another training text."""
    run = MODEL_RUN if newest_facts(work / MODEL_RUN / CHECKPOINTS) is not None else SOFTMAX_RUN

    def check(fingerprint: str) -> None:  # before anything is replaced
        _check_unfinished(work / run, {"text": fingerprint})

    texts = find_texts(data, max_chars=max_chars, num_workers=num_workers, progress=progress)
    texts.prepare_train(work / CORPUS, accept=check)
    texts.prepare_heldout(work / HELDOUT)


def _load(source: Source, data: DataSettings, settings: FinetuneSettings, work: Path) -> _Begin:
    corpus = Corpus.open(work / CORPUS)
    if has_softmax(source):
        loaded = load_language_model(source)
        model, vocab, options = loaded.model, loaded.vocab, loaded.options
    else:
        saved = load_saved(source)
        vocab = find_vocab(settings.new_vocab or VocabSettings(), corpus)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(settings.training.seed)
            softmax = Softmax(len(vocab), saved.config.lstm.proj_dim)
        model, options = LanguageModel(build_bilm(saved), softmax), saved.options
    evaluate = None
    if data.heldout:
        evaluate = heldout_evaluation(Corpus.open(work / HELDOUT), vocab, max_tokens=settings.training.heldout_tokens)
    return _Begin(model, vocab, options, corpus, evaluate, is_new=not has_softmax(source))


def _load_sums(state: PretrainState, run_dir: Path) -> None:
    """Load the optimizer's state from a pretraining run."""
    newest = load_newest(run_dir / CHECKPOINTS)
    if newest is None:
        raise InputError(f"{run_dir}: has no checkpoint; give the folder of the model's pretraining run")
    found = {
        name.removeprefix(OPTIMIZER): tensor for name, tensor in newest.tensors.items() if name.startswith(OPTIMIZER)
    }
    expected = state.optimizer.tensors()
    if shapes_of(found) != shapes_of(expected):
        raise ConfigError(
            f"{run_dir}: belongs to another model than the one to tune, or to another kind of softmax; "
            "give the run that the model came from"
        )
    state.optimizer.load({name: tensor.to(state.world.device) for name, tensor in found.items()})
