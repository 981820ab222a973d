"""Verbs pretrain and vocab."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import is_first_process, print_message
from elmokit.cli.options import (
    Language,
    RecipeChanges,
    RunDir,
    Split,
    TextFiles,
    Tokenized,
    Workers,
    Wrapped,
    num_workers,
)
from elmokit.cli.run_display import show_run
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_freed_memory
from elmokit.errors import OutputError

if TYPE_CHECKING:
    from elmokit.pretrain.progress import Entry

PRETRAIN_EPILOG = """\b
Examples
  elmokit pretrain small data.train="corpus/*.txt"
  elmokit pretrain my-recipe.toml data.train=a.txt training.epochs=3
  torchrun --nproc-per-node 2 -m elmokit pretrain small …

Ctrl-C finishes the step, saves and exits; run the same command to resume. A second Ctrl-C exits at once."""


@verb(app, epilog=PRETRAIN_EPILOG)
def pretrain(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A TOML file with model and training settings, or a bundled recipe's name, such as small.",
        ),
    ],
    changes: RecipeChanges = None,
    *,
    run_dir: RunDir = None,
    workers: Workers = None,
) -> None:
    """Train a biLM from text. An existing run is resumed."""
    from elmokit.config import find_recipe, read_recipe
    from elmokit.pretrain.recipe import Recipe

    path = find_recipe(recipe)
    settings = read_recipe(Recipe, path, changes or [])  # reports its errors before torch is loaded
    keep_freed_memory()
    run_dir = run_dir or Path("runs") / path.stem
    stop = threading.Event()
    with show_run(settings) as shown, stop_by_signal(stop) as install_handlers:
        from elmokit.pretrain.pretraining import pretrain as train
        from elmokit.pretrain.progress import BuildStarted

        def report(entry: "Entry") -> None:
            if not isinstance(entry, BuildStarted):  # before the first step Ctrl-C exits at once
                install_handlers()
            if is_first_process():
                shown.report(entry)

        model = train(
            settings,
            run_dir,
            report=report,
            stop=stop,
            num_workers=num_workers(workers),
            prepare_progress=shown.prepare,
        )
    if model is None:
        raise KeyboardInterrupt(f"the run is saved in {run_dir}; run the same command to resume")
    if is_first_process():
        print_message(f"{shown.summary()}; the model is in {model}")


@verb(app)
def vocab(
    files: TextFiles,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="The file to write: one word per line.")
    ],
    max_size: Annotated[
        int | None, typer.Option(min=4, metavar="N", help="Largest number of words, including the three specials.")
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, metavar="N", help="Leave out words seen less often.")] = 1,
    tokenized: Tokenized = False,
    split: Split = False,
    wrapped: Wrapped = False,
    language: Language = "en",
    workers: Workers = None,
) -> None:
    """Write the vocabulary of a text, most frequent words first."""
    from elmokit.atomic import atomic_file
    from elmokit.text.counting import count_words
    from elmokit.text.lines import find_inputs
    from elmokit.text.rules import TextRules
    from elmokit.text.vocab import Vocab

    if output.is_dir():
        raise OutputError(f"{output}: is a directory; name a file to write to")
    counted = count_words(
        find_inputs(files),
        beside=output,
        rules=TextRules(tokenized=tokenized, split=split, wrapped=wrapped, language=language),
        num_workers=num_workers(workers),
    )
    words = Vocab.from_counts(counted.words, max_size=max_size, min_count=min_count)
    with atomic_file(output) as new:
        new.write_bytes(words.to_text().encode())
    print_message(
        f"{output}: {len(words):,} words including three specials; the text has {len(counted.words):,} distinct "
        f"words in {counted.num_tokens:,} tokens and {counted.num_sentences:,} sentences"
    )
