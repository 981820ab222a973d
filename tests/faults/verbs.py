"""Verbs that write, on tiny inputs, each run in a fork of a process that has imported everything."""

import ctypes
import hashlib
import io
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import toy_datasets
from preload import SHIM
from toy import TEXT, toy_model

from elmokit import cli
from elmokit.analysis import index_building  # noqa: F401
from elmokit.embed import elmo, files  # noqa: F401
from elmokit.encoders import training  # noqa: F401
from elmokit.model.language_model import LanguageModel
from elmokit.paper import page, workshop  # noqa: F401
from elmokit.pretrain import finetune, pretraining  # noqa: F401
from elmokit.score.saved_lm import save_language_model as save_lm
from elmokit.serve import loaded  # noqa: F401
from elmokit.tasks import loop, ner, saved  # noqa: F401
from elmokit.text.vocab import SPECIAL_WORDS, Vocab
from elmokit.weights import conversion, packages  # noqa: F401

KINDS = ("write", "fsync", "rename", "open", "mmap", "alloc")
ONCE, LASTING, DEADLY = range(3)
"""A call fails once; it and all later ones of its kind fail; the process is killed in it."""
ROOT = Path(__file__).resolve().parents[2]
SECONDS, KILLED = 120, -9

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


class UnfitVerbError(Exception):
    """A verb that fails without any fault."""


@dataclass(frozen=True)
class Verb:
    """A command that writes, and what it writes."""

    args: tuple[str, ...]
    outputs: tuple[str, ...]
    """Files that equal commands make with equal bytes."""
    replaces: bool = True
    """An output of an earlier run is there before, and the command replaces it."""
    after: tuple[str, ...] = ()
    """A command that writes an input of this one."""


def write_inputs(folder: Path, verb: Verb | None = None) -> None:
    """Write the inputs of all verbs, and those that a verb has of its own."""
    (folder / "corpus.txt").write_text(TEXT, encoding="utf-8")
    (folder / "recipe.toml").write_text(PRETRAIN, encoding="utf-8")
    toy_datasets.save_toy_bilm(folder / "bilm")
    toy_datasets.write_recipes(folder / "recipes")
    for part, size in (("train", 8), ("dev", 3)):
        toy_datasets.write_tagged(folder / f"{part}.conll", size)
    save_language_model(folder / "lm")
    (folder / "results").mkdir()
    shutil.copy(ROOT / "results" / "paper-runs.jsonl", folder / "results")
    if verb is not None and verb.after:
        ended = run(folder, Verb(verb.after, ()))
        if ended.code:
            raise UnfitVerbError(f"{' '.join(verb.after)} fails: {ended.stderr}")


def save_language_model(folder: Path) -> None:
    """Save a biLM with an output layer, to be fine-tuned."""
    torch.manual_seed(0)
    vocab = Vocab([*SPECIAL_WORDS, *sorted(set(TEXT.split()))])
    save_lm(LanguageModel.untrained(toy_model(), len(vocab)), vocab, folder, description="toy")


def embed(name: str) -> Verb:
    """Return the verb that writes one format."""
    return Verb(("embed", "corpus.txt", "--model", "bilm", "-o", name, "--force"), (name,))


TASK = (
    *("task", "train", "ner", "--train", "train.conll", "--dev", "dev.conll", "--recipe", "recipes/ner.toml"),
    *("--elmo", "bilm", "--run-dir", "ner"),
)
ENCODER = (
    *("encoder", "train", "context2vec", "train=corpus.txt", "dev=corpus.txt", "word_dim=3", "hidden_dim=4"),
    *("context_dim=5", "min_count=1", "training.batch_size=4", "training.epochs=2", "training.evaluate_every=3"),
)
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
    "finetune": Verb(
        ("finetune", "lm", "corpus.txt", "-o", "tuned", "--tokenized", "--rows", "2", "--workers", "1", "--force"),
        ("tuned/model.safetensors", "tuned/softmax.safetensors"),
    ),
    "index": Verb(
        ("index", "corpus.txt", "-o", "index", "--model", "bilm", "--force"),
        ("index/index.json", "index/vectors-1.f16", "index/token-words"),
    ),
    "report": Verb(("report", "corpus.txt", "--model", "bilm", "-o", "report.html"), ("report.html",)),
    "package": Verb(
        ("package", "bilm", "-o", "packed", "--name", "toy", "--force"),
        ("packed/pyproject.toml", "packed/elmokit_model_toy/model/model.safetensors"),
    ),
    "export": Verb(("export", "bilm", "-o", "bilm.onnx", "--force"), ("bilm.onnx",)),
    "encoder train": Verb((*ENCODER, "--run-dir", "encoder"), ("encoder/model/model.safetensors",), replaces=False),
    "reproduce": Verb(("reproduce", "all", "--page", "--results", "results"), ("results/paper.md",)),
    "task train": Verb(TASK, ("ner/model/model.safetensors",), replaces=False),
    "task slim": Verb(
        ("task", "slim", "ner/model", "-o", "slim", "--bilm", "bilm"),
        ("slim/config.json", "slim/model.safetensors", "slim/SHA256SUMS"),
        after=TASK,
    ),
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


def run(
    folder: Path, verb: Verb, kind: int = 0, point: int = 0, *, mode: int = ONCE, seconds: float | None = None
) -> Ended:
    """Run a verb in a fork, in ``folder``, with one fault; kill it after ``seconds``, if given."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(_work(folder, verb, kind, point, there, mode))
    os.close(there)
    until = time.monotonic() + (SECONDS if seconds is None else seconds)
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(here)
            return Ended(KILLED if seconds is not None else -1, (), "no end in time")
        time.sleep(0.002)
    with os.fdopen(here) as results:
        told = results.read().split()
    stderr = (folder.parent / "stderr").read_text(encoding="utf-8", errors="replace")
    if not told:
        return Ended(-2, (), f"the process died\n{stderr}")
    return Ended(int(told[0]), tuple(map(int, told[1:])), stderr)


def _work(folder: Path, verb: Verb, kind: int, point: int, results: int, mode: int) -> int:
    shim = ctypes.CDLL(os.environ[SHIM])
    os.environ.pop("LD_PRELOAD", None)
    os.chdir(folder)
    errors = os.open(folder.parent / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", buffering=0, closefd=False), write_through=True)
    shim.fault_watch(str(folder).encode())
    shim.fault_arm(kind, ctypes.c_long(point), mode)
    code = cli.run(list(verb.args))
    counts = [shim.fault_seen(number + 1) for number in range(len(KINDS))]
    shim.fault_arm(0, ctypes.c_long(0), 0)
    os.write(results, " ".join(map(str, [code, *counts])).encode())
    return 0
