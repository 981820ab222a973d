"""The verb that reproduces the paper's tables and figures: reproduce."""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import print_message
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_freed_memory, keep_freed_memory_of_children
from elmokit.errors import ElmokitError, InputError, OutputError
from elmokit.weights.bundled import EN_SMALL, MODEL, find_model, find_package

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elmokit.cli.paper_display import PaperDisplay
    from elmokit.paper.engine import Event
    from elmokit.paper.plan import PaperRun
    from elmokit.paper.run_file import RunFile
    from elmokit.paper.settings import Recipes
    from elmokit.paper.workshop import Workshop

VECTORS = "glove/glove.6B.100d.top100k.f16.npz"  # below the data's folder
RUNS, PAGE = "paper-runs.jsonl", "paper.md"
EN_MEDIUM = "en-medium"
EPILOG = """\b
Examples
  elmokit reproduce all --plan
  elmokit reproduce table3 --data data --only snli --seeds 1
  elmokit reproduce all --page

\b
The rows, and the files below DIR that they need, also as .gz or .xz
  ner-wikigold  ner/wikigold.conll
  ner-wnut17    ner/wnut17.{train,dev,test}.conll
  sst           sst/{train,dev,test}.txt
  snli          snli/snli_1.0_{train-100k,dev,test}.jsonl
  squad         squad/{train,test}-small.json
  srl           srl/ewt-propbank-{train,dev,test}.conll
  coref         coref/litbank-conll.tar
  parse         trees/ewt.{train,dev,test}.ptb
  play, wsd     wsd/semcor.{data.xml,gold.key.txt}
  wsd           wsd/wordnet3.0.index.sense, wsd/NAME/NAME.data.xml,
                wsd/NAME/NAME.gold.key.txt
  pos, tag      pos/en_ewt-ud-{train,dev,test}.conllu; so do upos, direction
                and relation

Ctrl-C finishes the step, saves and exits; run the same command to resume. Runs that the file of runs has are not made
again, on whichever machine they were made."""


@verb(app, epilog=EPILOG)
def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="table1 to table7, figure1, figure2, questions, or all.")],
    *,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the datasets.")] = None,
    elmo: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="The biLM.  [default: en-medium if it is installed, else en-small]",
            show_default=False,
        ),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Static vectors.  [default: DIR/{VECTORS}]")
    ] = None,
    cove: Annotated[str | None, typer.Option(metavar="ENCODER", help="CoVe, to compare with.")] = None,
    context2vec: Annotated[str | None, typer.Option(metavar="ENCODER", help="context2vec, to compare with.")] = None,
    encoder: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ENCODER", help="An encoder of the open questions: shared, taglm, forward or words."),
    ] = None,
    results: Annotated[
        Path, typer.Option(metavar="DIR", help=f"Folder of {RUNS}, of {PAGE} and of the figures.")
    ] = Path("results"),
    run_dir: Annotated[Path, typer.Option("--run-dir", metavar="DIR", help="Folder of unfinished runs.")] = Path(
        "runs/paper"
    ),
    only: Annotated[
        str, typer.Option(metavar="NAMES", help="Rows, tasks, arms or kinds of runs, separated by commas.")
    ] = "",
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Seeds per arm at most.")] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Runs at a time, each on one core.")] = 2,
    recipes: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with ner.toml and so on.  [default: elmokit's]")
    ] = None,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the models of finished runs.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Make nothing; print the runs and the time they take.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Make nothing; write the page from the file of runs.")] = False,
) -> None:
    """Re-run the paper's tables and figures.

    The page that it writes compares them claim by claim.
    """
    keep_freed_memory()
    from elmokit.paper.plan import choose_tables, plan_runs
    from elmokit.paper.run_file import RunFile
    from elmokit.paper.settings import Recipes

    if not plan and not results.is_dir():  # checked now, not after a night of training
        raise OutputError(f"{results}: no such folder; create it, or name another with --results")
    runs = plan_runs(choose_tables(what), seeds=seeds, only=[name for name in only.split(",") if name])
    file, chosen = RunFile(results / RUNS), Recipes(recipes)
    name = None if elmo is None else _model_name(elmo)
    if plan:
        _print_plan(runs, file, chosen, elmo=name, workers=workers)
        return
    if page:
        _write_page(file, chosen, results, elmo=name)
        return
    if data is None:
        raise InputError("no data; name its folder with --data, or use --plan or --page")
    elmo = elmo or Path(EN_MEDIUM if find_package(EN_MEDIUM) else EN_SMALL.name)
    sources = {"bilm": str(_model_folder(elmo)), "cove": cove, "context2vec": context2vec}
    given = {kind: source for kind, source in sources.items() if source is not None} | _parse_encoders(encoder or [])
    shop = _workshop(data, vectors or data / VECTORS, given, chosen, run_dir)
    elmo_name = _model_name(elmo)
    is_over, shown = _make(runs, shop, file, elmo=elmo_name, workers=workers, keep_models=keep_models)
    has_bilm = any("bilm" in one.inputs and one.elmo == elmo_name for one in file.read().values())
    _write_page(file, chosen, results, elmo=elmo_name if has_bilm else None)  # all may be baselines
    _report_end(shown, run_dir, is_over=is_over)


