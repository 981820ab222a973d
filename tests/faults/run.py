"""Let every verb that writes meet a failing disk and failing memory, one call at a time. `make faults` runs this.

    python tests/faults/run.py [--only VERB,…] [--kinds write,…] [--most 200] [--save PAGE.md]

SQLite's way: a verb runs once without a fault, which counts its writes, fsyncs, renames, opens, mmaps and large
allocations. Then it runs anew for each of them, and that one fails (shim.c); the first 200 of each kind, then every
k-th so that at most 100 more follow. After each run

- the exit code is 0 or 1, and an error is one line without a traceback;
- the output is the old one or the whole new one;
- the same command without a fault ends with the same bytes as an undisturbed run.

A fork of a process that has imported everything makes a run cheap.
"""

import argparse
import ctypes
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KINDS = ("write", "fsync", "rename", "open", "mmap", "alloc")
SHIM = "ELMOKIT_FAULT_SHIM"
SECONDS = 120
LATER = 100  # points of a kind after the first ones


def preload() -> None:
    """Compile the shim and start this script again with it."""
    library = Path(tempfile.mkdtemp(), "shim.so")
    command = ["cc", "-O2", "-fPIC", "-shared", "-o", str(library), str(HERE / "shim.c"), "-ldl"]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), SHIM: str(library), "OMP_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


if SHIM not in os.environ and __name__ == "__main__":
    preload()

sys.path[:0] = [str(ROOT / "tests" / "support")]

import toy_datasets  # noqa: E402
from toy import TEXT  # noqa: E402

from elmokit import cli  # noqa: E402
from elmokit.embed import elmo, files  # noqa: E402, F401
from elmokit.pretrain import finetune, pretraining  # noqa: E402, F401
from elmokit.tasks import loop, ner, saved  # noqa: E402, F401

PRETRAIN = """\
[data]
train = "corpus.txt"
heldout = "corpus.txt"
tokenized = true
[model.char_encoder]
char_dim = 4
filters = [[1, 4], [2, 6]]
num_highway = 1
max_chars = 12
[model.lstm]
cell_dim = 8
proj_dim = 4
[training]
num_rows = 4
unroll_steps = 5
steps = 6
evaluate_every = 3
checkpoint_every = 3
"""


@dataclass(frozen=True)
class Verb:
    """A command that writes, and what it writes."""

    args: tuple[str, ...]
    outputs: tuple[str, ...]
    """Files that equal commands make with equal bytes."""
    replaces: bool = True
    """An output of an earlier run is there before, and the command has --force."""


def write_inputs(folder: Path) -> None:
    """Write the inputs of all verbs."""
    (folder / "corpus.txt").write_text(TEXT, encoding="utf-8")
    (folder / "recipe.toml").write_text(PRETRAIN, encoding="utf-8")
    toy_datasets.save_toy_bilm(folder / "bilm")
    toy_datasets.write_recipes(folder / "recipes")
    for part, size in (("train", 8), ("dev", 3)):
        toy_datasets.write_tagged(folder / f"{part}.conll", size)


def embed(name: str) -> Verb:
    """Return the verb that writes one format."""
    return Verb(("embed", "corpus.txt", "--model", "bilm", "-o", name, "--force"), (name,))


TASK = ("task", "train", "ner", "--train", "train.conll", "--dev", "dev.conll", "--recipe", "recipes/ner.toml")
VERBS = {
    "embed .safetensors": embed("out.safetensors"),
    "embed .hdf5": embed("out.hdf5"),
    "embed .npy": embed("out.npy"),
    "embed .jsonl": embed("out.jsonl"),
    "vocab": Verb(("vocab", "corpus.txt", "-o", "vocab.txt", "--workers", "1"), ("vocab.txt",), replaces=False),
    "convert": Verb(
        ("convert", "bilm", "-o", "copy", "--dtype", "float16", "--force"),
        ("copy/model.safetensors", "copy/SHA256SUMS"),
    ),
    "convert --to hdf5": Verb(
        ("convert", "bilm", "-o", "published", "--to", "hdf5", "--force"), ("published/options.json",)
    ),
    "pretrain": Verb(
        ("pretrain", "recipe.toml", "--run-dir", "run", "--workers", "1"),
        ("run/model/model.safetensors", "run/model/vocab.txt"),
        replaces=False,
    ),
    "task train": Verb((*TASK, "--elmo", "bilm", "--run-dir", "ner"), ("ner/model/model.safetensors",), replaces=False),
}


def content(folder: Path, verb: Verb) -> str | None:
    """Return a hash of the outputs, or None if there is none of them."""
    paths = [folder / name for name in verb.outputs]
    if not any(path.exists() for path in paths):
        return None
    return hashlib.sha256(b"".join(path.read_bytes() if path.exists() else b"missing" for path in paths)).hexdigest()


