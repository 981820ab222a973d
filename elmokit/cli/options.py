"""Options that several verbs have."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.errors import InputError, WeightsError
from elmokit.weights.archives import is_archive
from elmokit.weights.bundled import EN_SMALL, find_model
from elmokit.weights.locating import is_hub_name

if TYPE_CHECKING:
    from elmokit.weights.source import Source

MODEL_HELP = (
    "A folder or archive, a bundled model's name (en-small), or a published model's two files: options.json and .hdf5."
)
LANGUAGE_MODEL_HELP = (
    "A folder with an output layer: pretrained or fine-tuned by elmokit, or a checkpoint of bilm-tf with vocab.txt; "
    "or a bundled model's name (en-small)."
)
TEXT_HELP = "Text files, also .gz and .xz, or patterns."
STREAM_HELP = "Text files, also .gz and .xz, patterns, or - for stdin."
DEFAULT = "  [default: en-small]"

ModelFiles = Annotated[list[str], typer.Argument(metavar="MODEL", help=MODEL_HELP)]
Model = Annotated[list[str] | None, typer.Option("--model", "-m", metavar="MODEL", help=MODEL_HELP + DEFAULT)]
LanguageModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help=LANGUAGE_MODEL_HELP)]
LanguageModel = Annotated[
    Path,
    typer.Option("--model", "-m", metavar="MODEL", help=LANGUAGE_MODEL_HELP + DEFAULT, show_default=False),
]
TextFiles = Annotated[list[str], typer.Argument(metavar="FILES", help=TEXT_HELP)]
StreamFiles = Annotated[list[str], typer.Argument(metavar="FILES", help=STREAM_HELP)]

Tokenized = Annotated[bool, typer.Option("--tokenized", help="Tokens are separated by whitespace.")]
Split = Annotated[bool, typer.Option("--split", help="Lines are paragraphs; split them into sentences.")]
Wrapped = Annotated[
    bool,
    typer.Option(
        "--wrapped",
        help="Lines are wrapped at a width, blank lines end paragraphs; join lines, then split into sentences.",
    ),
]
Language = Annotated[
    str, typer.Option(metavar="CODE", help="Language of raw text; generic or generic:ABBREVIATIONS if it has no rules.")
]
State = Annotated[
    Literal["reset", "warm"],
    typer.Option(help="Start every sentence from zero (reset) or from a settled state (warm)."),
]
StateOrCarry = Annotated[
    Literal["reset", "warm", "carry"],
    typer.Option(
        help="Start every sentence from zero (reset), from a settled state (warm), "
        "or where the sentence before ended (carry)."
    ),
]
RecipeChanges = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Values in place of the recipe's.")
]
RunDir = Annotated[
    Path | None,
    typer.Option("--run-dir", metavar="DIR", help="Folder of the run.  [default: runs/ and the recipe's name]"),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Processes that prepare text.  [default: one per core]"),
]


def model_source(paths: list[str]) -> "Source":
    """Return a folder, or the pair (options, weights) given in either order; the bundled model if there is no path."""
    match paths:
        case []:
            return EN_SMALL
        case [folder]:
            return folder
        case [first, second]:
            return (first, second) if first.endswith(".json") else (second, first)
    raise InputError(f"{len(paths)} paths for one model; expected a folder, or an options.json and a .hdf5")


def check_one_token(tokens: list[str], word: str) -> str:
    """Return the only token that a word is tokenized as."""
    if len(tokens) != 1:
        raise InputError(f"{word!r} is {len(tokens)} tokens ({' '.join(tokens)}); expected one, choose one of them")
    return tokens[0]


def check_model_folder(model: Path) -> None:
    """Reject a model that is no folder, before torch is loaded."""
    path = find_model(model)
    is_checkpoint, is_on_hub = Path(f"{path}.index").is_file(), not path.exists() and is_hub_name(path.as_posix())
    if not (path.is_dir() or is_archive(path) or is_checkpoint or is_on_hub):
        state = "is a file" if model.exists() else "does not exist"
        raise WeightsError(
            f"{model}: {state}; expected the folder of a model that elmokit pretrained or fine-tuned, or en-small"
        )


def num_workers(asked: int | None) -> int:
    """Return the number of worker processes: as asked, or one per core."""
    return asked or os.cpu_count() or 1
