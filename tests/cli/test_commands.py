"""Help and usage of every verb."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperGroup

from elmokit import __version__, cli
from elmokit.cli.app import app


def list_verbs(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, groups too."""
    yield path
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from list_verbs(below, (*path, name))


VERBS = list(list_verbs(typer.main.get_command(app)))


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_fits_80_columns_and_every_summary_its_line(verb, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run([*verb, "--help"]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"Usage: {' '.join(['elmokit', *verb])} ")
    assert max(map(len, out.splitlines())) <= 80
    assert "..." not in out.partition("Commands:\n")[2]


@pytest.mark.long
def test_help_of_no_verb_loads_anything_heavy():
    code = f"""
import sys
from elmokit import cli
for verb in {VERBS}:
    cli.run([*verb, "--help"])
print([name for name in ("torch", "numpy", "h5py", "sacremoses") if name in sys.modules], file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == "[]\n"


@pytest.mark.parametrize(
    "args", [["embed", "a.txt"], ["nonsense"], ["embed", "a", "-o", "b.npy", "--state", "hot"], ["info", "x", "--wide"]]
)
def test_wrong_usage_is_one_line_and_exit_code_2(capfd, args):
    assert cli.run(args) == 2
    err = capfd.readouterr().err
    assert err.startswith("elmokit: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("args", [[], ["embed"], ["task"], ["task", "train"], ["reproduce"], ["score"], ["pretrain"]])
def test_a_bare_command_prints_its_help_as_it_is_and_exits_with_2(capfd, args):
    assert cli.run([*args, "--help"]) == 0
    expected = capfd.readouterr().out
    assert cli.run(args) == 2
    assert capfd.readouterr() == ("", expected)


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["embed", "a.txt"], "elmokit embed"),
        (["task", "train", "ner"], "elmokit task train"),
        (["task", "trian"], "elmokit task"),
        (["nonsense"], "elmokit"),
    ],
)
def test_a_usage_error_points_to_the_help_of_its_verb(capfd, args, command):
    assert cli.run(args) == 2
    assert capfd.readouterr().err.endswith(f"(see: {command} --help)\n")


@pytest.mark.parametrize(
    ("verb", "usage"),
    [
        (["embed"], "[OPTIONS] IN..."),
        (["score"], "[OPTIONS] FILES..."),
        (["task", "predict"], "[OPTIONS] TASK MODEL [FILES...]"),
        (["pretrain"], "[OPTIONS] RECIPE [KEY=VALUE...]"),
    ],
)
def test_help_names_arguments_without_python_types(capfd, verb, usage):
    assert cli.run([*verb, "--help"]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"Usage: {' '.join(['elmokit', *verb])} {usage}\n")
    assert "list[" not in out


def test_help_and_version_are_data(capfd):
    assert cli.run(["--version"]) == 0
    assert capfd.readouterr() == (f"elmokit {__version__}\n", "")
    for args in (["--help"], ["embed", "-h"], ["convert", "--help"], ["info", "--help"]):
        assert cli.run(args) == 0
        out, err = capfd.readouterr()
        assert out.startswith("Usage: elmokit")
        assert err == ""


def test_help_lists_the_most_used_verb_first(capfd):
    assert cli.run(["--help"]) == 0
    commands = capfd.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in commands][:3] == ["embed", "score", "perplexity"]


def test_help_of_tasks_begins_with_training(capfd):
    assert cli.run(["task", "--help"]) == 0
    commands = capfd.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in commands][:3] == ["train", "predict", "evaluate"]