@dataclass(frozen=True)
class Ended:
    """A finished run of a verb."""

    code: int
    seen: tuple[int, ...]
    stderr: str


def run(folder: Path, verb: Verb, kind: int = 0, point: int = 0, *, lasting: bool = False) -> Ended:
    """Run a verb in a fork, in ``folder``, with one fault."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(_work(folder, verb, kind, point, there, lasting=lasting))
    os.close(there)
    until = time.monotonic() + SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(here)
            return Ended(-1, (), "no end after 120 s")
        time.sleep(0.002)
    with os.fdopen(here) as results:
        told = results.read().split()
    stderr = (folder.parent / "stderr").read_text(encoding="utf-8", errors="replace")
    if not told:
        return Ended(-2, (), f"the process died\n{stderr}")
    return Ended(int(told[0]), tuple(map(int, told[1:])), stderr)


def _work(folder: Path, verb: Verb, kind: int, point: int, results: int, *, lasting: bool) -> int:
    shim = ctypes.CDLL(os.environ[SHIM])
    os.environ.pop("LD_PRELOAD", None)
    os.chdir(folder)
    errors = os.open(folder.parent / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", buffering=0, closefd=False), write_through=True)
    shim.fault_watch(str(folder).encode())
    shim.fault_arm(kind, ctypes.c_long(point), int(lasting))
    code = cli.run(list(verb.args))
    counts = [shim.fault_seen(number + 1) for number in range(len(KINDS))]
    shim.fault_arm(0, ctypes.c_long(0), 0)
    os.write(results, " ".join(map(str, [code, *counts])).encode())
    return 0


def complaint(folder: Path, verb: Verb, ended: Ended, old: str | None, new: str) -> str | None:
    """Return what is wrong after a run with a fault, and after the same command without one."""
    if ended.code not in (0, 1):
        return f"exit code {ended.code}: {ended.stderr.strip()[-300:]}"
    if "Traceback" in ended.stderr or "--debug" in ended.stderr:
        return f"untyped error: {ended.stderr.strip()[-300:]}"
    if ended.code == 1 and not ended.stderr.strip():
        return "failed without a message"
    found = content(folder, verb)
    if found not in (old, new) or (ended.code == 0 and found != new):
        return "the output is neither the old one nor the whole new one"
    again = run(folder, verb)
    if again.code != 0:
        return f"the same command fails afterwards: {again.stderr.strip()[-300:]}"
    return None if content(folder, verb) == new else "the same command ends with other bytes"


def points(total: int, most: int) -> list[int]:
    """Return the calls that fail: the first ones, then every k-th."""
    step = max(1, -(-(total - most) // LATER))
    return [*range(1, min(total, most) + 1), *range(most + step, total + 1, step)]


def try_verb(name: str, kinds: list[str], most: int, report: Callable[[str], None]) -> dict[str, tuple[int, int]]:
    """Return, per kind, the number of points tried and of complaints."""
    verb = VERBS[name]
    results = {}
    with tempfile.TemporaryDirectory() as parent:
        ready, folder = Path(parent, "ready"), Path(parent, "work")
        ready.mkdir()
        write_inputs(ready)
        old = None
        if verb.replaces:
            for path in verb.outputs:
                (ready / path).parent.mkdir(exist_ok=True)
            ended = run(ready, verb)
            old = content(ready, verb)
        shutil.copytree(ready, folder)
        ended = run(folder, verb)
        new = content(folder, verb)
        if ended.code or new is None:
            raise SystemExit(f"{name} fails without a fault: {ended.stderr}")
        for kind in kinds:
            total = ended.seen[KINDS.index(kind)]
            tried = bad = 0
            for point in points(total, most):
                shutil.rmtree(folder)
                shutil.copytree(ready, folder)
                lasting = kind == "write" and point % 2 == 0
                found = run(folder, verb, KINDS.index(kind) + 1, point, lasting=lasting)
                wrong = complaint(folder, verb, found, old, new)
                tried += 1
                if wrong is not None:
                    bad += 1
                    report(f"  {name}: {kind} {point} of {total}: {wrong}")
            results[kind] = (tried, bad)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="verbs, separated by commas")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of calls, separated by commas")
    parser.add_argument("--most", type=int, default=200, help="points of each kind before every k-th")
    parser.add_argument("--save", type=Path, help="write the table to this file")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    rows = [f"| verb | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    num_bad = 0
    for name in [name for name in options.only.split(",") if name] or VERBS:
        results = try_verb(name, kinds, options.most, lambda line: print(line, flush=True))
        num_bad += sum(bad for _, bad in results.values())
        cells = [f"{tried}{f' ({bad} wrong)' if bad else ''}" for tried, bad in results.values()]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    if options.save is not None:
        options.save.write_text("\n".join(rows) + "\n", encoding="utf-8")
    sys.exit(1 if num_bad else 0)


if __name__ == "__main__":
    main()
