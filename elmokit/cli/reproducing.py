"""Verbs that make the paper's tables again: reproduce table1."""

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import sub_app, verb
from elmokit.cli.messages import say
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_memory
from elmokit.errors import ElmokitError, InputError, OutputError
from elmokit.weights.bundled import EN_SMALL, find_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from elmokit.analysis.datasets import DataSet
    from elmokit.analysis.table1 import Failed, TableRun
    from elmokit.analysis.table1_summary import Results
    from elmokit.cli.table_display import TableDisplay
    from elmokit.tasks.progress import Entry
    from elmokit.tasks.recipe import TaskRecipe

VECTORS = "glove/glove.6B.100d.top100k.f16.npz"  # below the data's folder
TABLE1_EPILOG = """\b
The rows, and the files below DIR that they need, also as .gz or .xz
  ner-wikigold  ner/wikigold.conll
  ner-wnut17    ner/wnut17.{train,dev,test}.conll
  sst           sst/{train,dev,test}.txt
  snli          snli/snli_1.0_{train-100k,dev,test}.jsonl
  squad         squad/{train,test}-small.json
  srl           srl/ewt-propbank-{train,dev,test}.conll
  coref         coref/litbank-conll.tar

Ctrl-C finishes the step, saves and ends; the same command goes on from there. Finished runs are not run again."""

reproduce = sub_app("Make the paper's tables again, on data that you have.")
app.add_typer(reproduce, name="reproduce")


@reproduce.callback()
def _tables() -> None:
    """Make the paper's tables again, on data that you have."""


@verb(reproduce, epilog=TABLE1_EPILOG)
def table1(
    *,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of the data sets.")] = None,
    elmo: Annotated[
        Path, typer.Option(metavar="MODEL", help="The biLM's folder.  [default: en-small]", show_default=False)
    ] = EN_SMALL,
    vectors: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Static vectors.  [default: DIR/{VECTORS}]")
    ] = None,
    run_dir: Annotated[Path, typer.Option("--run-dir", metavar="DIR", help="Where the runs are.")] = Path(
        "runs/table1"
    ),
    tasks: Annotated[
        str, typer.Option(metavar="NAMES", help="Rows or tasks, with commas between.  [default: all]")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of every arm, with seeds 0 to N-1.")] = 3,
    recipes: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where ner.toml and so on are.  [default: ours]")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.md", help="Also write the table as Markdown, and every run as JSON beside it."),
    ] = None,
    note: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A paragraph for that page; can be given several times."),
    ] = None,
    only_print: Annotated[bool, typer.Option("--only-print", help="Run nothing; print what there is.")] = False,
) -> None:
    """Six tasks without ELMo, with an untrained biLM, and with ELMo.

    The three arms of a row differ in nothing else. The best weights are chosen on dev, and test is read once.
    """
    keep_memory()
    from elmokit.analysis.datasets import choose_datasets
    from elmokit.analysis.table1 import read_result
    from elmokit.analysis.table1_summary import read_results

    if save is not None and not save.absolute().parent.is_dir():  # found out now, not after a night
        raise OutputError(f"{save}: there is no folder {save.parent}; make it first, or write elsewhere")
    if note and save is None:
        raise InputError("--note is a paragraph of the page; say with --save where to write it")
    datasets = choose_datasets([name for name in tasks.split(",") if name])
    if only_print:
        results = read_results(run_dir, datasets, num_seeds=seeds)
        _show(datasets, results, run_dir, num_seeds=seeds, save=save, notes=note or [])
        return
    if data is None:
        raise InputError("no data; name its folder with --data, or --only-print what there is")
    runs = _plan(datasets, data, run_dir, elmo=elmo, vectors=vectors, recipes=recipes, num_seeds=seeds)
    is_over, shown = _run(runs, data, run_dir)
    finished = {(run.dataset.name, run.arm, run.seed): read_result(run.folder, run.recipe) for run in runs}
    results = {key: one for key, one in finished.items() if one is not None}
    _show(datasets, results, run_dir, num_seeds=seeds, save=save, notes=note or [])
    if not is_over:
        raise KeyboardInterrupt(f"the runs are saved in {run_dir}, the same command goes on from there")
    if shown.failed:
        raise ElmokitError(f"{len(shown.failed)} of {len(runs)} runs failed, as told above; the others are finished")


def _plan(
    datasets: "Sequence[DataSet]",
    data: Path,
    run_dir: Path,
    *,
    elmo: Path,
    vectors: Path | None,
    recipes: Path | None,
    num_seeds: int,
) -> "list[TableRun]":
    """Every run; what is missing is told before any begins."""
    from elmokit.analysis.table1 import plan_runs

    for dataset in datasets:
        dataset.find_files(data)
    file = (vectors or data / VECTORS).resolve()
    by_task = {
        task: _read_recipe(task, recipes, vectors=file) for task in dict.fromkeys(dataset.task for dataset in datasets)
    }
    # Resolved, so that the same command goes on from any folder.
    return plan_runs(datasets, by_task, run_dir, bilm=str(find_model(elmo).resolve()), num_seeds=num_seeds)


def _read_recipe(task: str, folder: Path | None, *, vectors: Path) -> "TaskRecipe":
    from elmokit.config import find_recipe, parse_config, read_recipe
    from elmokit.tasks.names import get_task
    from elmokit.tasks.recipe import TaskRecipe

    path = find_recipe(task, folder="tasks") if folder is None else folder / f"{task}.toml"
    recipe = read_recipe(TaskRecipe, path, [])
    parse_config(get_task(task).settings, recipe.model, source=f"{path}, [model]")
    return recipe.model_copy(update={"words": recipe.words.model_copy(update={"file": str(vectors)})})


def _run(runs: "list[TableRun]", data: Path, run_dir: Path) -> "tuple[bool, TableDisplay]":
    from elmokit.analysis.table1 import run_table
    from elmokit.cli.table_display import table_shown

    stop = threading.Event()
    with table_shown(runs) as shown, stop_by_signal(stop) as begin_to_listen:

        def report(run: "TableRun", entry: "Entry | Failed") -> None:
            begin_to_listen()
            shown.report(run, entry)

        is_over = run_table(runs, data, run_dir, report=report, stop=stop)
    return is_over, shown


def _show(
    datasets: "Sequence[DataSet]",
    results: "Results",
    run_dir: Path,
    *,
    num_seeds: int,
    save: Path | None,
    notes: "Sequence[str]",
) -> None:
    from elmokit.analysis.table1_summary import to_json_lines, to_markdown
    from elmokit.atomic import atomic_file
    from elmokit.cli.table_display import print_table
    from elmokit.runs.provenance import gather_facts, shown_word

    print_table(datasets, results, num_seeds=num_seeds)
    if save is None:
        return
    runs_file = save.with_name(f"{save.stem}-runs.jsonl")
    page = to_markdown(
        run_dir,
        datasets,
        results,
        num_seeds=num_seeds,
        facts=gather_facts(["elmokit", *map(shown_word, _without_notes(sys.argv[1:]))]),
        notes=notes,
        runs_file=runs_file.name,
    )
    for path, text in ((runs_file, to_json_lines(run_dir, datasets, results)), (save, page)):
        with atomic_file(path) as new:
            new.write_text(text, "utf-8")
    say(f"the table is in {save}, its runs in {runs_file}")


def _without_notes(words: "Sequence[str]") -> "Iterator[str]":
    """The command without the paragraphs that stand on the page."""
    is_note = False
    for word in words:
        if not is_note and word.partition("=")[0] != "--note":
            yield word
        is_note = word == "--note"
