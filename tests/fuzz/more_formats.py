"""Formats of elmokit's own runs, stores and answers: checkpoints, cached layers, indexes, journals, HTTP bodies."""

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import toy_datasets
from published import make_published
from toy import TEXT, toy_model, toy_recipe, toy_state

from elmokit.analysis.index import CorpusIndex
from elmokit.analysis.index_building import build_index
from elmokit.embed.embedder import Embedder
from elmokit.embed.layer_store import LayerStore
from elmokit.embed.partial import open_partial
from elmokit.embed.sentence_pooling import SentencePooling
from elmokit.encoders.layer_sources import StaticLayers
from elmokit.encoders.saved import load_encoder, save_encoder
from elmokit.encoders.static_vectors import StaticVectors, read_static_vectors
from elmokit.errors import InputError
from elmokit.model.bilm import BiLM
from elmokit.pretrain.state import PretrainState
from elmokit.runs.checkpoint import facts_explained, load_newest, save_checkpoint
from elmokit.text.corpus import META_FILE, Corpus
from elmokit.text.corpus_check import hash_file
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab
from elmokit.weights.source import load_saved

SENTENCES = [line.split() for line in TEXT.splitlines()]
TF_CHECKPOINT = Path(__file__).parents[1] / "assets" / "tf_checkpoint"
JOB = {"inputs": ["a.txt"]}


@cache
def embedder() -> Embedder:
    torch.manual_seed(0)
    return Embedder(BiLM(toy_model()))


# Prepared texts


def write_corpus(folder: Path) -> None:
    (folder / "a.txt").write_text(TEXT, encoding="utf-8")
    prepare_corpus([folder / "a.txt"], folder / "corpus", rules=TextRules(tokenized=True), max_chars=12)
    (folder / "a.txt").unlink()


def read_corpus(folder: Path) -> object:
    corpus = Corpus.open(folder / "corpus" if (folder / "corpus").is_dir() else folder)
    sentences = [corpus.sentence(number) for number in range(corpus.num_sentences)]
    corpus.target_ids(Vocab.from_counts(corpus.word_counts()))
    return sentences, corpus.word_counts(), np.array(corpus.char_table), np.array(corpus.lengths)


def forge_corpus_sums(folder: Path) -> None:
    """Write the hashes of a damaged corpus anew, where its description can be read."""
    path = folder / "corpus" / META_FILE
    meta = json.loads(path.read_bytes())
    meta["sums"] = {name: hash_file(path.parent / name) for name in meta["sums"]}
    path.write_text(json.dumps(meta), encoding="utf-8")


# Checkpoints


@cache
def pretraining() -> PretrainState:
    return toy_state(Path(tempfile.mkdtemp()), toy_recipe())


def write_checkpoint(folder: Path) -> None:
    checkpoint = pretraining().checkpoint()
    assert checkpoint is not None
    save_checkpoint(checkpoint, folder, keep=2)


def read_checkpoint(folder: Path) -> object:
    """Resume a pretraining run."""
    newest = load_newest(folder)
    assert newest is not None
    with facts_explained(folder):
        pretraining().restore(newest)
    again = pretraining().checkpoint()
    assert again is not None
    return again.step, again.tensors


# Cached layers, indexes, unfinished outputs


@cache
def good_layers() -> dict[int, Any]:
    return {}


def write_layers(folder: Path) -> None:
    LayerStore.open(folder, embedder()).add(SENTENCES)


def read_layers(folder: Path) -> object:
    """Read the layers that are there; what is missing would be computed again."""
    store = LayerStore.open(folder, embedder())
    found = {number: store.join([tokens]) for number, tokens in enumerate(SENTENCES) if tokens in store}
    if not good_layers():
        good_layers().update(found)
    return good_layers() | found


def write_index(folder: Path) -> None:
    (folder / "a.txt").write_text(TEXT, encoding="utf-8")
    build_index([folder / "a.txt"], folder / "index", embedder())
    (folder / "a.txt").unlink()


def read_index(folder: Path) -> object:
    index = CorpusIndex.open(folder / "index")
    found = [index.occurrences(word, most=3) for word in ("the", "boat", "fish") if word in index]
    vectors = [index.vectors(some, layer=layer) for some in found if some for layer in (0, 1, 2)]
    near = [str(index.neighbors(vectors_ND[0], k=2)) for vectors_ND in vectors]
    return [str(some) for some in found], vectors, near


