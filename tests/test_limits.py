"""Bounds on lines and unpacked sizes, and the environment variables that raise them."""

from pathlib import Path

import pytest

from elmokit.errors import ConfigError
from elmokit.limits import LINE, UNPACKED, max_line_bytes, max_unpacked_bytes


def test_bounds_are_in_megabytes_and_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "a.xz"
    packed.write_bytes(bytes(3_000_000))
    assert (max_line_bytes(), max_unpacked_bytes(packed)) == (16_000_000, 300_000_000)
    packed.write_bytes(b"")
    assert max_unpacked_bytes(packed) == 256_000_000
    monkeypatch.setenv(LINE, "20")
    monkeypatch.setenv(UNPACKED, "5000")
    assert (max_line_bytes(), max_unpacked_bytes(packed)) == (20_000_000, 5_000_000_000)


@pytest.mark.parametrize("value", ["0", "-1", "1e3", "many", "²"])
def test_a_bound_that_is_no_number_is_rejected(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(LINE, value)
    with pytest.raises(ConfigError, match=f"{LINE} is {value!r}; expected a whole number of megabytes, such as 16"):
        max_line_bytes()
