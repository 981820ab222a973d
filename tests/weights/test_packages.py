"""Models as packages: written, installed, found by name without running their code."""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import numpy as np
import pytest
import torch
from lm_oracle import make_pair
from published import make_published
from safetensors.torch import load_file, save_file
from toy_datasets import save_toy_bilm

from elmokit import cli
from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError, OutputError, WeightsError
from elmokit.score.saved_lm import save_language_model
from elmokit.score.scoring import Scorer
from elmokit.weights.bundled import PUBLISHED_PACKAGES, find_package, list_packages
from elmokit.weights.conversion import convert_model
from elmokit.weights.packages import write_package
from elmokit.weights.source import load_saved, load_softmax
from elmokit.weights.sums import check_sums, write_sums

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
    package = write_package(folder, tmp_path / "package", license="CC0-1.0", half=False)
    assert find_package("xx-tiny") is None
    install(package, site)
    found = find_package("xx-tiny")
    assert found is not None
    assert "xx-tiny" in list_packages()
    expected, vectors = (Embedder.from_pretrained(place).embed_layers(SENTENCE)[0] for place in (folder, "xx-tiny"))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)  # the start state was computed for the package


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


def test_a_missing_model_of_ours_is_reported_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED_PACKAGES, "xx-large", "elmokit-xx-large")
    with pytest.raises(WeightsError, match="pip install elmokit-xx-large"):
        load_saved("xx-large")


