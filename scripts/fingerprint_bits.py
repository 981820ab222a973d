"""Hash what the command line computes, to show that two commits compute the same bits.

    python scripts/fingerprint_bits.py --data ../shared/data --save before.json          # in the older tree
    python scripts/fingerprint_bits.py --data ../shared/data --against before.json       # in the newer one

Hashed are the vectors of 2,000 sentences in both precisions, the weights after 200 steps of pretraining, and the
weights after a short run of each of the six tasks. `--elmokit` names the command of another installation. One thread,
so that the cores of the machine decide nothing.
"""

import argparse
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

NUM_SENTENCES = 2000
NUM_STEPS = 200
SMALL_BILM = [
    "model.lstm.cell_dim=256",
    "model.lstm.proj_dim=64",
    "vocab.max_size=20000",
    "training.num_rows=32",
    f"training.steps={NUM_STEPS}",
]


def main() -> None:
    options = parse_options()
    command = options.elmokit.split()
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, digest in fingerprints(options.data.resolve(), Path(folder), command):
            print(f"{digest[:16]}  {name}", flush=True)
            found[name] = digest
    if options.save is not None:
        options.save.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    if options.against is not None:
        expected = json.loads(options.against.read_text("utf-8"))
        different = sorted(name for name in expected if found.get(name) != expected[name])
        sys.exit(f"different bits: {', '.join(different)}" if different else 0)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of published data sets")
    parser.add_argument("--elmokit", default=f"{sys.executable} -m elmokit", help="the command of the installation")
    parser.add_argument("--save", type=Path, help="write the hashes to this file")
    parser.add_argument("--against", type=Path, help="fail unless the hashes are those of this file")
    return parser.parse_args()


def fingerprints(data: Path, folder: Path, command: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (what, hash of its arrays) for everything that is compared."""
    sentences = folder / "sentences.txt"
    sentences.write_text("".join(islice(lines(data / "lm/wiki.test.txt.xz"), NUM_SENTENCES)), "utf-8")
    for precision in ("fp32", "int8"):
        vectors = folder / f"{precision}.safetensors"
        run(command, "embed", sentences, "-o", vectors, "--precision", precision, "--dtype", "float32")
        yield f"vectors, {precision}", hash_arrays(vectors)
    text = folder / "train.txt"
    text.write_text("".join(islice(lines(data / "lm/wiki.train.0.txt.xz"), 20_000)), "utf-8")
    run_dir = folder / "pretrain"
    run(command, "pretrain", "small", f"data.train={text}", *SMALL_BILM, "--run-dir", run_dir)
    for name in ("model", "softmax"):
        yield f"pretraining, {name}", hash_arrays(run_dir / "model" / f"{name}.safetensors")
    vectors = data / "glove/glove.6B.100d.top100k.f16.npz"
    for task, train, dev in task_files(data, folder):
        run_dir = folder / task
        options = ["--train", train, "--dev", dev, "--vectors", vectors, "--run-dir", run_dir]
        run(command, "task", "train", task, *options, "training.epochs=2")
        yield f"task {task}", hash_arrays(run_dir / "model" / "model.safetensors")


def task_files(data: Path, folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield (task, training file, development file), small parts of the real files."""
    yield "ner", *write_pair(folder, "ner", blocks(data / "ner/wnut17.train.conll.xz"), 160, 40)
    yield "sst", *write_pair(folder, "sst", lines(data / "sst/train.txt.xz"), 160, 40)
    yield "snli", *write_pair(folder, "snli", lines(data / "snli/snli_1.0_dev.jsonl.xz"), 320, 80)
    yield "srl", *write_pair(folder, "srl", blocks(data / "srl/ewt-propbank-dev.conll.xz"), 60, 20)
    squad = json.loads(lzma.decompress((data / "squad/test-small.json.xz").read_bytes()))
    for part, article in (("train", squad["data"][0]), ("dev", squad["data"][1])):
        article["paragraphs"] = article["paragraphs"][:4]
        (folder / f"squad.{part}").write_text(json.dumps({"version": "1.1", "data": [article]}), "utf-8")
    yield "squad", folder / "squad.train", folder / "squad.dev"
    with tarfile.open(data / "coref/litbank-conll.tar.xz") as archive:
        members = sorted((m for m in archive.getmembers() if m.isfile()), key=lambda member: member.name)[:3]
        texts = [io.TextIOWrapper(archive.extractfile(member), "utf-8").read() for member in members]
    yield "coref", *write_pair(folder, "coref", iter(texts), 2, 1)


def write_pair(folder: Path, task: str, pieces: Iterator[str], num_train: int, num_dev: int) -> tuple[Path, Path]:
    paths = folder / f"{task}.train", folder / f"{task}.dev"
    for path, count in zip(paths, (num_train, num_dev), strict=True):
        path.write_text("".join(islice(pieces, count)), "utf-8")
    return paths


def lines(path: Path) -> Iterator[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from file


def blocks(path: Path) -> Iterator[str]:
    """Yield the pieces of a file that end with an empty line; documents of CoNLL-2012 stay whole."""
    block = ""
    is_open = False
    for line in lines(path):
        block += line
        is_open = line.startswith("#begin") or (is_open and not line.startswith("#end"))
        if not is_open and (line.startswith("#end") or not line.strip()):
            yield block
            block = ""


def run(command: list[str], *arguments: object) -> None:
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(f"elmokit {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr}")


def hash_arrays(path: Path) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(load_file(path).items()):
        if name in ("tokens", "token_offsets"):  # text beside the vectors, in files of newer versions
            continue
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
