"""Run the notebooks of docs/notebooks without Jupyter, and compare or store their outputs.

    python scripts/notebooks.py [NAME]...            # run; exit code 1 if an output differs from the stored one
    python scripts/notebooks.py --write [NAME]...    # run and store the outputs

A cell runs as in Jupyter: cells share names, the value of a last expression is shown, `!COMMAND` runs in a shell, and
an open figure of matplotlib is shown as a picture. Every notebook runs in a new folder. Numbers may differ by 10 %,
pictures at will.
"""

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
TOLERANCE = 0.1
COMMAND = re.compile(r"^!(.+)$", re.MULTILINE)
Output = dict[str, Any]


def run_notebook(path: Path, folder: Path) -> list[list[Output]]:
    """Run a notebook in a folder; return the outputs of each code cell, as notebooks store them."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    namespace: dict[str, Any] = {"__name__": "__main__", "_shell": _shell}
    with contextlib.chdir(folder):
        return [
            _run_cell(_join(cell["source"]), namespace, f"{path.name}[{number}]")
            for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"])
            if cell["cell_type"] == "code"
        ]


def _run_cell(source: str, namespace: dict[str, Any], name: str) -> list[Output]:
    tree = ast.parse(COMMAND.sub(lambda match: f"_shell({match[1]!r})", source), name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _split(printed.getvalue())})
    pictures = _pictures()
    if value is not None and not pictures:
        data = {"text/plain": _split(repr(value))}
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs + pictures


def _shell(command: str) -> None:
    """Print the output of a command; the programs of this environment come first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"`{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    print(done.stdout, end="")


def _pictures() -> list[Output]:
    """Return the open figures of matplotlib as outputs, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    found = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=100, bbox_inches="tight")
        data = {"image/png": base64.b64encode(file.getvalue()).decode()}
        found.append({"data": data, "metadata": {}, "output_type": "display_data"})
    pyplot.close("all")
    return found


def text_of(output: Output) -> str:
    """Return the text of an output; of a picture, a mark."""
    if output["output_type"] == "stream":
        return _join(output["text"])
    data = output["data"]
    return "(a picture)" if "image/png" in data else _join(data["text/plain"])


def differences(stored: list[list[Output]], found: list[list[Output]]) -> list[str]:
    """Return a sentence for every code cell whose output differs from the stored one."""
    assert len(stored) == len(found)
    sentences = []
    for number, (before, now) in enumerate(zip(stored, found, strict=True), 1):
        texts = ["\n".join(map(text_of, outputs)).strip() for outputs in (before, now)]
        if not _agree(*texts):
            sentences.append(f"code cell {number} shows:\n{texts[0]}\nbut the output is:\n{texts[1]}")
    return sentences


def _agree(left: str, right: str) -> bool:
    if [part.split() for part in NUMBER.split(left)] != [part.split() for part in NUMBER.split(right)]:
        return False
    pairs = zip(map(float, NUMBER.findall(left)), map(float, NUMBER.findall(right)), strict=True)
    return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b), 1.0) for a, b in pairs)


def stored_outputs(path: Path) -> list[list[Output]]:
    """Return the outputs that a notebook holds, per code cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]


def store(path: Path, outputs: list[list[Output]]) -> None:
    """Write the outputs into the notebook."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, found in zip(code, outputs, strict=True):
        cell["outputs"] = found
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def to_markdown(path: Path) -> str:
    """Return a notebook as a page; its pictures are those of `pictures_of`, beside the page."""
    parts = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = _join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "image/png" in output.get("data", {}):
                parts.append(f"![Drawn by the cell above]({path.stem}-cell-{number}.png)")
            else:
                parts.append(f"```{{ .text .output }}\n{text_of(output).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def pictures_of(path: Path) -> list[tuple[str, bytes]]:
    """Return (file name, bytes) for the stored pictures of a notebook, at most one per cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        (f"{path.stem}-cell-{number}.png", base64.b64decode(_join(output["data"]["image/png"])))
        for number, cell in enumerate(cells)
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]


def _join(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _split(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="some of the notebooks, such as senses")
    parser.add_argument("--write", action="store_true", help="store the outputs")
    options = parser.parse_args()
    failed = False
    for path in sorted(FOLDER.glob("*.ipynb")):
        if options.names and path.stem not in options.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            outputs = run_notebook(path, Path(folder))
        if options.write:
            store(path, outputs)
            continue
        for sentence in differences(stored_outputs(path), outputs):
            failed = True
            print(f"{path.name}: {sentence}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
