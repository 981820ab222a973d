"""The fault injector, on the cheapest verbs. `make faults` runs it on all of them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "faults" / "run.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler")
def test_a_failing_disk_never_damages_an_output():
    command = [
        sys.executable,
        str(SCRIPT),
        "--only",
        "vocab,convert",
        "--most",
        "5",
        "--kinds",
        "write,fsync,rename,open",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    rows = re.findall(r"^\| (\w+) \| (.+) \|$", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["vocab", "convert"]
    assert all(int(tried) > 0 for _, cells in rows for tried in cells.split(" | "))
