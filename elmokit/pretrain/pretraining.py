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

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from elmokit.atomic import atomic_file, remove_leftovers
from elmokit.embed.files import find_inputs
from elmokit.errors import ConfigError, OutputError
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.checkpoint import checkpoints
from elmokit.pretrain.distributed import World, join_world, wait_for_all
from elmokit.pretrain.event_log import event_log
from elmokit.pretrain.perplexity import held_out_look
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.run import CHECKPOINTS, HeldOut, LogLine, Report, RunPlan, train
from elmokit.pretrain.saved_lm import save_language_model
from elmokit.pretrain.trainer import Trainer
from elmokit.text.corpus import Corpus
from elmokit.text.preparation import prepare_corpus
from elmokit.text.vocab import Vocab, read_vocab

RECIPE, TEXT, HELDOUT, VOCAB = "recipe.json", "text", "heldout", "vocab.txt"
EVENTS, BEST, MODEL, FINISHED, LOCK = "tensorboard", "best", "model", "finished.json", "lock"

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
    with join_world() as world, _claimed(run_dir, world):
        if world.is_first:
            _prepare(recipe, run_dir, num_workers=num_workers, progress=prepare_progress)
        wait_for_all(world)
        vocab = read_vocab(run_dir / VOCAB)
        trainer = Trainer(recipe, Corpus.open(run_dir / TEXT), vocab, world=world)
        look = None
        if recipe.data.heldout:
            heldout = Corpus.open(run_dir / HELDOUT)
            look = held_out_look(heldout, vocab, max_tokens=recipe.training.heldout_tokens)
        with event_log(run_dir / EVENTS, writes=world.is_first) as add_events:

            def tell(entry: RunPlan | LogLine | HeldOut) -> None:
                add_events(entry)
                report(entry)

            train(
                trainer,
                run_dir,
                look=look,
                save_best=partial(_save, trainer, run_dir / BEST),
                report=tell,
                stop=stop,
            )
        if world.is_first:
            _write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))
        if not trainer.is_over:
            return None
        if world.is_first:
            _finish(trainer, run_dir)
        wait_for_all(world)
    return run_dir / MODEL


def _prepare(recipe: Recipe, run_dir: Path, *, num_workers: int, progress: PrepareProgress | None) -> None:
    """Make the texts, the vocabulary and the recipe's copy, where they are not there already."""
    data = recipe.data
    if not data.train:
        raise ConfigError("the recipe names no text; give data.train, files or patterns")
    remove_leftovers(run_dir)
    corpora = {}
    for name, patterns in ((TEXT, data.train), (HELDOUT, data.heldout)):
        if patterns:
            corpora[name] = prepare_corpus(
                find_inputs(patterns),
                run_dir / name,
                tokenized=data.tokenized,
                split=data.split,
                language=data.language,
                max_chars=recipe.model.char_encoder.max_chars,
                num_workers=num_workers,
                progress=progress,
            )
    vocab = find_vocab(recipe, corpora[TEXT])
    with atomic_file(run_dir / VOCAB) as new:
        new.write_bytes(vocab.to_text().encode())
    if not checkpoints(run_dir / CHECKPOINTS):  # a run that goes on may yet refuse this recipe
        _write_json(run_dir / RECIPE, recipe.model_dump(mode="json"))


def find_vocab(recipe: Recipe, corpus: Corpus) -> Vocab:
    """The vocabulary that the recipe names, or the one that follows from the text."""
    settings = recipe.vocab
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
        _write_json(run_dir / FINISHED, {"step": trainer.step})


def _finished_step(run_dir: Path) -> int | None:
    try:
        found: int = json.loads((run_dir / FINISHED).read_bytes())["step"]
    except (OSError, ValueError, KeyError):
        return None
    return found if (run_dir / MODEL).is_dir() else None


def _write_json(path: Path, content: dict[str, object]) -> None:
    with atomic_file(path) as new:
        new.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


@contextmanager
def _claimed(run_dir: Path, world: World) -> Iterator[None]:
    """Keep other runs out of the folder; the system lets go of the lock when the process ends, however it ends."""
    if not world.is_first:
        yield
        return
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        file = (run_dir / LOCK).open("wb")
    except OSError as error:
        raise OutputError(f"{run_dir}: cannot be written: {error.strerror}; name another run folder") from error
    with file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(
                    f"{run_dir}: another process is training in it; wait for it, or name another run folder"
                ) from None
        yield
