"""Draw the rooms of the package from the linter's contract in pyproject.toml.

python scripts/rooms.py            print the picture: one line per room, imports point down only
python scripts/rooms.py --write    put it into docs/architecture.md
python scripts/rooms.py tasks      print the files of a room, one line each
"""

import argparse
import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"(<!-- rooms: .*? -->\n```\n).*?(```\n<!-- end of rooms -->)", re.DOTALL)

# The only place where a room is described: the question it answers, and its answer.
LINES = {
    "cli": ("the command line", "a verb parses, calls one function of a room, shows the result"),
    "serve": ("over HTTP", "routes, batching queue, page"),
    "paper": ("the paper, re-run", "plan, engine, file of runs, claims, page, figures"),
    "integrations": ("inside other libraries", "one file per library: AllenNLP, simple_elmo, ONNX, Ray"),
    "analysis": ("the paper's questions", "neighbors, probes, word senses, minimal pairs, datasets"),
    "tasks": ("the tasks of the paper", "one loop for all of them, one file per task"),
    "pretrain": ("training the biLM", "recipe, batches, step, loop, several ranks, fine-tuning"),
    "score": ("how likely a text is", "perplexity, scores per word, n-grams to compare with"),
    "embed": ("using the biLM", "arrays, files, cached layers, a layer of a task model"),
    "encoders": ("what ELMo is compared with", "static vectors, CoVe, context2vec"),
    "runs": ("how a run survives a crash", "checkpoints, claims, logs, seeds, optimizers, ranks"),
    "nn": ("blocks of task models", "biLSTMs, attention, CRF, chart: torch, no files"),
    "metrics": ("scores as the official scripts count", "spans, roles, coreference, SQuAD, brackets: no torch"),
    "weights": ("between model and disk", "our folder, published HDF5, checksums, model cards"),
    "readers": ("published datasets", "strict, as frozen dataclasses, no torch"),
    "model": ("the network", "tensors only: no strings, no files"),
    "text": ("text to ids", "strings only: no torch"),
    "kernels": ("what torch is slow at on a CPU", "plain C, optional"),
    "config": ("validated settings", "model sizes, recipes"),
    "atomic": ("files", "published whole or not at all"),
    "extras": ("optional dependencies", "a missing one is named with its pip command"),
    "forking": ("forked processes", "fresh locks and threads in the child"),
    "locking": ("folders", "used by one process at a time"),
    "limits": ("bounds", "on lines and on what compressed files unpack to"),
    "plain_file": ("files of ours", "opened without following links"),
    "errors": ("exceptions", "one tree"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", nargs="?", help="list the files of this room")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    if args.room:
        print(list_files(args.room), end="")
    elif args.write:
        PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(draw_rooms(read_layers()), end="")


def read_layers(pyproject: Path = ROOT / "pyproject.toml") -> list[list[str]]:
    """Return the rooms from top to bottom; rooms of one layer may not import each other."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[room.strip() for room in layer.split("|")] for layer in layers]


def draw_rooms(layers: list[list[str]]) -> str:
    """Return one line per room; a bracket joins the rooms of one layer."""
    rooms = [room for layer in layers for room in layer]
    if set(rooms) != set(LINES):
        sys.exit(f"rooms: the contract and LINES differ in {sorted(set(rooms) ^ set(LINES))}; edit scripts/rooms.py")
    widths = max(map(len, rooms)), max(len(question) for question, _ in LINES.values())
    lines = []
    for layer in layers:
        brackets = [" "] if len(layer) == 1 else ["┌", *"├" * (len(layer) - 2), "└"]
        for bracket, room in zip(brackets, layer, strict=True):
            question, answer = LINES[room]
            lines.append(f"{bracket} {room:{widths[0]}}  {question:{widths[1]}}  {answer}\n")
    return "".join(lines)


def update_page(page: str) -> str:
    """Return the page with the current picture between its markers."""
    updated, count = BLOCK.subn(lambda match: match[1] + draw_rooms(read_layers()) + match[2], page)
    if count != 1:
        sys.exit(
            f"rooms: {PAGE.name} has {count} blocks between '<!-- rooms: … -->' and '<!-- end of rooms -->'; need 1"
        )
    return updated


def list_files(room: str) -> str:
    """Return one line per module of a room: its name and the first line of its docstring."""
    if room not in LINES:
        sys.exit(f"rooms: no room {room!r}; the rooms are {', '.join(LINES)}")
    folder = ROOT / "elmokit" / room
    paths = sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    modules = {path.stem: _summary(path) for path in paths if path.stem != "__init__"}
    width = max(map(len, modules))
    return "".join(f"{name:{width}}  {summary}\n" for name, summary in modules.items())


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


if __name__ == "__main__":
    main()
