"""The picture of the rooms: drawn from the linter's contract, and current on its page."""

import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rooms(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import rooms

    return rooms


def test_the_page_shows_the_current_picture(rooms):
    page = rooms.PAGE.read_text(encoding="utf-8")
    assert page == rooms.update_page(page), "out of date; run: python scripts/rooms.py --write"


def test_rooms_of_one_layer_are_joined_by_a_bracket(rooms, monkeypatch):
    monkeypatch.setattr(rooms, "LINES", dict.fromkeys("abcd", ("question", "answer")))
    picture = rooms.draw_rooms([["a"], ["b", "c", "d"]])
    assert [line[:3] for line in picture.splitlines()] == ["  a", "┌ b", "├ c", "└ d"]


def test_a_room_without_a_line_is_reported(rooms, monkeypatch):
    monkeypatch.delitem(rooms.LINES, "embed")
    with pytest.raises(SystemExit, match="embed"):
        rooms.draw_rooms(rooms.read_layers())


def test_every_file_of_a_room_is_listed_with_its_first_line(rooms):
    listed = rooms.list_files("text").splitlines()
    assert len(listed) == len(list((ROOT / "elmokit" / "text").glob("[!_]*.py")))
    assert all(re.fullmatch(r"\w+ +\S.*", line) for line in listed)
    assert rooms.list_files("errors").startswith("errors  ")


def test_every_module_that_the_architecture_page_names_exists(rooms):
    page = rooms.PAGE.read_text(encoding="utf-8")
    named = [f"{room}/{module}.py" for room, module in re.findall(r"`(\w+)/(\w+)`", page) if room in rooms.LINES]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "elmokit" / name).exists()] == []
