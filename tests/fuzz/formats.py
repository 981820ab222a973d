"""Formats that elmokit reads: how to make a good file of each, and how to read it to its end."""

import hashlib
import json
import lzma
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import more_formats as more
import numpy as np
import toy_datasets
from published import make_published
from toy import TEXT

from elmokit.config import read_recipe
from elmokit.embed.embedder import Embedder
from elmokit.encoders.static_vectors import read_static_vectors
from elmokit.pretrain.recipe import Recipe
from elmokit.readers.blimp import read_blimp
from elmokit.readers.conll2003 import read_conll2003
from elmokit.readers.conll2012 import read_conll2012, read_conll2012_archive
from elmokit.readers.conllu import read_conllu
from elmokit.readers.labeled import read_labeled_texts
from elmokit.readers.lexsub import read_lexsub
from elmokit.readers.plain_text import read_texts
from elmokit.readers.ptb import read_ptb
from elmokit.readers.snli import read_snli
from elmokit.readers.squad import read_squad
from elmokit.readers.sst import read_sst
from elmokit.readers.sts import read_sts
from elmokit.readers.tagged import read_tagged
from elmokit.readers.wsd import read_wsd
from elmokit.runs.checkpoint import load_checkpoint
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.saved import load_task
from elmokit.text.corpus import META_FILE
from elmokit.text.lines import read_lines
from elmokit.text.tokens import tokenize
from elmokit.text.vocab import read_vocab
from elmokit.weights.source import load_saved, load_softmax
from elmokit.weights.sums import SUMS, write_sums

OLD_FILES = Path(__file__).parents[1] / "assets" / "956d343" / "files.tar.xz"
STEP = "checkpoints/step-000000015"


@dataclass(frozen=True)
class Format:
    """One format: its files, and what reads them."""

    write: Callable[[Path], None]
    """Writes good files into an empty folder."""
    read: Callable[[Path], object]
    """Reads the folder to its end; equal files give equal values."""
    has_sums: bool = False
    """Damage cannot go unnoticed, because the format has checksums."""
    after: Callable[[Path], None] | None = None
    """Runs after a file was damaged: an attacker who writes the checksums anew."""
    spared: tuple[str, ...] = ("README.md",)
    """Files that are never damaged: nothing reads them."""


