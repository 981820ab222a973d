"""Verbs of the six tasks: task train, task evaluate, task predict."""

import json
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import sub_app, verb
from elmokit.cli.messages import say
from elmokit.cli.options import Language
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_freed_memory
from elmokit.cli.task_display import print_scores, task_run_shown
from elmokit.errors import ConfigError, InputError
from elmokit.tasks.names import TASKS
from elmokit.weights.bundled import EN_SMALL

if TYPE_CHECKING:
    from elmokit.tasks.progress import Entry
    from elmokit.tasks.recipe import TaskRecipe

NONE = "none"


def _known_task(name: str) -> str:
    if name not in TASKS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, TASKS))}.")
    return name


TaskName = Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(TASKS)}.", parser=_known_task)]
MODEL_HELP = "The folder of a task model, as `task train` makes it."
ENSEMBLE_HELP = "Another model of the task, to decide together; can be given several times."

WIDEST_NAME = max(map(len, TASKS))
TRAIN_EPILOG = f"""\b
Formats of the files, also .gz and .xz
{chr(10).join(f"  {name:{WIDEST_NAME}}  {info.files}" for name, info in TASKS.items())}

\b
Examples
  elmokit task train ner --train train.conll --dev dev.conll \\
      --vectors glove.6B.100d.txt --elmo my-model
  elmokit task train ner … --elmo none --run-dir runs/ner-baseline
  elmokit task train ner … --recipe ner-paper training.seed=1

Ctrl-C finishes the step, saves and ends; the same command goes on from there. A second Ctrl-C ends at once."""

PREDICT_EPILOG = f"""\b
A line of text is
{chr(10).join(f"  {name:{WIDEST_NAME}}  {info.line}" for name, info in TASKS.items())}

With --json every prediction is one object. Its "line" is the line of the text, counted from 0 over all inputs."""

task = sub_app("Train and use models of the paper's six tasks.")
app.add_typer(task, name="task")


@verb(task, epilog=TRAIN_EPILOG)
def train(
    name: TaskName,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Values in place of the recipe's.")
    ] = None,
    *,
    train: Annotated[Path, typer.Option(metavar="FILE", help="To learn from.")],
    dev: Annotated[Path, typer.Option(metavar="FILE", help="To choose the best weights by.")],
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="To test these on, once, at the end.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="One of ours by its name, or a TOML file.  [default: the task's name]"),
    ] = None,
    elmo: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|none", help="The biLM's folder; none for a model without ELMo.  [default: en-small]"
        ),
    ] = None,
    vectors: Annotated[
        str | None, typer.Option(metavar="FILE|none", help="Static vectors: GloVe's or word2vec's text, or .npz.")
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Of the biLM take the shape alone: random weights, as a control.")
    ] = False,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", metavar="DIR", help="The run's folder.  [default: runs/RECIPE's name]")
    ] = None,
) -> None:
    """Learn a task from labelled files. On an existing run it goes on by itself."""
    from elmokit.config import find_recipe, parse_config

    path = find_recipe(recipe or name, folder="tasks")
    options = _as_changes(elmo=elmo, vectors=vectors, untrained=untrained)
    asked = _read_recipe(path, [*options, *(changes or [])], name)  # a fault in it is told before torch is loaded
    keep_freed_memory()
    from elmokit.tasks.loop import train_task
    from elmokit.tasks.materials import read_data
    from elmokit.tasks.names import get_task

    run_dir = run_dir or Path("runs") / path.stem
    task = get_task(name)
    parse_config(task.settings, asked.model, source=f"{path}, [model]")  # now, not after the biLM has read for an hour
    data = read_data(task, train=train, dev=dev, test=test)
    stop = threading.Event()
    with task_run_shown(asked) as shown, stop_by_signal(stop) as begin_to_listen:

        def report(entry: "Entry") -> None:
            begin_to_listen()
            shown.report(entry)

        model = train_task(task, asked, data, run_dir, report=report, stop=stop)
    if model is None:
        raise KeyboardInterrupt(f"the run is saved in {run_dir}, the same command goes on from there")
    finished = shown.words.finished
    assert finished is not None
    print_scores({"dev": finished.dev} | ({} if finished.test is None else {"test": finished.test}))
    say(f"{shown.summary()}; the model is in {model}")


