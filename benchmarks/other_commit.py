"""Run another commit of this package beside the present one, each in processes of its own.

The commit is taken from the repository's history, built, and installed into a folder of its own. A worker is a script
of this directory that imports either version. It reads a request per line and answers with a line of JSON, so the
caller decides which version works when.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def install(commit: str, folder: Path) -> Path:
    """Build a commit with its kernels and install it into a folder, without its dependencies."""
    with tempfile.TemporaryDirectory() as source:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
        options = ["--quiet", "--no-deps", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), source]
        subprocess.run(command, check=True)
    return folder


class Worker:
    """A process that runs a script of this directory with one version of the package."""

    def __init__(
        self, script: str, *arguments: str, package: Path = ROOT, python: str = sys.executable, num_threads: int = 0
    ) -> None:
        command = [python, str(Path(__file__).parent / script), *arguments]
        threads = {"OMP_NUM_THREADS": str(num_threads)} if num_threads else {}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(package)} | threads,
        )

    def ask(self, request: str) -> Any:
        """Send a request and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(request, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self._process.args}: ended with {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
