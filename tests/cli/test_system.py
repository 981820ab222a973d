"""Settings of OpenMP that every verb makes before torch is loaded."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
from elmokit import cli
sys.argv = ["elmokit", "--version"]
try:
    cli.main()
finally:
    print("spin count", os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""
WITHOUT = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "10000"),
        ({"GOMP_SPINCOUNT": ""}, "10000"),  # libgomp rejects an empty one
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ],
)
def test_every_verb_limits_spinning_unless_the_user_has_set_it(settings, expected):
    run = subprocess.run([sys.executable, "-c", CODE], env=WITHOUT | settings, capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == f"spin count {expected} False"
