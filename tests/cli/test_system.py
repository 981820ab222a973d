"""Settings of OpenMP that every verb makes before torch is loaded."""

import os
import subprocess
import sys

import pytest

from elmokit.cli.system import limit_spinning

CODE = """
import os, sys
from elmokit import cli
sys.argv = ["elmokit", "--version"]
try:
    cli.main()
finally:
    print("spin count", os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""


def test_every_verb_limits_spinning_before_torch_is_loaded():
    without = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    run = subprocess.run([sys.executable, "-c", CODE], env=without, capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == "spin count 10000 False"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "10000"),
        ({"GOMP_SPINCOUNT": ""}, "10000"),  # libgomp rejects an empty one
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, None),
    ],
)
def test_the_user_s_own_settings_of_spinning_win(settings, expected, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    limit_spinning()
    assert os.environ.get("GOMP_SPINCOUNT") == expected
