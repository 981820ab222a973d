"""The lower bounds that `make test-lowest` installs are those of pyproject.toml."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import test_lowest

    return test_lowest


def test_every_tested_package_has_its_lower_bound(script):
    found = script.lower_bounds(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])
    assert {"numpy", "onnxruntime", "prometheus-client", "huggingface-hub"} <= set(found)
    assert found["sacremoses"] == "0.2"


def test_a_package_without_a_lower_bound_is_an_error(script):
    project = {"dependencies": ["numpy<3"], "optional-dependencies": {extra: [] for extra in script.EXTRAS}}
    with pytest.raises(SystemExit, match="'numpy<3' has no lower bound"):
        script.lower_bounds(project)


def test_torch_and_tools_have_the_pinned_versions(script):
    pinned = script.pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    found = script.wanted_versions(torch=None)
    assert (found["torch"], found["pytest"]) == (pinned["torch"], pinned["pytest"])
    assert found["numpy"] != pinned["numpy"]
    assert script.wanted_versions(torch="2.6.0")["torch"] == "2.6.0"
