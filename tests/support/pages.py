"""Run the code blocks of a Markdown page.

Blocks run in order, in the current folder, as a reader would copy them from the rendered page. Shown output is checked
too; `...` matches anything.

    ```python          Runs, in one namespace for the whole page. Where `print(...)` lines end in a comment,
                       the comments are the output:  print(1 + 1)  # 2
    ```console         Runs the lines that start with `$ elmokit`, `$ printf`, `$ cat` and the other names in COMMANDS.
                       The lines up to the next `$` are the output, if there are any. Other commands
                       (`$ pip install …`) are not run.
    ```                A block without a language, or with another one, is only shown.
"""

import ast
import contextlib
import doctest
import importlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elmokit import cli
from elmokit.errors import MissingExtraError

BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
COMMANDS = {"cat", "elmokit", "head", "ls", "mkdir", "printf"}
PRINTED = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)
# [COMMAND |] elmokit ARGS [> FILE], without other features of the shell
_WORDS = r"(?:[^|<>;&*?$`'\"]|'[^']*'|\"[^\"$`]*\")+?"
OURS = re.compile(rf"(?:(?P<source>printf {_WORDS}) \| )?elmokit (?P<args>{_WORDS})(?: > (?P<target>\S+))?")
SHOWN = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def names_in(module: str) -> set[str]:
    """Return the names of a module; of one whose library is not installed, the functions and classes in its source."""
    try:
        return set(dir(importlib.import_module(module)))
    except MissingExtraError:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
        return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@dataclass(frozen=True)
class Block:
    """A code block of a page, and the number of its first line."""

    language: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page in order."""
    for match in BLOCK.finditer(page):
        line = page.count("\n", 0, match.start("code")) + 1
        yield Block(match["language"], textwrap.dedent(match["code"]), line)


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield (command, shown output) for every command of a console block that is run."""
    for entry in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, shown = entry.partition("\n")
        if command.split(maxsplit=1)[0] in COMMANDS:
            yield command, shown


def check_shown(shown: str, found: str, *, line: int) -> None:
    """Fail if a page shows another output than was found."""
    if shown.strip() and not doctest.OutputChecker().check_output(shown.strip() + "\n", found.strip() + "\n", SHOWN):
        pytest.fail(f"line {line} shows:\n{shown}\nbut the output is:\n{found}", pytrace=False)


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    output = io.StringIO()
    padded = "\n" * (block.line - 1) + block.text  # so that a traceback has the page's line numbers
    with contextlib.redirect_stdout(output):
        exec(compile(padded, "page.md", "exec"), namespace)
    check_shown("\n".join(PRINTED.findall(block.text)), output.getvalue(), line=block.line)


def run_command(command: str, shown: str, *, line: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}.items():
            patch.setenv(name, value)
        ours = OURS.fullmatch(command)
        code, found = run_in_shell(command) if ours is None else run_here(**ours.groupdict())
    if code:
        pytest.fail(f"line {line}: `{command}` ended with {code}:\n{found}", pytrace=False)
    check_shown(shown, found, line=line)


def run_here(source: str | None, args: str, target: str | None) -> tuple[int, str]:
    """Return exit code and output of the command, run without a process of its own, which takes seconds to start.

    ``source`` is a shell command whose output it reads, ``target`` a file for its output.
    """
    with contextlib.ExitStack() as stack:
        stdout = output = io.StringIO()
        if source is not None:
            text = run_in_shell(source)[1].encode()
            stack.enter_context(pytest.MonkeyPatch.context()).setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        if target is not None:
            stdout = stack.enter_context(Path(target).open("w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(contextlib.redirect_stderr(output))
        code = cli.run(shlex.split(args, comments=True))
    return code, output.getvalue()


def run_in_shell(command: str) -> tuple[int, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    run = subprocess.run(
        ["bash", "-c", command], env=os.environ | {"PATH": path}, stdout=pipe, stderr=both, text=True, timeout=300
    )
    return run.returncode, run.stdout


def run_page(page: str) -> int:
    """Run a page in the current folder; return the number of blocks and commands that ran."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    num_runs = 0
    for block in blocks(page):
        if block.language == "python":
            run_python(block, namespace)
            num_runs += 1
        elif block.language == "console":
            for command, shown in commands(block.text):
                run_command(command, shown, line=block.line)
                num_runs += 1
    return num_runs
