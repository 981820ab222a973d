"""Models as packages: written, installed, found by name without running their code."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from toy_datasets import save_toy_bilm

from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError, OutputError, WeightsError
from elmokit.weights.bundled import find_package, list_packages
from elmokit.weights.packages import write_package
from elmokit.weights.source import load_saved

SENTENCE = [["Ada", "saw", "Oslo"]]


def install(package: Path, site: Path) -> None:
    """Put a package where pip would, with its entry points."""
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    (module,) = [path.name for path in package.iterdir() if path.is_dir()]
    (package / module).rename(site / module)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{key} = {value}" for key, value in project["entry-points"]["elmokit.models"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[elmokit.models]", *lines, ""]))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_a_model_is_packaged_installed_and_found_by_its_name(tmp_path: Path, site: Path) -> None:
    folder = save_toy_bilm(tmp_path / "xx-tiny")
    package = write_package(folder, tmp_path / "package", license="CC0-1.0")
    assert find_package("xx-tiny") is None
    install(package, site)
    found = find_package("xx-tiny")
    assert found is not None
    assert "xx-tiny" in list_packages()
    expected, vectors = (Embedder.from_pretrained(place).embed_layers(SENTENCE)[0] for place in (folder, "xx-tiny"))
    np.testing.assert_array_equal(vectors, expected)


def test_finding_a_model_runs_no_code_of_its_package(tmp_path: Path, site: Path) -> None:
    install(write_package(save_toy_bilm(tmp_path / "xx-tiny"), tmp_path / "package"), site)
    (site / "elmokit_model_xx_tiny" / "__init__.py").write_text("raise SystemExit('ran')\n")
    assert find_package("xx-tiny") is not None


def test_a_folder_of_that_name_is_taken_before_a_package(tmp_path: Path, site: Path, monkeypatch) -> None:
    install(write_package(save_toy_bilm(tmp_path / "xx-tiny"), tmp_path / "package"), site)
    (tmp_path / "here").mkdir()
    other = save_toy_bilm(tmp_path / "here" / "xx-tiny", seed=9)
    monkeypatch.chdir(other.parent)
    ours = load_saved("xx-tiny").tensors
    assert all((ours[name] == tensor).all() for name, tensor in load_saved(other).tensors.items())


def test_two_packages_with_one_model_are_rejected(tmp_path: Path, site: Path) -> None:
    folder = save_toy_bilm(tmp_path / "xx-tiny")
    for number in range(2):
        install(
            write_package(folder, tmp_path / f"package{number}", version=f"{number}.0"), site
        ) if not number else None
    other = site / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[elmokit.models]\nxx-tiny = somebody_elses\n")
    with pytest.raises(WeightsError, match="in several packages: elmokit_model_xx_tiny, somebody_elses"):
        find_package("xx-tiny")


def test_a_missing_model_of_ours_is_reported_with_its_command() -> None:
    with pytest.raises(WeightsError, match="pip install elmokit-en-medium"):
        load_saved("en-medium")


def test_a_name_that_is_none_or_a_folder_in_use_is_rejected(tmp_path: Path) -> None:
    folder = save_toy_bilm(tmp_path / "xx-tiny")
    with pytest.raises(InputError, match="model name 'A b'"):
        write_package(folder, tmp_path / "package", name="A b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OutputError, match="exists already"):
        write_package(folder, tmp_path / "full")


@pytest.mark.slow
def test_the_package_builds_into_a_wheel(tmp_path: Path) -> None:
    package = write_package(save_toy_bilm(tmp_path / "xx-tiny"), tmp_path / "package")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(package),
    ]
    pytest.importorskip("hatchling")
    subprocess.run(build, check=True, capture_output=True)
    assert list(tmp_path.glob("elmokit_xx_tiny-0.1.0-*.whl"))
