"""Start a script again with the library of faults preloaded."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHIM = "ELMOKIT_FAULT_SHIM"
"""Environment variable: path of the library, in a process that has it."""


def preload() -> None:
    """Compile the shim and start this script again with it, unless it is there."""
    if SHIM in os.environ:
        return
    library = Path(tempfile.mkdtemp(), "shim.so")
    command = ["cc", "-O2", "-fPIC", "-shared", "-o", str(library), str(HERE / "shim.c"), "-ldl"]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), SHIM: str(library), "OMP_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)
