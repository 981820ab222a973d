"""Provenance of a published number: machine, versions, commit, date, command."""

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch

from elmokit import __version__
from elmokit.kernels.library import load

TREE = Path(__file__).resolve().parents[2]  # the source tree, unless elmokit is installed
BUILT_FROM = TREE / "elmokit" / "commit.txt"  # written when a wheel is built from a repository


def gather_facts(command: Sequence[str]) -> dict[str, str]:
    """Return the provenance of what ``command`` measures."""
    compiled = load()
    count = torch.get_num_threads()
    threads = f"{count} thread{'s' * (count > 1)}"
    return {
        "machine": describe_machine(),
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, {threads}",
        "kernels": "none" if compiled is None else compiled.isa,
        "commit": find_commit(),
        "date": date.today().isoformat(),
        "command": shlex.join(command),
    }


def shown_word(word: str) -> str:
    """Return a word of a command without local folders: a path relative to the source tree, or its name alone."""
    option, equals, value = word.rpartition("=")
    path = Path(value)
    if path.is_absolute():
        return f"{option}{equals}{path.relative_to(TREE) if path.is_relative_to(TREE) else path.name}"
    return f"{option}{equals}{path.name}" if ".." in path.parts else word


def describe_machine() -> str:
    """Return the processor, its number of cores, and the instruction set that torch uses."""
    return f"{_processor()}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


def find_commit() -> str:
    """Return the commit of the source tree or of the installed wheel; where there is none, the version."""

    def git(*arguments: str) -> str:
        run = subprocess.run(["git", *arguments], cwd=TREE, capture_output=True, text=True, check=True)
        return run.stdout.strip()

    if not (TREE / ".git").exists():  # it may be inside another project's tree
        return BUILT_FROM.read_text("utf-8").strip() if BUILT_FROM.exists() else f"none, elmokit {__version__}"
    try:
        return git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or a repository that it rejects
        return "unknown"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
