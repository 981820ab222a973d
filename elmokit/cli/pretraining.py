"""Verbs that learn a model: pretrain, vocab."""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import is_first_process, say
from elmokit.cli.run_display import run_shown
from elmokit.cli.stopping import stop_by_signal
from elmokit.cli.system import keep_memory, rest_soon
from elmokit.cli.text_options import Language, Split, Tokenized, Wrapped
from elmokit.errors import OutputError

if TYPE_CHECKING:
    from elmokit.pretrain.progress import HeldOut, LogLine, RunPlan

PRETRAIN_EPILOG = """\b
Examples
  elmokit pretrain small data.train="corpus/*.txt"
  elmokit pretrain my-recipe.toml data.train=a.txt training.epochs=3
  torchrun --nproc-per-node 2 -m elmokit pretrain small …

Ctrl-C finishes the step, saves and ends; the same command goes on from there. A second Ctrl-C ends at once."""


@verb(app, epilog=PRETRAIN_EPILOG)
def pretrain(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="What to learn, and how: a TOML file, or one of ours by its name (small)."
        ),
    ],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Values in place of the recipe's.")
    ] = None,
    *,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", metavar="DIR", help="The run's folder.  [default: runs/RECIPE's name]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes that prepare text.  [default: one a core]")
    ] = None,
) -> None:
    """Learn a biLM from text. On an existing run it goes on by itself."""
    from elmokit.config import find_recipe, read_recipe
    from elmokit.pretrain.recipe import Recipe

    path = find_recipe(recipe)
    asked = read_recipe(Recipe, path, changes or [])  # a fault in it is told before torch is loaded
    keep_memory()
    rest_soon()
    from elmokit.pretrain.pretraining import pretrain as learn

    run_dir = run_dir or Path("runs") / path.stem
    stop = threading.Event()
    with run_shown(asked) as shown, stop_by_signal(stop) as begin_to_listen:

        def report(entry: "RunPlan | LogLine | HeldOut") -> None:
            begin_to_listen()
            if is_first_process():
                shown.report(entry)

        model = learn(
            asked,
            run_dir,
            report=report,
            stop=stop,
            num_workers=workers or os.cpu_count() or 1,
            prepare_progress=shown.prepare,
        )
    if model is None:
        raise KeyboardInterrupt(f"the run is saved in {run_dir}, the same command goes on from there")
    if is_first_process():
        say(f"{shown.summary()}; the model is in {model}")


@verb(app)
def vocab(
    files: Annotated[list[str], typer.Argument(metavar="FILES", help="Text files, also .gz and .xz, or patterns.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="The file to write, a word a line.")],
    max_size: Annotated[
        int | None, typer.Option(min=4, metavar="N", help="At most so many words, the three specials too.")
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, metavar="N", help="Leave out words seen less often.")] = 1,
    tokenized: Tokenized = False,
    split: Split = False,
    wrapped: Wrapped = False,
    language: Language = "en",
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes that count.  [default: one a core]")
    ] = None,
) -> None:
    """List the words of a text, the most frequent first: what a language model predicts."""
    from elmokit.atomic import atomic_file
    from elmokit.text.counting import count_words
    from elmokit.text.lines import find_inputs
    from elmokit.text.vocab import Vocab

    if output.is_dir():
        raise OutputError(f"{output}: is a directory; name a file to write to")
    counted = count_words(
        find_inputs(files),
        beside=output,
        tokenized=tokenized,
        split=split,
        wrapped=wrapped,
        language=language,
        num_workers=workers or os.cpu_count() or 1,
    )
    words = Vocab.from_counts(counted.words, max_size=max_size, min_count=min_count)
    with atomic_file(output) as new:
        new.write_bytes(words.to_text().encode())
    say(
        f"{output}: {len(words):,} words, three specials among them; the text has {len(counted.words):,} distinct "
        f"ones in {counted.num_tokens:,} tokens and {counted.num_sentences:,} sentences"
    )
