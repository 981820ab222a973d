"""Verbs of the tasks: task train, task evaluate, task predict, task text, task slim."""

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import sub_app, verb
from elmokit.cli.messages import print_message
from elmokit.cli.options import Language, RecipeChanges, RunDir
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_freed_memory
from elmokit.cli.task_display import print_scores, task_run_shown
from elmokit.errors import InputError
from elmokit.tasks.names import TASKS

if TYPE_CHECKING:
    from elmokit.tasks.progress import Entry


def _known_task(name: str) -> str:
    if name not in TASKS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, TASKS))}.")
    return name


TaskName = Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(TASKS)}.", parser=_known_task)]
MODEL_HELP = "Folder of a task model, as saved by `task train`; or ner, the one in the package."
ENSEMBLE_HELP = "Another model of the task, for an ensemble; can be given several times."

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

Ctrl-C finishes the step, saves and ends; the same command resumes the run. A second Ctrl-C ends at once."""

PREDICT_EPILOG = f"""\b
A line of text is
{chr(10).join(f"  {name:{WIDEST_NAME}}  {info.line}" for name, info in TASKS.items())}

With --json every prediction is one object. Its "line" is the line of the text, counted from 0 over all inputs."""

TEXT_EPILOG = """\b
Example: tune the biLM on the text of a task before training the task
  elmokit task text ner train.conll > train.txt
  elmokit finetune en-small train.txt --tokenized -o tuned
  elmokit task train ner --train train.conll --dev dev.conll --elmo tuned"""

task = sub_app("Train and use models of the paper's tasks.")
app.add_typer(task, name="task")


@verb(task, epilog=TRAIN_EPILOG)
def train(
    name: TaskName,
    settings: RecipeChanges = None,
    *,
    train: Annotated[Path, typer.Option(metavar="FILE", help="Data to train on.")],
    dev: Annotated[Path, typer.Option(metavar="FILE", help="Data to select the best weights with.")],
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Data to test these on, once, at the end.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A bundled recipe by its name, or a TOML file.  [default: the task's]"),
    ] = None,
    elmo: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|none", help="Folder of the biLM; none for a model without ELMo.  [default: en-small]"
        ),
    ] = None,
    vectors: Annotated[
        str | None, typer.Option(metavar="FILE|none", help="Static vectors: GloVe or word2vec text, or .npz.")
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Take only the shape of the biLM, with random weights, as a control.")
    ] = False,
    run_dir: RunDir = None,
) -> None:
    """Train a model of a task on labeled files. An interrupted run is resumed."""
    keep_freed_memory()
    from elmokit.tasks.recipe import find_task_recipe, resolve_recipe

    path = find_task_recipe(name, recipe)
    resolved = resolve_recipe(name, path, settings=settings or [], elmo=elmo, vectors=vectors, untrained=untrained)
    from elmokit.runs.layout import MODEL
    from elmokit.runs.onednn import use_onednn_products
    from elmokit.tasks.loop import run_task
    from elmokit.tasks.materials import read_data
    from elmokit.tasks.names import get_task
    from elmokit.tasks.training import default_run_dir

    use_onednn_products()
    run_dir = run_dir or default_run_dir(path)
    task = get_task(name)
    data = read_data(task, train=train, dev=dev, test=test)
    stop = threading.Event()
    with task_run_shown(resolved) as shown, stop_by_signal(stop) as begin_to_listen:

        def report(entry: "Entry") -> None:
            begin_to_listen()
            shown.report(entry)

        finished = run_task(task, resolved, data, run_dir, report=report, stop=stop)
    if finished is None:
        raise KeyboardInterrupt(f"the run is saved in {run_dir}; run the same command to resume")
    print_scores({"dev": finished.dev} | ({} if finished.test is None else {"test": finished.test}))
    print_message(f"{shown.summary()}; the model is in {run_dir / MODEL}")


@verb(task)
def evaluate(
    name: TaskName,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Labeled data, in the format of `task train`.")],
    *,
    ensemble: Annotated[list[Path] | None, typer.Option(metavar="MODEL", help=ENSEMBLE_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score a model's predictions on labeled data."""
    from elmokit.cli.task_predictions import NumberedExample, answer, count_shown, load_models
    from elmokit.tasks.task_model import read_labeled, warn_of_unknown_labels

    models = load_models(name, [model, *(ensemble or [])])
    first = models[0]
    examples = read_labeled(first.task, file)
    warn_of_unknown_labels(first.task, first.labels, examples, source=str(file))
    with count_shown(total=len(examples)) as count:
        answered = answer(models, (NumberedExample(*numbered) for numbered in enumerate(examples)), count=count)
        scores = first.task.score(examples, [prediction for _, prediction in answered])
    if as_json:
        typer.echo(json.dumps({"task": name, "num_examples": len(examples), **scores}))
    else:
        print_scores({f"{file.name} ({len(examples):,})": scores})


@verb(task)
def slim(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="The folder to write.")],
    bilm: Annotated[str, typer.Option(metavar="NAME", help="An installed biLM, the one of the model.")] = "en-small",
) -> None:
    """Save a model without its biLM, which it then finds by name."""
    from elmokit.tasks.saved import slim_task

    slim_task(model, output, bilm=bilm)
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    print_message(f"{output}: {size / 1e6:.1f} MB; it reads {bilm}")


@verb(task, epilog=TEXT_EPILOG)
def text(
    name: TaskName,
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Labeled files of the task.")],
) -> None:
    """Print the tokenized sentences of labeled files.

    There is one sentence per line, each once. Of SQuAD the paragraphs are printed, without the questions.
    """
    from elmokit.tasks.materials import text_of
    from elmokit.tasks.names import get_task
    from elmokit.tasks.task_model import read_labeled

    task = get_task(name)
    shown: set[tuple[str, ...]] = set()
    for file in files:
        for tokens in text_of(task, read_labeled(task, file)):
            if tokens not in shown:
                shown.add(tokens)
                typer.echo(" ".join(tokens))


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
        bool, typer.Option("--tokenized", help="Tokens are separated by white space, and a line is a sentence.")
    ] = False,
    language: Language = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per prediction.")] = False,
    draw: Annotated[bool, typer.Option("--draw", help="Draw trees, where predictions are trees (parse).")] = False,
) -> None:
    """Print a model's predictions for text."""
    if as_json and draw:
        raise InputError("--json and --draw; choose one of the two. JSON has the drawing too")
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
    lines = read_lines(paths)  # checks that the files exist before the models are loaded
    models = load_models(name, [model, *(ensemble or [])])
    task, expected = models[0].task, TASKS[name].prompt
    rules = TextRules(tokenized=tokenized, split=not tokenized, language=language)
    is_typed = STDIN in paths and sys.stdin.isatty()
    if is_typed:
        print_message(f"type {expected}; Ctrl-D ends")
    with count_shown(total=None, has_output=True) as count:
        num_shown = 0
        examples = read_examples(
            task, lines, rules, on_error=(lambda error: print_message(str(error))) if is_typed else None
        )
        for example, prediction in answer(models, examples, at_once=1 if is_typed else AT_ONCE, count=count):
            show(task, example, prediction, as_json=as_json, draw=draw)
            num_shown += 1
    if not (num_shown or is_typed):
        raise InputError(f"no text in {', '.join(map(shown_path, paths))}; expected {expected}")
