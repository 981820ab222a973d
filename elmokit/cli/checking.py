"""Verbs that prove a model against published outputs."""

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import sub_app, verb
from elmokit.cli.options import ModelFiles, model_source
from elmokit.errors import InputError, WeightsError

check_app = sub_app("Check a model against published outputs.", name="check")
app.add_typer(check_app)


@verb(check_app)
def seqvec(
    model: ModelFiles,
    *,
    reference: Annotated[
        Path, typer.Option("--reference", "-r", metavar="NPZ", help="bio_embeddings' reference, seqvec.npz.")
    ],
) -> None:
    """Compare SeqVec's vectors with those that bio_embeddings published.

    The file is test-data/reference-embeddings/seqvec.npz of bio_embeddings.
    """
    source = model_source(model)
    if not reference.is_file():
        raise InputError(f"{reference}: no such file; expected seqvec.npz from bio_embeddings' test data")
    from elmokit.integrations.seqvec import check_outputs
    from elmokit.weights.npz import read_arrays

    arrays = read_arrays(reference)
    found = check_outputs(source, arrays)
    for one in found:
        verdict = "agrees" if one.agrees else "differs"
        typer.echo(f"{one.protein}: {verdict}, largest difference {one.largest_difference:.1e}")
    if not all(one.agrees for one in found):
        raise WeightsError("the vectors differ from the published ones; is this model SeqVec, and whole?")
