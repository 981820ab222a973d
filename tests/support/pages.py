"""Run the code blocks of a Markdown page.

Blocks run in order, in one temporary folder. What a block shows is checked too; `...` stands for anything.

    ```python          runs, in one namespace for the whole page. Where `print(...)` lines end in a comment,
                       the comments are the output:  print(1 + 1)  # 2
    ```console, bash   runs the lines that start with `$ elmokit `; the lines up to the next `$` are the output,
                       if there are any. Other commands (`$ pip install …`) are for the reader.
    <!-- no-run -->    before a block: it is only shown.
    <!-- file: notes.txt
    The bank closed.
    -->                makes a file that later blocks use.
"""

import contextlib
import doctest
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

PART = re.compile(
    r"^<!-- file: (?P<file>\S+)\n(?P<content>.*?)^-->"
    r"|(?P<skip>^ *<!-- no-run -->\s*\n)?^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
PRINTED = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)
FOR_SHELL = re.compile(r"[|<>;&*?$`]")
SHOWN = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Part:
    """A block or a file of the page: what it is (a language, or "file"), its text, and its first line's number."""

    kind: str
    text: str
    line: int
    name: str = ""


def parts(page: str) -> Iterator[Part]:
    """Yield what is to be run or made, in the page's order."""
    for match in PART.finditer(page):
        if match["file"]:
            yield Part("file", match["content"], page.count("\n", 0, match.start()) + 1, match["file"])
        elif not match["skip"]:
            yield Part(match["language"], textwrap.dedent(match["code"]), page.count("\n", 0, match.start("code")) + 1)


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield (command, output shown) for every `$ elmokit` of a console block."""
    for entry in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, shown = entry.partition("\n")
        if command.startswith("elmokit "):
            yield command, shown


def check_shown(shown: str, found: str, *, line: int) -> None:
    """Fail if a page shows another output than was found."""
    if shown.strip() and not doctest.OutputChecker().check_output(shown.strip() + "\n", found.strip() + "\n", SHOWN):
        pytest.fail(f"line {line} shows:\n{shown}\nbut the output is:\n{found}", pytrace=False)


def run_python(part: Part, namespace: dict[str, Any]) -> None:
    output = io.StringIO()
    padded = "\n" * (part.line - 1) + part.text  # so that a traceback has the page's line numbers
    with contextlib.redirect_stdout(output):
        exec(compile(padded, "README.md", "exec"), namespace)
    check_shown("\n".join(PRINTED.findall(part.text)), output.getvalue(), line=part.line)


def run_command(command: str, shown: str, *, line: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}.items():
            patch.setenv(name, value)
        code, found = run_in_shell(command) if FOR_SHELL.search(command) else run_here(shlex.split(command)[1:])
    if code:
        pytest.fail(f"line {line}: `{command}` ended with {code}:\n{found}", pytrace=False)
    check_shown(shown, found, line=line)


def run_here(args: list[str]) -> tuple[int, str]:
    """Exit code and output of the command without a process of its own, which would take seconds to start."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = cli.run(args)
    return code, output.getvalue()


def run_in_shell(command: str) -> tuple[int, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    run = subprocess.run(
        ["bash", "-c", command], env=os.environ | {"PATH": path}, stdout=pipe, stderr=both, text=True, timeout=300
    )
    return run.returncode, run.stdout


def run_page(page: str) -> int:
    """Run a page in the current folder; return how many blocks and commands ran."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    num_runs = 0
    for part in parts(page):
        if part.kind == "file":
            Path(part.name).write_text(part.text, encoding="utf-8")
        elif part.kind == "python":
            run_python(part, namespace)
            num_runs += 1
        elif part.kind in ("console", "bash"):
            for command, shown in commands(part.text):
                run_command(command, shown, line=part.line)
                num_runs += 1
    return num_runs