def digest(value: object) -> str:
    """Return a hash of arrays, tensors and plain values."""
    found = hashlib.sha256()
    _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: object) -> None:
    if hasattr(value, "detach"):
        value = value.detach().float().numpy()
    if isinstance(value, np.ndarray):
        found.update(repr((value.shape, value.dtype)).encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        for key, item in value.items():
            found.update(repr(key).encode())
            _feed(found, item)
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        for item in value:
            _feed(found, item)
    else:
        found.update(repr(value).encode("utf-8", "surrogatepass"))


def _old(*names: str) -> Callable[[Path], None]:
    """Return a writer of files of the archive that the tests of old formats use."""

    def write(folder: Path) -> None:
        with tarfile.open(OLD_FILES) as archive:
            for member in archive:
                path = member.name.removeprefix("./")
                name = next((name for name in names if path.startswith(f"{name}/") and member.isfile()), None)
                if name is not None:
                    target = folder / path.removeprefix(f"{name}/")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.extractfile(member) as file, target.open("wb") as out:
                        shutil.copyfileobj(file, out)

    return write


def _in_folder(write: Callable[[Path, int], None], name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: write(folder / name, size)


def _listed(read: Callable[[Path], Any], name: str) -> Callable[[Path], object]:
    return lambda folder: list(read(folder / name))


def _text(name: str, content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(content, encoding="utf-8")

    return write


def _texts(contents: dict[str, str]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name, content in contents.items():
            (folder / name).write_text(content, encoding="utf-8")

    return write


def _packed(name: str, content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(lzma.compress(content.encode(), preset=0))

    return write


def _write_vectors(suffix: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        toy_datasets.write_vectors(folder / "v.txt")
        if suffix == ".npz":
            rows = [line.split() for line in (folder / "v.txt").read_text().splitlines()]
            words, vectors = np.array([row[0] for row in rows]), np.array([row[1:] for row in rows], dtype=np.float32)
            np.savez(folder / "v.npz", words=words, vectors=vectors)
            (folder / "v.txt").unlink()
        elif suffix == ".zip":
            shutil.make_archive(str(folder / "v"), "zip", folder, "v.txt")
            (folder / "v.txt").unlink()

    return write


def _read_vectors(suffix: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        vectors = read_static_vectors(folder / f"v{suffix}")
        return list(vectors.words), vectors.matrix()

    return read


def _write_wsd(folder: Path) -> None:
    words = '<wf lemma="a" pos="DET">A</wf><instance id="d.s.t0" lemma="day" pos="NOUN">day</instance>'
    xml = (
        f'<?xml version="1.0"?>\n<corpus lang="en"><text id="d">\n<sentence id="d.s">{words}</sentence></text></corpus>'
    )
    (folder / "a.data.xml").write_text(xml, encoding="utf-8")
    (folder / "a.gold.key.txt").write_text("d.s.t0 day%1:28:00::\n", encoding="utf-8")


def _read_model(folder: Path) -> object:
    saved = load_saved(folder)
    layers = Embedder.from_saved(saved).embed_layers([["The", "bank"]])
    return dict(saved.tensors), layers


def _read_softmax(folder: Path) -> object:
    softmax = load_softmax(folder)
    return softmax.weight_VP, softmax.bias_V, softmax.vocab.words


def _read_task(folder: Path) -> object:
    return [str(found) for found in load_task(folder).predict(["Ada saw Oslo ."])]


def _write_sums(folder: Path) -> None:
    for sums in sorted(folder.rglob(SUMS), key=lambda path: -len(path.parts)):
        names = [path.name for path in sums.parent.iterdir() if path.is_file() and path.name not in (SUMS, "README.md")]
        write_sums(sums.parent, tuple(sorted(names)))


CONLLU = "# text = A day .\n" + "".join(
    f"{number}\t{word}\t{word}\tNOUN\tNN\t_\t{number - 1}\tdep\t_\t_\n"
    for number, word in enumerate("A day .".split(), 1)
)
STS = "main-captions\tMSRvid\t2012test\t0001\t5.000\tA plane.\tA jet.\n" * 3
BLIMP = json.dumps({"sentence_good": "A b.", "sentence_bad": "A a.", "field": "x", "linguistics_term": "y", "UID": "z"})
RECIPE = (
    '[data]\ntrain = "a.txt"\n[model.lstm]\ncell_dim = 12\nproj_dim = 6\n[training]\nsteps = 10\nlearning_rate = 0.1\n'
)
TASK_RECIPE = toy_datasets.RECIPE.format(task="ner", sizes=toy_datasets.SIZES["ner"], batch_size=4)
LEXSUB = {
    "sentences": "bright.a\t1\t2\ta very bright day .\nbright.a\t2\t0\tbright light\n",
    "gold": "bright.a 1 :: sunny 3;clear 1;\nbright.a 2 :: clear 2;\n",
    "candidates": "bright.a::sunny;clear;clever\n",
}
TAGGED = "Ada\tNNP\nsaw\tVBD\nOslo\tNNP\n.\t.\n\nWe PRP\nmet VBD\n. .\n"
OVERRIDES = "training.steps=10\nmodel.lstm.cell_dim=256\ntraining.learning_rate=0.1\ndata.tokenized=true"
RECIPES = Path(__file__).parents[2] / "recipes"
ARRAYS = (*(f"{name}.bin" for name in "tokens lengths offsets word_offsets counts char_ids".split()), "words.txt")
VOCAB = "<S>\n</S>\n<UNK>\n" + "\n".join(sorted(set(TEXT.split()))) + "\n"


def _published(folder: Path) -> None:
    make_published(folder, dim=8, projection_dim=4, n_highway=1)


FORMATS = {
    "published model": Format(_published, _read_model),
    "model folder": Format(_old("bilm"), _read_model, has_sums=True),
    "model folder, new sums": Format(_old("bilm"), _read_model, after=_write_sums, spared=("README.md", SUMS)),
    "softmax": Format(_old("bilm"), _read_softmax, has_sums=True),
    "task model": Format(_old("ner-model"), _read_task, has_sums=True),
    "task model, new sums": Format(_old("ner-model"), _read_task, after=_write_sums, spared=("README.md", SUMS)),
    "checkpoint": Format(_old(f"pretrain-run/{STEP}"), lambda folder: vars(load_checkpoint(folder)), has_sums=True),
    "checkpoint, resumed, new sums": Format(
        more.write_checkpoint, more.read_checkpoint, after=_write_sums, spared=("README.md", SUMS)
    ),
    "prepared corpus": Format(more.write_corpus, more.read_corpus, has_sums=True, spared=(META_FILE,)),
    "prepared corpus, new sums": Format(
        more.write_corpus, more.read_corpus, after=more.forge_corpus_sums, spared=(META_FILE,)
    ),
    "prepared corpus, its description": Format(more.write_corpus, more.read_corpus, spared=ARRAYS),
    "prepared corpus without sums": Format(_old("pretrain-run/text"), more.read_corpus),
    "layer store": Format(more.write_layers, more.read_layers, has_sums=True),
    "corpus index": Format(more.write_index, more.read_index),
    "journal of an output": Format(more.write_journal, more.read_journal),
    "TensorFlow checkpoint": Format(more.copy_tf_checkpoint, more.read_saved()),
    "ELMoForManyLangs": Format(more.write_many_languages, more.read_saved("model")),
    "model .zip": Format(more.write_archive(".zip"), more.read_saved("a.zip")),
    "model .tar": Format(more.write_archive(".tar"), more.read_saved("a.tar")),
    "model .tar.xz": Format(more.write_archive(".tar.xz"), more.read_saved("a.tar.xz")),
    "encoder": Format(more.write_encoder, more.read_encoder, has_sums=True),
    "vectors folder": Format(more.write_static, more.read_static, has_sums=True),
    "pooling .npz": Format(more.write_pooling, more.read_pooling),
    "HTTP body": Format(more.write_bodies, more.post_bodies),
    "CoNLL-2003": Format(_in_folder(toy_datasets.write_tagged, "a.conll", 4), _listed(read_conll2003, "a.conll")),
    "CoNLL-2003.xz": Format(
        _in_folder(toy_datasets.write_tagged, "a.conll.xz", 4), _listed(read_conll2003, "a.conll.xz")
    ),
    "CoNLL-2012": Format(_in_folder(toy_datasets.write_roles, "a.conll", 4), _listed(read_conll2012, "a.conll")),
    "coreference archive": Format(
        _in_folder(toy_datasets.write_documents, "a.tar.xz", 3),
        lambda folder: list(read_conll2012_archive(folder / "a.tar.xz", roles=False)),
    ),
    "CoNLL-U": Format(_text("a.conllu", f"{CONLLU}\n{CONLLU}\n"), _listed(read_conllu, "a.conllu")),
    "SNLI": Format(_in_folder(toy_datasets.write_pairs, "a.jsonl", 4), _listed(read_snli, "a.jsonl")),
    "SQuAD": Format(_in_folder(toy_datasets.write_questions, "a.json", 2), _listed(read_squad, "a.json")),
    "SST": Format(_in_folder(toy_datasets.write_trees, "a.txt", 4), _listed(read_sst, "a.txt")),
    "Penn brackets": Format(_in_folder(toy_datasets.write_brackets, "a.ptb", 4), _listed(read_ptb, "a.ptb")),
    "WSD": Format(_write_wsd, lambda folder: list(read_wsd(folder / "a.data.xml", folder / "a.gold.key.txt"))),
    "STS": Format(_text("sts-dev.csv", STS), _listed(read_sts, "sts-dev.csv")),
    "BLiMP": Format(_text("a.jsonl", f"{BLIMP}\n{BLIMP}\n"), _listed(read_blimp, "a.jsonl")),
    "text of any file": Format(_text("a.txt", TEXT), _listed(read_texts, "a.txt")),
    "vocabulary": Format(_text("vocab.txt", VOCAB), lambda folder: list(read_vocab(folder / "vocab.txt").words)),
    "vectors .txt": Format(_write_vectors(".txt"), _read_vectors(".txt")),
    "vectors .zip": Format(_write_vectors(".zip"), _read_vectors(".zip")),
    "vectors .npz": Format(_write_vectors(".npz"), _read_vectors(".npz")),
    "recipe": Format(_text("a.toml", RECIPE), lambda folder: read_recipe(Recipe, folder / "a.toml", ())),
    "task recipe": Format(_text("a.toml", TASK_RECIPE), lambda folder: read_recipe(TaskRecipe, folder / "a.toml", ())),
    "changes of a recipe": Format(
        _text("a.txt", OVERRIDES),
        lambda folder: read_recipe(
            Recipe, RECIPES / "small.toml", (folder / "a.txt").read_text("utf-8", "replace").split("\n")
        ),
    ),
    "labeled lines": Format(_in_folder(toy_datasets.write_labeled, "a.tsv", 4), _listed(read_labeled_texts, "a.tsv")),
    "tagged tokens": Format(_text("a.txt", TAGGED), _listed(read_tagged, "a.txt")),
    "lexical substitutes": Format(_texts(LEXSUB), lambda folder: read_lexsub(*(folder / name for name in LEXSUB))),
    "text .xz": Format(
        _packed("a.txt.xz", TEXT), lambda folder: [line.text for line in read_lines([folder / "a.txt.xz"])]
    ),
    "tokenizer": Format(
        _text("a.txt", TEXT), lambda folder: [tokenize(line.text) for line in read_lines([folder / "a.txt"])]
    ),
}
