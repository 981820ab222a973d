"""Verbs that reproduce the paper's tables: reproduce table1."""

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import sub_app, verb
from elmokit.cli.messages import print_message
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_freed_memory
from elmokit.errors import ElmokitError, InputError, OutputError
from elmokit.weights.bundled import EN_SMALL, find_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from elmokit.analysis.datasets import DataSet
    from elmokit.analysis.table1 import Failed, TableRun
    from elmokit.analysis.table1_summary import Runs
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

Ctrl-C finishes the step, saves and exits; run the same command to resume. Finished runs are not repeated."""

reproduce = sub_app("Reproduce the paper's tables on data that you have.")
app.add_typer(reproduce, name="reproduce")


@reproduce.callback()
def _tables() -> None:
    """Reproduce the paper's tables on data that you have."""


@verb(reproduce, epilog=TABLE1_EPILOG)
def table1(
    *,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the datasets.")] = None,
    elmo: Annotated[
        Path, typer.Option(metavar="MODEL", help="The biLM's folder.  [default: en-small]", show_default=False)
    ] = EN_SMALL,
    vectors: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Static vectors.  [default: DIR/{VECTORS}]")
    ] = None,
    run_dir: Annotated[Path, typer.Option("--run-dir", metavar="DIR", help="Folder of the runs.")] = Path(
        "runs/table1"
    ),
    tasks: Annotated[
        str, typer.Option(metavar="NAMES", help="Rows or tasks, separated by commas.  [default: all]")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs per arm, with seeds 0 to N-1.")] = 3,
    recipes: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with ner.toml and so on.  [default: elmokit's]")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.md", help="Also write the table as Markdown, and every run as JSON beside it."),
    ] = None,
    note: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A paragraph for that page; can be repeated."),
    ] = None,
    only_print: Annotated[bool, typer.Option("--only-print", help="Run nothing; print the finished runs.")] = False,
) -> None:
    """Train six tasks without ELMo, with an untrained biLM, and with ELMo.

    The three arms of a row differ in nothing else. The best weights are chosen on the dev set; the test set is
    evaluated once.
    """
    keep_freed_memory()
    from elmokit.analysis.datasets import choose_datasets
    from elmokit.analysis.table1_summary import read_runs

    if save is not None and not save.absolute().parent.is_dir():  # checked now, not after a night of training
        raise OutputError(f"{save}: there is no folder {save.parent}; make it first, or write elsewhere")
    if note and save is None:
        raise InputError("--note is a paragraph of the page that --save writes; add --save FILE.md")
    datasets = choose_datasets([name for name in tasks.split(",") if name])
    if only_print:
        _show(
            datasets,
            read_runs(run_dir, datasets, num_seeds=seeds),
            run_dir,
            num_seeds=seeds,
            save=save,
            notes=note or [],
        )
        return
    if data is None:
        raise InputError("no data; name its folder with --data, or use --only-print")
    runs = _plan(datasets, data, run_dir, elmo=elmo, vectors=vectors, recipes=recipes, num_seeds=seeds)
    is_over, shown = _run(runs, data, run_dir)
    _show(datasets, _finished_runs(runs), run_dir, num_seeds=seeds, save=save, notes=note or [])
    if not is_over:
        raise KeyboardInterrupt(f"the runs are saved in {run_dir}; run the same command to resume")
    if shown.failed:
        raise ElmokitError(f"{len(shown.failed)} of {len(runs)} runs failed, see above; the others are finished")


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
    """Return every run. Missing files are reported before the first one starts."""
    from elmokit.analysis.table1 import plan_runs

    for dataset in datasets:
        dataset.find_files(data)
    file = (vectors or data / VECTORS).resolve()
    by_task = {
        task: _read_recipe(task, recipes, vectors=file) for task in dict.fromkeys(dataset.task for dataset in datasets)
    }
    # Resolved, so that the same command resumes in any folder.
    return plan_runs(datasets, by_task, run_dir, bilm=str(find_model(elmo).resolve()), num_seeds=num_seeds)


def _read_recipe(task: str, folder: Path | None, *, vectors: Path) -> "TaskRecipe":
    from elmokit.tasks.recipe import find_task_recipe, resolve_recipe

    path = find_task_recipe(task, None if folder is None else folder / f"{task}.toml")
    return resolve_recipe(task, path, vectors=vectors)


def _finished_runs(runs: "list[TableRun]") -> "Runs":
    """Return the finished runs; those of other recipes were reported as failed."""
    from elmokit.analysis.table1 import read_run
    from elmokit.tasks.resume_check import same_recipe

    found = {(run.dataset.name, run.arm, run.seed): (read_run(run.folder), run.recipe) for run in runs}
    return {
        key: one
        for key, (one, recipe) in found.items()
        if one is not None and same_recipe(one.result["recipe"], recipe)
    }


def _run(runs: "list[TableRun]", data: Path, run_dir: Path) -> "tuple[bool, TableDisplay]":
    from elmokit.analysis.table1 import run_table
    from elmokit.cli.table_display import show_table

    stop = threading.Event()
    with show_table(runs) as shown, stop_by_signal(stop) as install_handlers:

        def report(run: "TableRun", entry: "Entry | Failed") -> None:
            install_handlers()
            shown.report(run, entry)

        is_over = run_table(runs, data, run_dir, report=report, stop=stop)
    return is_over, shown


def _show(
    datasets: "Sequence[DataSet]",
    runs: "Runs",
    run_dir: Path,
    *,
    num_seeds: int,
    save: Path | None,
    notes: "Sequence[str]",
) -> None:
    from elmokit.analysis.table1_summary import scores_of, to_json_lines, to_markdown
    from elmokit.atomic import atomic_file
    from elmokit.cli.table_display import print_table
    from elmokit.runs.provenance import gather_facts, shown_word

    print_table(datasets, scores_of(runs), num_seeds=num_seeds)
    if save is None:
        return
    runs_file = save.with_name(f"{save.stem}-runs.jsonl")
    page = to_markdown(
        run_dir,
        datasets,
        runs,
        num_seeds=num_seeds,
        facts=gather_facts(["elmokit", *map(shown_word, _without_notes(sys.argv[1:]))]),
        notes=notes,
        runs_file=runs_file.name,
    )
    for path, text in ((runs_file, to_json_lines(run_dir, datasets, runs)), (save, page)):
        with atomic_file(path) as new:
            new.write_text(text, "utf-8")
    print_message(f"the table is in {save}, its runs in {runs_file}")


def _without_notes(words: "Sequence[str]") -> "Iterator[str]":
    """Yield the words of the command, without the notes."""
    is_note = False
    for word in words:
        if not is_note and word.partition("=")[0] != "--note":
            yield word
        is_note = word == "--note"
