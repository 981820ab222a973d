"""Optional dependencies that are missing or too old."""

import pytest

from elmokit.errors import MissingExtraError
from elmokit.extras import require


def test_a_missing_module_is_named_with_the_line_that_installs_it() -> None:
    with pytest.raises(MissingExtraError, match=r"no_such is not installed; .*pip install 'elmokit\[some\]'"):
        require("no_such.module", extra="some")


def test_a_module_that_is_too_old_is_named_with_its_version() -> None:
    assert require("numpy", extra="some", having="array").__name__ == "numpy"
    with pytest.raises(MissingExtraError, match=r"numpy \d[\d.]+ is too old; .*pip install 'elmokit\[some\]'"):
        require("numpy", extra="some", having="no_such_name")