@verb(task)
def evaluate(
    name: TaskName,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Labelled data, as `task train` reads it.")],
    *,
    ensemble: Annotated[list[Path] | None, typer.Option(metavar="MODEL", help=ENSEMBLE_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score a model's predictions on labelled data."""
    from elmokit.cli.task_predictions import NumberedExample, answer, count_shown, load_models
    from elmokit.tasks.evaluation import warn_of_unknown_labels

    models = load_models(name, [model, *(ensemble or [])])
    first = models[0]
    try:
        examples = first.task.read(file)
    except InputError as error:  # it may be of another task's format
        raise InputError(f"{error} (read as data of the task {name})") from error
    if not examples:
        raise InputError(f"{file}: no examples in it; expected data of the task {name}")
    warn_of_unknown_labels(first.task, first.labels, examples, source=str(file))
    with count_shown(total=len(examples)) as count:
        answered = answer(models, (NumberedExample(*numbered) for numbered in enumerate(examples)), count=count)
        scores = first.task.score(examples, [prediction for _, prediction in answered])
    if as_json:
        typer.echo(json.dumps({"task": name, "num_examples": len(examples), **scores}))
    else:
        print_scores({f"{file.name} ({len(examples):,})": scores})


@verb(task, epilog=PREDICT_EPILOG)
def predict(
    name: TaskName,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILES", help="Text files, also .gz and .xz, or patterns.  [default: standard input]"),
    ] = None,
    *,
    ensemble: Annotated[list[Path] | None, typer.Option(metavar="MODEL", help=ENSEMBLE_HELP)] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="Tokens stand between white space; a line is a sentence.")
    ] = False,
    language: Language = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a prediction.")] = False,
) -> None:
    """Say what a model makes of text."""
    from elmokit.cli.task_predictions import (
        AT_ONCE,
        answer,
        count_shown,
        load_models,
        read_examples,
        show,
        shown_path,
    )
    from elmokit.text.lines import STDIN, find_inputs, read_lines
    from elmokit.text.rules import TextRules

    paths = find_inputs(files or [STDIN])
    lines = read_lines(paths)  # looks for the files before the models are loaded
    models = load_models(name, [model, *(ensemble or [])])
    task, expected = models[0].task, TASKS[name].prompt
    rules = TextRules(tokenized=tokenized, split=not tokenized, language=language)
    is_typed = STDIN in paths and sys.stdin.isatty()
    if is_typed:
        say(f"type {expected}; Ctrl-D ends")
    # Who types sentences wants each answered, and who sees the answers needs no count of them.
    with nullcontext(_ignore) if sys.stdout.isatty() else count_shown(total=None) as count:
        num_shown = 0
        examples = read_examples(task, lines, rules, on_error=(lambda error: say(str(error))) if is_typed else None)
        for example, prediction in answer(models, examples, at_once=1 if is_typed else AT_ONCE, count=count):
            show(task, example, prediction, as_json=as_json)
            num_shown += 1
    if not (num_shown or is_typed):
        raise InputError(f"no text in {', '.join(map(shown_path, paths))}; expected {expected}")


def _ignore(_: int) -> None:
    pass


def _as_changes(*, elmo: str | None, vectors: str | None, untrained: bool) -> list[str]:
    """The options as the changes of a recipe that they stand for."""
    changes = [] if elmo is None else [f"elmo.model={_quote(elmo)}"]
    changes += [] if vectors is None else [f"words.file={_quote(vectors)}"]
    return [*changes, "elmo.untrained=true"] if untrained else changes


def _quote(text: str) -> str:
    """As TOML has text, so that a folder called 2024 is not taken for a number."""
    return json.dumps(text, ensure_ascii=False)


def _read_recipe(path: Path, changes: list[str], task_name: str) -> "TaskRecipe":
    from elmokit.config import read_recipe
    from elmokit.tasks.recipe import TaskRecipe

    asked = read_recipe(TaskRecipe, path, changes)
    if asked.task != task_name:
        raise ConfigError(
            f"{path}: is a recipe of the task {asked.task}, not of {task_name}; name another with --recipe"
        )
    told = any(change.partition("=")[0].strip() == "elmo.model" for change in changes)
    if asked.elmo.model is None and asked.elmo.place != NONE and not told:
        asked = asked.model_copy(update={"elmo": asked.elmo.model_copy(update={"model": str(EN_SMALL)})})
    if asked.elmo.model is None and asked.elmo.untrained:
        raise InputError("--untrained takes the shape of a biLM; name its folder with --elmo")
    if asked.words.file is None and asked.words.trained:  # there is nothing to be trained
        return asked.model_copy(update={"words": asked.words.model_copy(update={"trained": False})})
    return asked