def test_a_name_that_is_none_or_a_folder_in_use_is_rejected(tmp_path: Path) -> None:
    folder = save_toy_bilm(tmp_path / "xx-tiny")
    with pytest.raises(InputError, match="model name 'A b'"):
        write_package(folder, tmp_path / "package", name="A b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OutputError, match="exists already"):
        write_package(folder, tmp_path / "full")


def test_a_package_is_replaced_when_asked_and_nothing_else_is(tmp_path: Path) -> None:
    folder, package = save_toy_bilm(tmp_path / "xx-tiny"), tmp_path / "package"
    write_package(folder, package, version="1.0")
    with pytest.raises(OutputError, match=r"package: exists already; .* replace the package"):
        write_package(folder, package, version="2.0")
    write_package(folder, package, version="2.0", overwrite=True)
    assert 'version = "2.0"' in (package / "pyproject.toml").read_text("utf-8")
    (package / "notes.txt").touch()
    with pytest.raises(OutputError, match=r"also holds notes\.txt"):
        write_package(folder, package, overwrite=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").touch()
    with pytest.raises(OutputError, match="other: holds no package of a model"):
        write_package(folder, tmp_path / "other", overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file: is a file"):
        write_package(folder, tmp_path / "file", overwrite=True)


@pytest.mark.filterwarnings("ignore:.*the model card was changed")
def test_a_package_is_smaller_and_keeps_the_output_layer_and_the_card(tmp_path: Path) -> None:
    pair = make_pair(make_published(tmp_path / "published", dim=8, projection_dim=4))
    save_language_model(pair.model, pair.vocab, tmp_path / "xx-lm")
    (tmp_path / "xx-lm" / "README.md").write_text("Written by hand.\n")
    package = write_package(tmp_path / "xx-lm", tmp_path / "package")
    folder = package / "elmokit_model_xx_lm" / "model"
    assert (folder / "README.md").read_text() == "Written by hand.\n"
    check_sums(folder, ("README.md", "model.safetensors"))
    sentences = [["the", "river", "rose"]]
    [expected], [found] = (Scorer.from_pretrained(one).score(sentences) for one in (tmp_path / "xx-lm", folder))
    assert found.forward_total == pytest.approx(expected.forward_total, rel=0.02)
    assert found.forward_total != expected.forward_total
    stored, given = (load_softmax(one) for one in (folder, tmp_path / "xx-lm"))
    step_V = given.weight_VP.abs().amax(dim=1) / 127
    assert ((stored.weight_VP - given.weight_VP).abs() <= 0.5001 * step_V[:, None]).all()
    np.testing.assert_array_equal(stored.bias_V, given.bias_V)


def test_what_a_model_was_trained_on_stays_in_its_card(tmp_path: Path) -> None:
    pair = make_pair(make_published(tmp_path / "published", dim=8, projection_dim=4))
    about = "Pretrained on 12 tokens of text.\n\nTwo sentences were left out."
    save_language_model(pair.model, pair.vocab, tmp_path / "model", description=about)
    convert_model(tmp_path / "model", tmp_path / "xx-lm", to="elmokit", half=True, overwrite=False)
    package = write_package(tmp_path / "xx-lm", tmp_path / "package", name="xx-tiny")
    expected = ((tmp_path / "xx-lm", "xx-lm"), (package / "elmokit_model_xx_tiny" / "model", "xx-tiny"))
    for folder, name in expected:
        card = (folder / "README.md").read_text()
        assert f"# {name}\n\n{about}\n\nAn ELMo biLM" in card
        assert f'from_pretrained("{name}")' in card
        assert "stored as float16" in card
        check_sums(folder, ("README.md",))


def test_a_row_of_zeros_stays_zero_in_eight_bits(tmp_path: Path) -> None:
    pair = make_pair(make_published(tmp_path / "published", dim=8, projection_dim=4))
    with torch.no_grad():
        pair.model.softmax.weight[4] = 0
    save_language_model(pair.model, pair.vocab, tmp_path / "xx-lm")
    package = write_package(tmp_path / "xx-lm", tmp_path / "package")
    assert not load_softmax(package / "elmokit_model_xx_lm" / "model").weight_VP[4].any()


def test_eight_bits_without_a_scale_are_rejected(tmp_path: Path) -> None:
    pair = make_pair(make_published(tmp_path / "published", dim=8, projection_dim=4))
    save_language_model(pair.model, pair.vocab, tmp_path / "xx-lm")
    path = tmp_path / "xx-lm" / "softmax.safetensors"
    tensors = load_file(path)
    save_file({"weight": tensors["weight"].to(torch.int8), "bias": tensors["bias"]}, path)
    (tmp_path / "xx-lm" / "SHA256SUMS").unlink()
    write_sums(tmp_path / "xx-lm", ["config.json", "model.safetensors", "softmax.safetensors", "vocab.txt"])
    with pytest.raises(WeightsError, match="weight is stored as I8; expected F32 or F16"):
        load_softmax(tmp_path / "xx-lm")


def test_the_verb_writes_a_package_and_names_the_next_command(tmp_path: Path, capfd) -> None:
    folder = save_toy_bilm(tmp_path / "xx-tiny")
    output = tmp_path / "package"
    assert cli.run(["package", str(folder), "-o", str(output), "--license", "CC0-1.0", "--version", "2.0"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert f"install it with: pip install {output}" in err
    project = tomllib.loads((output / "pyproject.toml").read_text("utf-8"))["project"]
    assert (project["name"], project["version"], project["license"]) == ("elmokit-xx-tiny", "2.0", "CC0-1.0")
    assert cli.run(["package", str(folder), "-o", str(output)]) == 1
    assert "exists already" in capfd.readouterr().err


@pytest.mark.slow
def test_wheels_install_offline_into_a_bare_environment_and_both_models_answer(tmp_path: Path) -> None:
    """Needs the network or a mirror once, to collect wheels; the installation itself has neither."""
    root = Path(__file__).parents[2]
    assert cli.run(["package", "en-small", "-o", str(tmp_path / "package"), "--name", "xx-other"]) == 0
    pip = [sys.executable, "-m", "pip"]
    for source in (root, tmp_path / "package"):
        subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path / "ours"), str(source)], check=True)
    wheels = sorted((tmp_path / "ours").glob("*.whl"))
    sizes = {path.name.split("-")[0]: path.stat().st_size for path in wheels}
    assert sizes["elmokit"] < 35e6
    assert sizes["elmokit_xx_other"] < 60e6
    requirements = [line for line in (root / "constraints.txt").read_text().splitlines() if line.startswith("torch==")]
    collect = ["download", "-q", "-d", str(tmp_path / "all"), "-c", str(root / "constraints.txt")]
    subprocess.run([*pip, *collect, *requirements, *map(str, wheels)], check=True)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    found = ["--no-index", "--find-links", str(tmp_path / "all")]
    offline = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path)}
    install = [str(python), "-m", "pip", "install", "-q", *found, "elmokit", "elmokit-xx-other"]
    subprocess.run(install, check=True, env=offline, cwd=tmp_path)
    code = """
from elmokit import Embedder
for name in ("en-small", "xx-other"):
    print(Embedder.from_pretrained(name).embed_layers([["The", "play", "began"]])[0].shape)
"""
    ran = subprocess.run(
        [str(python), "-c", code], check=True, env=offline, cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.stdout.splitlines() == ["(3, 3, 256)"] * 2
