"""Verbs about model files: convert, package, sign, export, info."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import verb
from elmokit.cli.messages import print_message
from elmokit.cli.options import MODEL_HELP, ModelFiles, State, model_source

INT8_PRODUCTS = {"bytes": "inputs in 8 bits, made for VNNI", "int8": "inputs in 16 bits"}  # by the kernels' form


@verb(app)
def convert(
    model: ModelFiles,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The new folder.")],
    to: Annotated[
        Literal["elmokit", "hdf5"],
        typer.Option(help="elmokit's format, or the published options.json and weights.hdf5."),
    ] = "elmokit",
    dtype: Annotated[Literal["float16", "float32"], typer.Option(help="Type of the stored weights.")] = "float32",
    force: Annotated[bool, typer.Option("--force", help="Replace the model in FOLDER.")] = False,
) -> None:
    """Convert a model between the published format and elmokit's."""
    source = model_source(model)
    from elmokit.weights.conversion import convert_model
    from elmokit.weights.source import has_softmax

    convert_model(source, output, to=to, half=dtype == "float16", overwrite=force)
    if to == "hdf5" and has_softmax(source):
        print_message(
            "the published format cannot store the output layer; keep the original for scoring and fine-tuning"
        )


@verb(app)
def package(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model folder of elmokit's format.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The new package.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model's name.  [default: the name of its folder]")
    ] = None,
    version: Annotated[str, typer.Option(metavar="VERSION", help="The package's version.")] = "0.1.0",
    license: Annotated[str, typer.Option(metavar="SPDX", help="The model's license.")] = "Apache-2.0",
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="One line for the package index.")] = None,
    dtype: Annotated[Literal["float16", "float32"], typer.Option(help="Type of the stored weights.")] = "float16",
    softmax: Annotated[
        Literal["int8", "same"], typer.Option(help="Type of the stored output layer: int8, or the same as the weights.")
    ] = "int8",
    force: Annotated[bool, typer.Option("--force", help="Replace the package in DIR.")] = False,
) -> None:
    """Package a model for pip; elmokit finds it by its name.

    The package holds data only.
    """
    from elmokit.weights.packages import write_package

    made = write_package(
        folder,
        output,
        name=name,
        version=version,
        license=license,
        description=description,
        half=dtype == "float16",
        eight_bit_softmax=softmax == "int8",
        overwrite=force,
    )
    num_bytes = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    target = made if made.is_absolute() else f"./{made}"  # a bare name would be looked up in the package index
    print_message(f"{made}: {num_bytes / 1e6:.1f} MB; install it with: pip install {target}")


@verb(app)
def sign(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a model of any kind.")],
    *,
    key: Annotated[
        Path, typer.Option("--key", "-k", metavar="PEM", help="Your private key, on the curve P-256, P-384 or P-521.")
    ],
) -> None:
    """Sign a model with a key of your own (OpenSSF model signing).

    The signature is FOLDER/model.sig. Every verb checks it with --require-signature PUBLIC_KEY. If the key is
    encrypted, the environment variable ELMOKIT_KEY_PASSWORD has its password.
    """
    from elmokit.weights.signing import sign_folder

    print_message(f"{sign_folder(folder, key=key)}: written; give the public key to those who load the model")


@verb(app)
def export(
    model: ModelFiles,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The new ONNX file.")],
    state: State = "warm",
    check: Annotated[bool, typer.Option("--check", help="Run FILE in ONNX Runtime and compare with PyTorch.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write a model as an ONNX file, for programs without PyTorch."""
    source = model_source(model)
    from elmokit.integrations.onnx import check_onnx, export_onnx

    export_onnx(source, output, state=state, overwrite=force)
    if check:
        print_message(f"{output}: within {check_onnx(output, source, state=state):.0e} of PyTorch")


@verb(app, runs_bare=True)
def info(
    model: Annotated[list[str] | None, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Describe a model, or without one the installation.

    A model: its layers, sizes, parameters and files. The installation: versions, kernels, cores and bundled models.
    """
    if model:
        from elmokit.weights.description import describe_model

        described = describe_model(model_source(model))
    else:
        described = _describe_installation()
    if as_json:
        typer.echo(json.dumps(described, indent=2))
    else:
        _print_table(described)


def _describe_installation() -> dict[str, dict[str, Any]]:
    """Return what a bug report needs: versions, machine, kernels and models."""
    import platform

    import torch

    from elmokit import __version__
    from elmokit.kernels.library import load
    from elmokit.kernels.stack import choose_form
    from elmokit.runs.provenance import describe_machine
    from elmokit.weights.bundled import BUNDLED, list_packages

    kernels = load()
    return {
        "versions": {"elmokit": __version__, "python": platform.python_version(), "torch": str(torch.__version__)},
        "machine": {
            "processor": describe_machine(),
            "torch_threads": torch.get_num_threads(),
            "compiled_kernels": None if kernels is None else kernels.isa,
            "int8_products": None if kernels is None else INT8_PRODUCTS[choose_form(kernels, "int8")],
            "bf16_products": None if kernels is None or not kernels.has_bf16 else "AVX512_BF16",
            "cuda": torch.cuda.is_available(),
        },
        "models": {
            "bundled": ", ".join(sorted(path.name for path in BUNDLED.iterdir() if path.is_dir())),
            "in_packages": ", ".join(list_packages()) or None,
        },
    }


def _print_table(described: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for heading, values in described.items():
        table.add_row(f"[bold]{heading.replace('_', ' ')}", "")
        for name, value in values.items():
            if heading != "files":
                table.add_row(f"  {name.replace('_', ' ')}", _in_words(value))
    console = Console(highlight=False)
    console.print(table)
    # A hash is too wide for the table.
    for name, file in described.get("files", {}).items():
        known = f", published as {file['published_as']}" if file["published_as"] else ""
        console.print(
            f"  {name}, {file['bytes']:,} bytes{known}\n    sha256 {file['sha256']}", soft_wrap=True, markup=False
        )


def _in_words(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case None:
            return "none"
        case list():
            return "\n".join(map(_in_words, value))
        case dict():
            return ", ".join(f"{name.replace('_', ' ')} {_in_words(part)}" for name, part in value.items())
    return str(value)