def write_journal(folder: Path) -> None:
    done = {"lines": 3, "tokens": 9, "cut_words": 0}
    target = folder / "out.npy.partial"
    target.mkdir()
    (target / "vectors").write_bytes(bytes(100))
    (target / "job.json").write_text(json.dumps({"job": JOB, "done": done, "sizes": {"vectors": 80}}), "utf-8")


def read_journal(folder: Path) -> object:
    with open_partial(folder / "out.npy", JOB, reserved={"vectors": 0}, resume=True, replace=False) as partial:
        return partial.done


# Models of other systems, archives, encoders


def copy_tf_checkpoint(folder: Path) -> None:
    for path in TF_CHECKPOINT.iterdir():
        if path.suffix != ".npz":
            shutil.copy(path, folder / path.name)


def write_many_languages(folder: Path) -> None:
    from many_languages import make_many_languages

    make_many_languages(folder / "model")


def read_saved(inside: str = "") -> Callable[[Path], object]:
    return lambda folder: dict(load_saved(folder / inside if inside else folder).tensors)


def write_archive(suffix: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        make_published(folder / "model", dim=8, projection_dim=4, n_highway=1)
        kind = {".zip": "zip", ".tar": "tar", ".tar.xz": "xztar"}[suffix]
        shutil.make_archive(str(folder / "a"), kind, folder / "model")
        shutil.rmtree(folder / "model")

    return write


def write_encoder(folder: Path) -> None:
    toy_datasets.write_vectors(folder / "v.txt")
    save_encoder(StaticLayers(read_static_vectors(folder / "v.txt"), lower="never"), folder / "model", description="x")
    (folder / "v.txt").unlink()


def read_encoder(folder: Path) -> object:
    found = load_encoder(folder / "model")
    assert isinstance(found, StaticLayers)
    return found.vectors.words, found.vectors.matrix()


def write_static(folder: Path) -> None:
    toy_datasets.write_vectors(folder / "v.txt")
    read_static_vectors(folder / "v.txt").save(folder / "v")
    (folder / "v.txt").unlink()


def read_static(folder: Path) -> object:
    found = StaticVectors.load(folder / "v")
    return found.words, found.matrix()


def write_pooling(folder: Path) -> None:
    chance = np.random.default_rng(0)
    words = dict.fromkeys(TEXT.split(), 0.01)
    SentencePooling(0, words, chance.normal(size=12), chance.normal(size=(2, 12))).save(folder / "a.npz")


def read_pooling(folder: Path) -> object:
    found = SentencePooling.load(folder / "a.npz")
    return found.layer, dict(found.probabilities), found.mean_D, found.components_KD


# Requests


BODIES = {
    "embed": {"inputs": ["The bank.", "A river"], "normalize": True, "layer": 1, "pooling": "mean", "dimensions": 4},
    "embed_all": {"inputs": ["The bank."], "layers": [0, 2]},
    "layers": {"inputs": [["The", "bank"]], "encoding_format": "base64", "dtype": "float16"},
    "similarity": {"inputs": {"source_sentence": "a boat", "sentences": ["the boat", "a fish"]}},
    "tokenize": {"inputs": "The bank — “closed”…"},
    "score": {"inputs": ["the old man"]},
    "substitutes": {"inputs": "the old man", "top_k": 2},
    "senses": {"word": "boat", "sentences": ["the boat", "a boat and a fish", "old boat"], "most": 3},
    "neighbors": {"word": "boat", "sentences": ["the boat", "a boat", "old boat"], "k": 2, "weights": [0.5, 0.5, 1]},
    "v1/embeddings": {"input": ["the boat"], "model": "toy", "encoding_format": "float"},
}


def write_bodies(folder: Path) -> None:
    for route, body in BODIES.items():
        (folder / f"{route.replace('/', '+')}.json").write_text(json.dumps(body), encoding="utf-8")


@cache
def server() -> Any:
    from live_server import serving, toy_models

    running = serving(toy_models())
    return running, running.__enter__()


def post_bodies(folder: Path) -> object:
    """Post every body; a rejected one is a typed error, and a failure of the server is none."""
    _, client = server()
    rejected = []
    for path in sorted(folder.glob("*.json")):
        route = f"/{path.stem.replace('+', '/')}"
        answer = client.request("POST", route, path.read_bytes(), content_type="application/json")
        if answer.status >= 500:
            raise RuntimeError(f"{route}: {answer.status} {answer.content[:300]!r}")
        if answer.status >= 400:
            rejected.append(f"{route}: {answer.status} {answer.content[:200]!r}")
    if client.get("/health").status != 200:
        raise RuntimeError("the server does not answer any more")
    if rejected:
        raise InputError("; ".join(rejected))
    return len(BODIES)
