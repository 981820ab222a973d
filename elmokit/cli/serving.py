"""Verbs serve and report."""

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import print_message
from elmokit.cli.options import Language, Model, State, StreamFiles, model_source
from elmokit.errors import InputError
from elmokit.extras import require

if TYPE_CHECKING:
    from elmokit.analysis.index import CorpusIndex
    from elmokit.embed.embedder import Embedder

SERVE_MODULES = ("fastapi", "uvicorn", "httptools", "orjson", "prometheus_client")
BUNDLED_TASK = "ner"
SERVE_EPILOG = """\b
Examples
  elmokit serve
  elmokit serve --model my-model --task ner=runs/ner/model --corpus news.txt
  curl localhost:8080/score -H 'Content-Type: text/plain' -d 'The bank closed'

\b
Routes
  /                                      the page
  /v1/embeddings /v1/models              as OpenAI's API
  /embed /embed_all /similarity /tokenize /info /health /metrics
                                         as text-embeddings-inference
  /layers /score /substitutes /neighbors /senses /tasks/NAME
                                         what a biLM knows
  /openapi.json                          all of them, with their bodies

Limits can also be set by the environment variables in brackets. SIGTERM and Ctrl-C finish accepted requests, then
stop."""


def _limit(name: str, help: str, metavar: str = "N") -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        f"--{name}", min=1, metavar=metavar, envvar=f"ELMOKIT_{name.upper().replace('-', '_')}", help=help
    )
    return option


@verb(app, epilog=SERVE_EPILOG, runs_bare=True)
def serve(
    *,
    model: Model = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="NAME=FOLDER",
            help="A task model to serve; can be repeated. The bundled model ner is served by default with en-small.",
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILES",
            help="Text to search, one sentence per line; can be repeated. It is indexed at the start.",
        ),
    ] = None,
    index: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A text to search, indexed by elmokit index.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.", envvar="ELMOKIT_HOST")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.", envvar="ELMOKIT_PORT")
    ] = 8080,
    workers: Annotated[int, _limit("workers", "Processes that share the weights in memory.")] = 1,
    state: State = "warm",
    precision: Annotated[
        Literal["fp32", "int8", "bf16"], typer.Option(help="Precision of the LSTMs' weights.")
    ] = "fp32",
    language: Language = "en",
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="ELMOKIT_API_KEY_FILE", help="Accepted keys, one per line."),
    ] = None,
    cors_origins: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", metavar="URL", help="Allow pages of this origin; can be repeated."),
    ] = None,
    max_body: Annotated[int, _limit("max-body", "Bytes per request body.")] = 1_000_000,
    max_inputs: Annotated[int, _limit("max-inputs", "Texts per request.")] = 32,
    max_openai_inputs: Annotated[int, _limit("max-openai-inputs", "Texts per request to /v1/embeddings.")] = 2048,
    max_tokens: Annotated[int, _limit("max-tokens", "Tokens per text.")] = 1024,
    max_values: Annotated[int, _limit("max-values", "Numbers per answer with vectors of tokens.")] = 4_000_000,
    batch_tokens: Annotated[int, _limit("batch-tokens", "Tokens per batch of the model.")] = 4096,
    max_requests: Annotated[int, _limit("max-requests", "Requests per worker that may wait.")] = 64,
    timeout: Annotated[int, _limit("timeout", "Seconds per request.", "SECONDS")] = 30,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log request bodies, texts included.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log errors only.")] = False,
) -> None:
    """Serve vectors, scores and a page over HTTP."""
    if corpus and index is not None:
        raise InputError("--corpus and --index are given; choose one of them")
    _log_to_stderr("ERROR" if quiet else "INFO")
    import tempfile

    from elmokit.serve.limits import Limits

    limits = Limits(
        max_body=max_body,
        max_inputs=max_inputs,
        max_openai_inputs=max_openai_inputs,
        max_tokens=max_tokens,
        max_values=max_values,
        batch_tokens=batch_tokens,
        max_requests=max_requests,
        timeout=timeout,
    )
    keys = _read_keys(api_key_file)
    with ExitStack() as at_end:
        if workers > 1:  # prometheus_client reads it when it is imported
            folder = at_end.enter_context(tempfile.TemporaryDirectory(prefix="elmokit-metrics-"))
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        for module in SERVE_MODULES:
            require(module, extra="serve")
        from elmokit.serve.loaded import load_models, parse_tasks
        from elmokit.serve.server import bind, run_server

        folders = parse_tasks(tasks or ([] if model else [BUNDLED_TASK]))
        listening = at_end.enter_context(bind(host, port))
        source = model_source(model or [])
        models = load_models(source, tasks=folders, index=index, state=state, precision=precision, language=language)
        if corpus:
            folder = at_end.enter_context(tempfile.TemporaryDirectory(prefix="elmokit-index-"))
            models = replace(models, index=_index_corpus(corpus, Path(folder) / "index", models.embedder))
        models.warm_up()
        from elmokit.serve.app import make_app

        address = listening.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        print_message(f"serving {models.name} at http://{shown}:{address[1]}")
        run_server(
            lambda: make_app(
                models, limits=limits, api_keys=keys, cors_origins=cors_origins or [], log_texts=log_texts
            ),
            listening,
            num_workers=workers,
            timeout=timeout,
        )


@verb(app)
def report(
    files: StreamFiles,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The HTML file to write.")],
    model: Model = None,
    words: Annotated[
        list[str] | None,
        typer.Option("--word", metavar="WORD", help="Show the senses of this word; can be repeated."),
    ] = None,
    state: State = "warm",
    language: Language = "en",
) -> None:
    """Write what the layers say of a text as one HTML file.

    A line is one sentence, 100 at most. The file holds the views Sentence, Layers and Senses, works offline and can be
    mailed.
    """
    for module in SERVE_MODULES:
        require(module, extra="serve")
    from elmokit.cli.progress import show_progress

    with show_progress("writing the report"):
        from elmokit.atomic import atomic_file
        from elmokit.serve.loaded import load_models
        from elmokit.serve.report import make_report
        from elmokit.text.lines import find_inputs, read_lines

        sentences = [line.text for line in read_lines(find_inputs(files))]
        models = load_models(model_source(model or []), tasks={}, state=state, language=language)
        page = make_report(models, sentences, words=words or [])
        with atomic_file(out) as path:
            path.write_text(page, "utf-8")


def _index_corpus(files: list[str], folder: Path, embedder: "Embedder") -> "CorpusIndex":
    from elmokit.analysis.index_building import build_index
    from elmokit.cli.progress import show_progress
    from elmokit.serve.loaded import open_index

    with show_progress("indexing the corpus") as shown:
        shown.begin("indexing", unit="lines", work_unit="words")
        build_index(
            files, folder, embedder, progress=lambda done, total, tokens: shown.update(done, total=total, work=tokens)
        )
    return open_index(folder, embedder)


def _read_keys(path: Path | None) -> list[str]:
    if path is None:
        return []
    keys = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not keys:
        raise InputError(f"{path}: no keys; expected one per line")
    return keys


def _log_to_stderr(level: str) -> None:
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, least in (("elmokit.serve", level), ("uvicorn", "WARNING")):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(least)
