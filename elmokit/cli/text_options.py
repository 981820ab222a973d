"""What text is like: options that several verbs have."""

from typing import Annotated

import typer

Tokenized = Annotated[bool, typer.Option("--tokenized", help="Tokens stand between white space.")]
Split = Annotated[bool, typer.Option("--split", help="Lines are paragraphs; split them into sentences.")]
Wrapped = Annotated[
    bool,
    typer.Option(
        "--wrapped", help="Lines are broken at a width, blank lines end paragraphs; join and split into sentences."
    ),
]
Language = Annotated[str, typer.Option(metavar="CODE", help="Of raw text, for the tokeniser.")]
