"""The README runs from its first block to its last; `pages` has the convention."""

from pathlib import Path

import pytest
from pages import run_page

README = Path(__file__).parent.parent / "README.md"


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
def test_the_readme_runs():
    assert run_page(README.read_text(encoding="utf-8")) > 0


def test_the_readme_hides_nothing_from_its_readers():
    assert "<!--" not in README.read_text(encoding="utf-8")


def test_blocks_share_names_and_files():
    page = """
```console
$ printf 'one\\ntwo\\n' > a.txt
$ cat a.txt
one
two
```
```python
from pathlib import Path
text = Path("a.txt").read_text()
```
- in a list

  ```python
  print(text.split())  # ['one', 'two']
  ```
"""
    assert run_page(page) == 4


def test_a_block_in_another_language_is_only_shown():
    assert run_page("```\n$ elmokit no-such-verb\n```\n```toml\n[x]\n```\n```python\nx = 1\n```\n") == 1


def test_a_python_block_that_fails_is_found_at_its_line():
    with pytest.raises(ZeroDivisionError) as error:
        run_page("# Title\n\n```python\nx = 1\n1 / 0\n```\n")
    assert error.traceback[-1].lineno + 1 == 5


def test_a_printed_value_that_the_page_shows_otherwise_fails():
    run_page("```python\nprint(list(range(9)))  # [0, 1, ...]\n```\n")
    with pytest.raises(pytest.fail.Exception, match="line 2 shows:\n3"):
        run_page("```python\nprint(1 + 1)  # 3\n```\n")


@pytest.mark.long
def test_only_known_commands_run():
    page = """
```console
$ exit 9
$ elmokit --help \\
    | head -n 3
...Usage...
$ elmokit --help > help.txt  # a comment
```
"""
    assert run_page(page) == 2
    assert "Usage" in Path("help.txt").read_text(encoding="utf-8")


def test_a_command_that_fails_or_shows_another_output_fails():
    with pytest.raises(pytest.fail.Exception, match=r"line 2: `elmokit no-such-verb` ended with 2"):
        run_page("```console\n$ elmokit no-such-verb\n```\n")
    with pytest.raises(pytest.fail.Exception, match="line 2 shows:\nnothing"):
        run_page("```console\n$ elmokit --help\nnothing like this\n```\n")
