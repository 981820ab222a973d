"""The command: its output and messages, its exit codes, and no partial files."""

import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from commands import Command, start_command
from published import PublishedModel, make_published
from safetensors.numpy import load_file

from elmokit import __version__, cli
from elmokit.cli import messages
from elmokit.embed.embedder import Embedder
from elmokit.kernels.library import load


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a small published model."""
    return str(
        make_published(tmp_path_factory.mktemp("model"), dim=8, projection_dim=4, n_layers=1).options_path.parent
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wait_for_first_window(output: Path, process: Command) -> None:
    journal = output.with_name(f"{output.name}.partial") / "job.json"
    while process.poll() is None:
        if journal.exists() and json.loads(journal.read_text())["done"]["lines"]:
            return
        time.sleep(0.005)
    pytest.fail(f"the command ended too soon: {process.stderr.read()}")


def write_long_text(path: Path) -> None:
    rng = np.random.default_rng(0)
    path.write_text("\n".join(" ".join(rng.choice(list("abcdefgh"), size=3)) for _ in range(3_000)) + "\n")


def test_embed_gives_the_vectors_of_the_embedder(folder, model, capfd):
    (folder / "notes.txt").write_text("The bank closed.\n\nA river.\n")
    assert cli.run(["embed", "notes.txt", "-o", "notes.safetensors", "--model", model, "--dtype", "float32"]) == 0
    assert capfd.readouterr() == ("", "")  # silent in a pipe
    found = load_file("notes.safetensors")
    expected = Embedder.from_pretrained(model).embed_layers(["The bank closed.", "", "A river."])
    assert found["offsets"].tolist() == [0, 4, 4, 7]
    for i, layers_LTD in enumerate(expected):
        rows = found["vectors"][found["offsets"][i] : found["offsets"][i + 1]]
        np.testing.assert_allclose(rows.swapaxes(0, 1), layers_LTD, atol=1e-5)
    assert sorted(path.name for path in folder.iterdir()) == ["notes.safetensors", "notes.txt"]


def test_embed_in_eight_bits_gives_nearly_the_same(folder, model):
    (folder / "a.txt").write_text("The bank closed\nWe play\n")
    for precision in ("fp32", "int8"):
        args = ["embed", "a.txt", "-o", f"{precision}.npy", "-m", model, "--precision", precision, "--dtype", "float32"]
        assert cli.run(args) == 0
    exact, rounded = (np.load(folder / f"{precision}.npy") for precision in ("fp32", "int8"))
    np.testing.assert_allclose(rounded, exact, atol=0.1)
    assert (rounded != exact).any()


def test_json_lines_go_to_standard_output_as_they_come(model, capfd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a b\nc\n")))
    assert cli.run(["embed", "-", "-o", "-", "-m", model, "--tokenized", "--layers", "mix:1,0", "--pool", "max"]) == 0
    out, err = capfd.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["line"], line["tokens"]) for line in lines] == [(0, ["a", "b"]), (1, ["c"])]
    assert np.shape(lines[0]["vector"]) == (8,)
    assert err == ""


def test_other_formats_do_not_go_to_standard_output(folder, model, capfd):
    (folder / "a.txt").write_text("a\n")
    assert cli.run(["embed", "a.txt", "-o", "-", "-m", model, "--format", "npy"]) == 1
    assert "format 'npy' cannot go to standard output" in capfd.readouterr().err


def test_an_empty_file_gives_an_empty_result_and_a_warning(folder, model, capfd):
    (folder / "empty.txt").touch()
    assert cli.run(["embed", "empty.txt", "-o", "out.npy", "-m", model]) == 0
    assert capfd.readouterr().err == "elmokit: warning: no words in the input; out.npy has no vectors\n"
    assert np.load("out.npy").shape == (0, 2, 8)
    assert np.load("out.offsets.npy").tolist() == [0]


def test_truncated_words_are_reported_in_one_line(folder, model, capfd):
    (folder / "a.txt").write_text("x" * 1_000_000)
    assert cli.run(["embed", "a.txt", "-o", "out.npy", "-m", model]) == 0
    assert capfd.readouterr().err == (
        "elmokit: warning: 1 word is longer than 48 bytes and was cut; split such words if the difference matters\n"
    )


FAILURES = {
    "no text": (["embed", "none.txt", "-o", "b.npy", "-m", "MODEL"], "none.txt: no such file"),
    "not UTF-8": (["embed", "latin.txt", "-o", "b.npy", "-m", "MODEL"], "latin.txt, line 2: byte 0xe9"),
    "no weights": (["embed", "a.txt", "-o", "b.npy", "-m", "nowhere"], "nowhere: does not exist"),
    "truncated weights": (["embed", "a.txt", "-o", "b.npy", "-m", "cut"], "weights.hdf5: not an HDF5 file"),
    "no format": (["embed", "a.txt", "-o", "b", "-m", "MODEL"], "the suffix '' is no known format"),
    "no directory": (["embed", "a.txt", "-o", "x/b.npy", "-m", "MODEL"], "there is no directory x"),
    "output exists": (["embed", "a.txt", "-o", "a.txt", "-m", "MODEL", "--format", "npy"], "a.txt: exists"),
    "bad layers": (["embed", "a.txt", "-o", "b.npy", "-m", "MODEL", "--layers", "top"], "layers 'top'; expected"),
    "bad shard": (["embed", "a.txt", "-o", "b.npy", "-m", "MODEL", "--shard", "3/2"], "shard 3/2; expected"),
    "three files": (["info", "a", "b", "c"], "3 paths for one model"),
    "half hdf5": (["convert", "MODEL", "-o", "out", "--to", "hdf5", "--dtype", "float16"], "holds float32 only"),
    "folder in use": (["convert", "MODEL", "-o", "cut"], "cut: is a folder with files in it"),
}


@pytest.mark.parametrize(("args", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_line_and_exit_code_1(folder, model, capfd, args, message):
    (folder / "a.txt").write_text("a\n")
    (folder / "latin.txt").write_bytes(b"cafe\ncaf\xe9\n")
    (folder / "cut").mkdir()
    (folder / "cut" / "options.json").write_bytes(Path(model, "options.json").read_bytes())
    (folder / "cut" / "weights.hdf5").write_bytes(Path(model, "weights.hdf5").read_bytes()[:1000])
    before = sorted(folder.rglob("*"))
    assert cli.run([model if arg == "MODEL" else arg for arg in args]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("elmokit: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_debug_shows_the_traceback_wherever_it_stands(capfd):
    for args in (["--debug", "info", "nowhere"], ["info", "nowhere", "--debug"]):
        assert cli.run(args) == 1
        err = capfd.readouterr().err
        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("elmokit: nowhere: does not exist")


def test_a_library_warning_is_one_line(folder, model, capfd):
    options = json.loads(Path(model, "options.json").read_text())
    (folder / "options.json").write_text(json.dumps(options | {"colour": "red"}))
    assert cli.run(["info", str(Path(model, "weights.hdf5")), "options.json"]) == 0
    err = capfd.readouterr().err
    assert err.startswith("elmokit: warning: ")
    assert "colour" in err
    assert err.count("\n") == 1


def test_info_is_a_table_or_json(model, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["info", model]) == 0
    out = capfd.readouterr().out
    assert re.search(r"highway layers +2\b", out)
    assert max(map(len, out.splitlines())) <= 80
    assert cli.run(["info", model, "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    with h5py.File(Path(model, "weights.hdf5")) as file:
        sizes: list[int] = []
        file.visititems(lambda _, item: sizes.append(item.size) if isinstance(item, h5py.Dataset) else None)
    assert facts["parameters"]["all"] == sum(sizes)
    assert facts["files"]["weights.hdf5"]["bytes"] == Path(model, "weights.hdf5").stat().st_size


def test_info_without_a_model_describes_the_installation(capfd):
    assert cli.run(["info", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["versions"]["elmokit"] == __version__
    assert found["versions"]["torch"] == torch.__version__
    kernels = load()
    assert found["machine"]["compiled_kernels"] == (None if kernels is None else kernels.isa)
    if kernels is not None:
        expected = "inputs in 8 bits" if kernels.has_vnni else "inputs in 16 bits"
        assert expected in found["machine"]["int8_products"]
    assert found["machine"]["torch_threads"] == torch.get_num_threads()
    assert "en-small" in found["models"]["bundled"]
    assert cli.run(["info"]) == 0
    out = capfd.readouterr().out
    assert "compiled kernels" in out
    assert "en-small" in out


def test_an_unexpected_error_is_one_line(model, capfd, monkeypatch):
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("nobody thought\nof this")

    monkeypatch.setattr("json.dumps", explode)
    assert cli.run(["info", model, "--json"]) == 1
    err = capfd.readouterr().err
    assert err == "elmokit: RuntimeError: nobody thought of this; use --debug for the traceback\n"


@pytest.mark.long
def test_after_a_kill_the_same_command_resumes_to_the_same_bytes(folder, model, capfd):
    write_long_text(folder / "a.txt")
    process = start_command("embed", "a.txt", "-o", "out.safetensors", "-m", model, "--tokenized")
    wait_for_first_window(folder / "out.safetensors", process)
    process.kill()
    process.communicate()
    assert not (folder / "out.safetensors").exists()
    assert cli.run(["embed", "a.txt", "-o", "out.safetensors", "-m", model, "--tokenized"]) == 0
    assert capfd.readouterr().err.startswith("elmokit: resuming after ")
    assert cli.run(["embed", "a.txt", "-o", "whole.safetensors", "-m", model, "--tokenized"]) == 0
    assert (folder / "out.safetensors").read_bytes() == (folder / "whole.safetensors").read_bytes()
    assert not (folder / "out.safetensors.partial").exists()


@pytest.mark.long
def test_ctrl_c_ends_with_130_and_no_half_file(folder, model):
    write_long_text(folder / "a.txt")
    process = start_command("embed", "a.txt", "-o", "out.npy", "-m", model, "--tokenized")
    wait_for_first_window(folder / "out.npy", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert err == (
        "elmokit: interrupted; finished lines are saved in out.npy.partial; run the same command to resume\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "out.npy.partial"]


@pytest.mark.long
def test_a_reader_that_leaves_is_no_error_message(folder, model):
    """In an interpreter of its own, which also flushes its output at the very end."""
    write_long_text(folder / "a.txt")
    command = [sys.executable, "-m", "elmokit", "embed", "a.txt", "-m", model, "-o", "-", "--tokenized"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert json.loads(process.stdout.readline())["line"] == 0
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(folder, model):
    (folder / "a.txt").write_text("a\n")
    process = start_command("embed", "a.txt", "-m", model, "-o", "-", "--tokenized", output=Path("/dev/full"))
    assert process.communicate()[1] == "elmokit: cannot write: no space is left; free some, or write elsewhere\n"
    assert process.returncode == 1


@pytest.mark.long
def test_a_file_size_limit_keeps_the_work(folder, model):
    write_long_text(folder / "a.txt")
    process = start_command("embed", "a.txt", "-o", "out.npy", "-m", model, "--tokenized", max_file_bytes=128 * 1024)
    _, err = process.communicate()
    assert process.returncode == 1
    assert err.startswith("elmokit: ")
    assert "File too large" in err
    assert err.count("\n") == 1
    assert cli.run(["embed", "a.txt", "-o", "out.npy", "-m", model, "--tokenized"]) == 0
    assert np.load("out.npy").shape == (9_000, 2, 8)


def test_published_model_fixture_is_described(published_model: PublishedModel, capfd):
    assert cli.run(["info", *map(str, reversed(published_model.pair)), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["model"] == {"layers": 3, "width": 16, "published": True}


def test_a_closed_stderr_does_not_end_the_command(monkeypatch):
    def broken(*_args, **_kwargs):
        raise BrokenPipeError

    monkeypatch.setattr("typer.echo", broken)
    messages.print_message("step 20")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("unable to mmap 21952 bytes from file <model.safetensors>: Cannot allocate memory (12)"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_lack_of_memory_is_one_line_with_advice(monkeypatch, capfd, error):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr("elmokit.weights.description.describe_model", fail)
    assert cli.run(["info", "somewhere"]) == 1
    assert capfd.readouterr().err.startswith("elmokit: out of memory; use smaller batches (--batch-size, --rows, ")
