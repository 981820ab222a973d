"""The release check finds what must not be released. `make release-check` runs the whole of it."""

import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

CARD = "# tiny\n\n## Training data\n\nOur own sentences, CC0.\n"
FILES = {
    "elmokit/py.typed": "",
    "elmokit/recipes/en-small.toml": "",
    "elmokit/bundled/en-small/model.safetensors": "weights",
    "elmokit/bundled/en-small/README.md": CARD,
    "elmokit-0.1.0.dist-info/licenses/LICENSE": "Apache",
}
UNLICENSED = "# tiny\n\n## Training data\n\nSome text.\n\n## Results\n\nOn data of CC BY 4.0.\n"
KERNELS = {"elmokit/kernels/libelmokit_kernels.so": "code"}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import release_check

    return release_check


@pytest.fixture
def make_wheel(tmp_path):
    def make(files):
        path = tmp_path / "elmokit-0.1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
        return path

    return make


def test_versions_agree(script):
    import elmokit

    assert script.check_versions() == elmokit.__version__


def test_versions_that_differ_are_an_error(script, tmp_path, monkeypatch):
    (tmp_path / "elmokit").mkdir()
    (tmp_path / "elmokit" / "__init__.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0\n")
    (tmp_path / "CITATION.cff").write_text("version: 0.1.0\n")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    with pytest.raises(script.CheckError, match=r"0\.1\.0"):
        script.check_versions()


def test_good_wheels_pass(script, make_wheel):
    script.check_wheel(make_wheel(FILES | KERNELS), compiled=True)
    script.check_wheel(make_wheel(FILES), compiled=False)


@pytest.mark.parametrize(
    ("files", "compiled", "message"),
    [
        (FILES, True, "lacks compiled kernels"),
        (FILES | KERNELS, False, "has compiled kernels"),
        (FILES | {"tests/test_x.py": ""}, False, "do not belong"),
        (FILES | {"elmokit/bundled/en-small/train.conll": ""}, False, "do not belong"),
        (
            FILES | {"elmokit/bundled/en-small/README.md": "# tiny"},
            False,
            "en-small/README.md names no data and license",
        ),
        (FILES | {"elmokit/bundled_tasks/ner/README.md": UNLICENSED}, False, "ner/README.md names no data and license"),
        ({name: text for name, text in FILES.items() if "LICENSE" not in name}, False, "lacks the license"),
        ({name: text for name, text in FILES.items() if "py.typed" not in name}, False, "py.typed"),
    ],
)
def test_bad_wheels_are_named(script, make_wheel, files, compiled, message):
    with pytest.raises(script.CheckError, match=message):
        script.check_wheel(make_wheel(files), compiled=compiled)


def test_metadata_are_checked(script, make_wheel):
    fields = {**script.METADATA, "Version": "0.1.0"}
    text = "".join(f"{name}: {value}\n" for name, value in fields.items()) + "Requires-Dist: numpy<3,>=1.26\n"
    text += "Requires-Dist: scipy>=1.11; extra == 'tasks'\n"
    wheel = make_wheel(FILES | {"elmokit-0.1.0.dist-info/METADATA": text})
    assert script.check_metadata(wheel, "0.1.0") == ["numpy<3,>=1.26"]
    with pytest.raises(script.CheckError, match=r"Version is '0\.1\.0'; expected '0\.2\.0'"):
        script.check_metadata(wheel, "0.2.0")


@pytest.mark.parametrize(
    ("left_out", "added", "message"),
    [
        ("LICENSE", "elmokit/runs/x.py", "lacks LICENSE"),
        ("x.py", "elmokit/kernels/libelmokit_kernels.so", "built files"),
        ("x.py", "runs/small/model.safetensors", "built files"),
    ],
)
def test_incomplete_archives_and_built_files_are_named(script, tmp_path, left_out, added, message):
    path = tmp_path / "elmokit-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in {*script.IN_ARCHIVE, added} - {left_out}:
            archive.addfile(tarfile.TarInfo(f"elmokit-0.1.0/{name}"), io.BytesIO())
    with pytest.raises(script.CheckError, match=message):
        script.check_archive(path)


@pytest.mark.parametrize(
    ("package", "done"),
    [({"name": "a", "version": "1", "vulns": []}, True), ({"name": "a", "skip_reason": "not found"}, False)],
)
def test_packages_that_cannot_be_looked_up_are_reported(script, tmp_path, capsys, package, done):
    assert script.audit(fake_pip_audit(tmp_path, json.dumps({"dependencies": [package]}))) is done
    assert ("NOT LOOKED UP for 1 of 1 packages: not found" in capsys.readouterr().out) is not done


def test_a_vulnerable_package_and_a_missing_service_are_told_apart(script, tmp_path, capsys):
    vulnerable = {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1"}]}]}
    with pytest.raises(script.CheckError, match=r"a \(PYSEC-1\)"):
        script.audit(fake_pip_audit(tmp_path, json.dumps(vulnerable)))
    assert script.audit(fake_pip_audit(tmp_path, "no connection")) is False
    assert "cannot reach its service" in capsys.readouterr().out


def fake_pip_audit(folder, output):
    """Return a program that prints this output, in place of Python with pip-audit."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    program.chmod(0o755)
    return program


def test_large_wheels_are_an_error(script, make_wheel, monkeypatch):
    monkeypatch.setattr(script, "MAX_WHEEL_BYTES", 10)
    with pytest.raises(script.CheckError, match="at most 10"):
        script.check_wheel(make_wheel(FILES), compiled=False)


@pytest.mark.parametrize("packed", [False, True])
def test_data_files_are_found_packed_and_unpacked(script, make_wheel, tmp_path, packed):
    data = tmp_path / "data"
    data.mkdir()
    content = b"B-PER Ada\n"
    (data / "a.conll.xz").write_bytes(lzma.compress(content))
    inside = (data / "a.conll.xz").read_bytes() if packed else content
    with pytest.raises(script.CheckError, match=r"a\.conll"):
        script.check_no_data((make_wheel(FILES | {"elmokit/a.txt": inside}),), data)
    script.check_no_data((make_wheel(FILES),), data)
