"""The live line on a real terminal, and the messages beside it."""

import re
from itertools import pairwise

import pytest
from terminal import run_in_pty, screen
from toy import toy_recipe

from elmokit.cli import messages
from elmokit.cli.progress import Progress, _Phase, show_progress
from elmokit.cli.run_display import RunDisplay
from elmokit.pretrain.progress import BuildStarted, EvaluationStarted

SILENT_WORK = """
import time
from elmokit.cli.progress import show_progress
with show_progress("loading the model") as shown:
    shown.begin("embedding", unit="lines", work_unit="words", total=100)
    shown.update(25, work=500)
    time.sleep(4)
"""
MESSAGES = """
import time, warnings
from elmokit.cli.app import _warnings_as_lines
from elmokit.cli.messages import print_message
from elmokit.cli.progress import show_progress
import typer
with show_progress("loading the model") as shown, _warnings_as_lines():
    for number in range(3):
        shown.begin("embedding", unit="lines", total=3)
        shown.update(number)
        time.sleep(0.3)
        print_message(f"message {number}")
        warnings.warn(f"careful {number}", UserWarning)
        with shown.paused():
            typer.echo(f"result {number}")
print_message("the end")
"""


@pytest.mark.long
def test_the_line_moves_at_least_every_2_seconds_however_rarely_the_work_reports():
    written = run_in_pty(SILENT_WORK)
    times = [when for when, _ in written]
    assert max(after - before for before, after in pairwise(times)) < 2.0
    shown = b"".join(part for _, part in written).decode()
    assert len(set(re.findall(r"0:00:0\d embedding 25/100 lines", shown))) >= 4  # the clock runs
    assert screen(shown.encode()) == [""]  # nothing stays


@pytest.mark.long
def test_messages_warnings_and_results_never_land_in_the_live_line():
    shown = screen(b"".join(part for _, part in run_in_pty(MESSAGES)))
    expected = [
        line
        for number in range(3)
        for line in (f"elmokit: message {number}", f"elmokit: warning: careful {number}", f"result {number}")
    ]
    assert shown == [*expected, "elmokit: the end"]


def test_without_a_terminal_nothing_is_drawn_and_messages_are_plain_lines(capfd):
    with show_progress("loading the model") as shown:
        shown.begin("embedding", unit="lines", total=3)
        shown.update(1, detail="loss 3")
        messages.print_message("message")
        with shown.paused():
            pass
    assert not shown.is_live
    assert capfd.readouterr() == ("", "elmokit: message\n")


def test_a_dumb_terminal_gets_no_live_line(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert not messages.on_terminal()
    monkeypatch.setenv("TERM", "xterm")
    assert messages.on_terminal()


def test_rate_and_time_left_follow_the_last_half_minute(monkeypatch):
    clock = iter([100.0, 110.0, 150.0, 160.0, 160.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    phase = _Phase("embedding", "lines", "words", total=100)
    phase.add_sample(0, 0)
    assert phase.describe() == "embedding 0/100 lines"
    for done in (10, 20, 30):  # one line per second in the end
        phase.done = done
        phase.add_sample(done, 7 * done)
    assert phase.describe() == "embedding 30/100 lines, 7 words/s, 0:01:10 left"


def test_the_time_left_counts_down_between_two_reports(monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    phase = _Phase("training", "steps", "tokens", total=10)
    phase.add_sample(0, 0)
    now, phase.done = 110.0, 5
    phase.add_sample(5, 50)
    now = 113.0
    assert phase.describe() == "training 5/10 steps, 5 tokens/s, 0:00:07 left"


def test_preparing_ends_when_the_model_is_built(monkeypatch):
    texts = []
    shown = Progress(None)
    monkeypatch.setattr(shown, "begin", lambda text, **_: texts.append(text))
    display = RunDisplay(toy_recipe(), shown)
    display.prepare(100)
    display.report(BuildStarted())
    display.report(EvaluationStarted(0))
    assert texts == ["preparing the text:", "building the model", "evaluating the held-out text"]
