"""The command itself: its exit codes, and one line per failure."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TextIO

import typer

from elmokit import __version__
from elmokit.cli.commands import USAGE, sub_app
from elmokit.cli.messages import is_first_process, print_message
from elmokit.cli.system import limit_spinning
from elmokit.errors import ElmokitError

FAILED, INTERRUPTED = 1, 130
REQUIRE, REQUIRED_KEY = "--require-signature", "ELMOKIT_REQUIRE_SIGNATURE"
OUT_OF_MEMORY = "out of memory; use smaller batches (--batch-size, --rows, training.num_rows), or split long lines"
# torch's errors: on a GPU, on the CPU, and when it maps a file
SIGNS_OF_MEMORY = ("OutOfMemoryError", "can't allocate memory", "Cannot allocate memory")

app = sub_app("ELMo on PyTorch: contextual word vectors from every layer of a character biLM.", name="elmokit")


def main() -> None:
    """Run the command, and turn every failure into one line and an exit code."""
    limit_spinning()
    sys.exit(run(sys.argv[1:]))


def run(args: list[str]) -> int:
    """Run the command with these arguments; return its exit code."""
    debug = "--debug" in args
    try:
        with _warnings_as_lines(), _signatures_required(args) as args:
            command = typer.main.get_command(app)
            with command.make_context("elmokit", [arg for arg in args if arg != "--debug"]) as context:
                command.invoke(context)
            sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        rejecting = getattr(error, "ctx", None)  # the context of the verb that rejects its arguments
        command_path = rejecting.command_path if rejecting else "elmokit"
        return _fail(f"{error.format_message()} (see: {command_path} --help)", USAGE, debug=debug)
    except KeyboardInterrupt as error:
        if not is_first_process():
            return INTERRUPTED  # one message for all ranks
        return _fail("; ".join(["interrupted", *map(str, error.args)]), INTERRUPTED, debug=debug)
    except BrokenPipeError:
        _discard_output()  # the reader has left
        return FAILED
    except ElmokitError as error:
        return _fail(str(error), FAILED, debug=debug)
    except MemoryError:
        return _fail(OUT_OF_MEMORY, FAILED, debug=debug)
    except OSError as error:
        if error.errno == errno.ENOSPC and not error.filename:  # mostly stdout: errors of files have a name
            _discard_output()
            return _fail("cannot write: no space is left; free some, or write elsewhere", FAILED, debug=debug)
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", FAILED, debug=debug)
    except Exception as error:  # noqa: BLE001  the last resort: no traceback for a user who did not ask for one
        if any(sign in f"{type(error).__name__} {error}" for sign in SIGNS_OF_MEMORY):
            return _fail(OUT_OF_MEMORY, FAILED, debug=debug)
        return _fail(f"{type(error).__name__}: {error}; use --debug for the traceback", FAILED, debug=debug)
    return 0


def _discard_output() -> None:
    """Keep Python from writing the rest of the buffer at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(wanted: bool) -> None:  # noqa: FBT001  typer calls it so
    if wanted:
        typer.echo(f"elmokit {__version__}")
        raise typer.Exit


@app.callback()
def elmokit(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    require_signature: Annotated[
        str | None,
        typer.Option(
            REQUIRE,
            metavar="PEM",
            envvar=REQUIRED_KEY,
            help="Load only models that are signed with this public key, and those of the package.",
        ),
    ] = None,
) -> None:
    """ELMo on PyTorch: contextual word vectors from every layer of a character biLM."""
    del version, debug, require_signature  # handled by the callback and by `run`


@contextmanager
def _signatures_required(args: list[str]) -> Iterator[list[str]]:
    """Take ``--require-signature KEY`` out of the arguments, wherever it stands, and require signatures meanwhile."""
    before, rest = os.environ.get(REQUIRED_KEY), []
    arguments = iter(args)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name != REQUIRE:
            rest.append(argument)
            continue
        key = value if equals else next(arguments, "")
        if not key:
            raise typer.BadParameter(f"{REQUIRE} needs a public key")
        os.environ[REQUIRED_KEY] = key
    try:
        yield rest
    finally:
        if before is None:
            os.environ.pop(REQUIRED_KEY, None)
        else:
            os.environ[REQUIRED_KEY] = before


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show each warning of the library as one line, without the line of code."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del category, filename, lineno, file, line
        print_message(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def _fail(message: str, code: int, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print_message(message)
    return code