def _parse_encoders(pairs: list[str]) -> dict[str, str]:
    from elmokit.paper.plan import BUDGETED

    found = {}
    for pair in pairs:
        name, _, source = pair.partition("=")
        if name not in BUDGETED or not source:
            raise InputError(f"--encoder {pair}: expected NAME=ENCODER with one of the names {', '.join(BUDGETED)}")
        found[name] = source
    return found


def _model_name(elmo: Path) -> str:
    """Return the name of a biLM on the page: as it is found, or that of its folder or of the run that made it."""
    if len(elmo.parts) == 1 and not elmo.exists():
        return elmo.name
    folder = _model_folder(elmo)
    return folder.parent.name if folder.name == MODEL else folder.name


def _model_folder(elmo: Path) -> Path:
    return find_model(elmo).resolve()  # resolved, so that the same command resumes in any folder


def _workshop(data: Path, vectors: Path, sources: dict[str, str], recipes: "Recipes", run_dir: Path) -> "Workshop":
    from elmokit.paper.inputs import Inputs
    from elmokit.paper.workshop import Workshop

    return Workshop(Inputs(data.resolve(), vectors.resolve(), sources, recipes), run_dir.resolve())


def _print_plan(
    runs: "Sequence[PaperRun]", file: "RunFile", recipes: "Recipes", *, elmo: str | None, workers: int
) -> None:
    from elmokit.paper.estimates import estimate_runs, show_plan
    from elmokit.paper.results import Results

    records = file.read()
    is_known = elmo is None or any(record.elmo == elmo for record in records.values())
    results = Results(records if is_known else {}, recipes, elmo=elmo if is_known else None)
    distinct = recipes.distinct(runs)
    missing = [run for run in distinct if results.find(run) is None]
    seconds = estimate_runs(missing, records, recipes)
    typer.echo(show_plan(missing, seconds, num_done=len(distinct) - len(missing), workers=workers))


def _make(
    runs: "Sequence[PaperRun]",
    shop: "Workshop",
    file: "RunFile",
    *,
    elmo: str,
    workers: int,
    keep_models: bool,
) -> "tuple[bool, PaperDisplay]":
    from elmokit.cli.paper_display import show_runs
    from elmokit.paper.engine import make_runs
    from elmokit.paper.estimates import estimate_runs
    from elmokit.runs.onednn import use_onednn_products

    use_onednn_products()  # each worker does so, too
    stop = threading.Event()
    distinct = shop.inputs.recipes.distinct(runs)
    seconds = estimate_runs(distinct, file.read(), shop.inputs.recipes)
    if workers > 1:
        keep_freed_memory_of_children()
    with show_runs(distinct, seconds, workers=workers) as shown, stop_by_signal(stop) as install_handlers:

        def report(run: "PaperRun", event: "Event") -> None:
            install_handlers()
            shown.report(run, event)

        is_over = make_runs(
            distinct,
            shop,
            file,
            elmo=elmo,
            workers=min(workers, os.cpu_count() or 1) if workers > 1 else 1,
            report=report,
            stop=stop,
            keep_models=keep_models,
        )
    return is_over, shown


def _write_page(file: "RunFile", recipes: "Recipes", folder: Path, *, elmo: str | None) -> None:
    from elmokit.atomic import atomic_file
    from elmokit.paper.figures import draw_figures
    from elmokit.paper.page import make_page
    from elmokit.paper.results import Results

    results = Results(file.read(), recipes, elmo=elmo)
    figures = draw_figures(results, folder, stem=Path(PAGE).stem)
    with atomic_file(folder / PAGE) as new:
        new.write_text(make_page(results, runs_file=RUNS, figures=figures), "utf-8")
    print_message(f"the page is {folder / PAGE}; its {len(results.used)} runs are in {file.path}")


def _report_end(shown: "PaperDisplay", run_dir: Path, *, is_over: bool) -> None:
    for reason, runs in shown.skipped.items():
        print_message(f"{len(runs)} runs skipped, {runs[0]} first: {reason}")
    if not is_over:
        raise KeyboardInterrupt(f"the runs are saved in {run_dir}; run the same command to resume")
    if shown.failed:
        raise ElmokitError(f"{len(shown.failed)} runs failed, see above; the others are finished")
