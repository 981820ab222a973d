"""The fuzzer finds what it looks for, and mutants follow from their numbers. `make fuzz` runs it on every format."""

import sys
import time
from pathlib import Path

import pytest

from elmokit.errors import InputError

FUZZ = Path(__file__).parent / "fuzz"


@pytest.fixture
def fuzzer(monkeypatch, tmp_path):
    for name in ("run", "formats", "more_formats", "mutations"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(FUZZ))
    import run

    monkeypatch.setattr(run, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    return run


def write(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"12 good words\n" * 3)


def rejects(folder: Path) -> object:
    raise InputError(str(folder))


def breaks(folder: Path) -> object:
    raise KeyError(str(folder))


def reads(folder: Path) -> object:
    return (folder / "a.txt").read_bytes()


@pytest.mark.parametrize(
    ("read", "has_sums", "expected"),
    [
        (rejects, True, "typed"),
        (breaks, True, "traceback"),
        (reads, False, "valid"),
        (reads, True, "silent"),
        (lambda _: (_ for _ in ()).throw(MemoryError), False, "memory"),
    ],
)
def test_results_are_told_apart(fuzzer, tmp_path, read, has_sums, expected):
    from formats import Format

    write(tmp_path)
    assert fuzzer.read(Format(write, read, has_sums=has_sums), tmp_path, good="other")[0] == expected


def test_an_unchanged_value_is_valid_although_there_are_sums(fuzzer, tmp_path):
    from formats import Format, digest

    write(tmp_path)
    form = Format(write, reads, has_sums=True)
    assert fuzzer.read(form, tmp_path, digest(reads(tmp_path)))[0] == "valid"


def test_the_same_number_gives_the_same_mutant(fuzzer, tmp_path):
    found = []
    for number in (7, 7, 8):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        fuzzer.make_mutant("CoNLL-2003", number, 0, folder)
        found.append((folder / "a.conll").read_bytes())
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
def test_hangs_and_crashes_are_counted_and_the_rest_is_read(fuzzer, monkeypatch):
    import os
    import signal

    from formats import FORMATS, Format

    def stumble(folder: Path) -> object:
        number = int(folder.name) if folder.name.isdigit() else 0
        if number == 2:
            time.sleep(60)
        if number == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    monkeypatch.setitem(FORMATS, "stumbling", Format(write, stumble))
    monkeypatch.setattr(fuzzer, "SECONDS", 1)
    counts = fuzzer.fuzz("stumbling", 7, 0, time.monotonic() + 60)
    assert counts == {"valid": 5, "hang": 1, "crash": 1}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_format_reads_its_good_file_and_no_mutant_ends_in_a_traceback(fuzzer, tmp_path):
    from formats import FORMATS, digest

    wrong = []
    for name, form in FORMATS.items():
        good = tmp_path / name.replace("/", "-") / "good"
        good.mkdir(parents=True)
        form.write(good)
        value = digest(form.read(good))
        for number in range(3):
            folder = good.parent / str(number)
            folder.mkdir()
            fuzzer.make_mutant(name, number, 0, folder)
            kind, shown = fuzzer.read(form, folder, value)
            if kind not in ("typed", "valid"):
                wrong.append(f"{name}, mutant {number}: {kind} {shown[-300:]}")
    assert not wrong, "\n".join(wrong)
