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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler")
def test_killed_verbs_and_servers_end_with_the_same_bytes():
    command = [sys.executable, str(SCRIPT.with_name("chaos.py")), "--only", "vocab,index,serve", "--kills", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| 0 \|$", done.stdout, re.MULTILINE)
    assert [name for name, *_ in rows] == ["vocab", "index", "serve"]
    assert all(int(kills) >= 6 and int(finished) > 0 for _, kills, _, finished in rows)
    assert int(rows[1][2]) > 0
