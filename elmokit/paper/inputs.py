"""Inputs of the runs on this machine, and the identity of a run: a hash of settings and inputs without any path."""

import gzip
import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from elmokit.analysis.datasets import find_dataset, find_files
from elmokit.embed.pickling import hash_tensors
from elmokit.errors import InputError
from elmokit.paper.arms import ARMS
from elmokit.paper.evaluations import FILES
from elmokit.paper.plan import BUDGETED, COVERAGE, ENSEMBLE, PERPLEXITY, TASK, PaperRun, members, task_of
from elmokit.paper.settings import Recipes
from elmokit.paper.sources import open_source
from elmokit.weights.source import has_softmax, load_saved

COMPARED = ("cove", "context2vec", *BUDGETED)
"""Encoders that a user names."""
ID_LENGTH = 16
PIECE = 2**20  # bytes


@dataclass(eq=False)
class Inputs:
    """Paths of the inputs, and hashes of their content.

    Args:
        data_dir: Folder of the datasets.
        vectors: File of static vectors.
        sources: Names of the encoders (`elmokit.embed.sources`): ``bilm``, and those to compare with, if they are at
            hand.
        recipes: Recipes of the tasks.
    """

    data_dir: Path
    vectors: Path
    sources: Mapping[str, str]
    recipes: Recipes
    _hashes: dict[str, str] = field(default_factory=dict)

    def files(self, row: str) -> list[Path]:
        """Return the files of a row."""
        if task_of(row) is None:
            return find_files(self.data_dir, FILES[row], row)
        return find_dataset(row).find_files(self.data_dir)

    def missing_source(self, run: PaperRun) -> str | None:
        """Return the encoder that a run needs and that is not at hand; None if there is none."""
        source = source_of(run)
        return source if source in COMPARED and source not in self.sources else None

    def lacks_output_layer(self, run: PaperRun) -> bool:
        """Return True for the perplexity of a published biLM: it predicts no words."""
        return run.kind == PERPLEXITY and run.arm == "bilm" and not has_softmax(self.sources["bilm"])

    def inputs_of(self, run: PaperRun) -> dict[str, str]:
        """Return the hashes of a run's inputs, by their names."""
        if run.kind == ENSEMBLE:
            return {"members": " ".join(self.identity(member) for member in members(run))}
        found = {"data": self._hash(f"data {run.row}", lambda: _hash_files(self.files(run.row)))}
        source = source_of(run)
        if source == "glove" or (run.kind == TASK and self.recipes.recipe(run).words.file is not None):
            found["vectors"] = self._hash("vectors", lambda: _hash_files([self.vectors]))
        if source in ("bilm", "tuned", "untrained"):
            found["shape"] = self._hash("shape", lambda: _hash_shape(self.sources["bilm"]))
        if source not in ("none", "glove", "untrained"):  # the weights of an untrained biLM are random
            kind = "bilm" if source == "tuned" else source
            found[kind] = self._hash(kind, lambda: self._fingerprint(kind))
        return found

    def identity(self, run: PaperRun) -> str:
        """Return the identity of a run. Equal runs have equal identities on every machine."""
        return identity_of(self.recipes.settings(run), self.inputs_of(run))

    def _fingerprint(self, kind: str) -> str:
        """Return a hash of an encoder.

        Of a biLM it is that of the weights alone: a start state that is computed when a model is loaded may differ in
        its last bits between machines, and with the number of threads.
        """
        if kind == "bilm":
            saved = load_saved(self.sources[kind])
            return hash_tensors(saved.config.model_dump_json(), saved.tensors)[:ID_LENGTH]
        return open_source(kind, self.sources, str(self.vectors)).fingerprint()[:ID_LENGTH]

    def _hash(self, name: str, compute: Any) -> str:
        if name not in self._hashes:
            self._hashes[name] = compute()
        return self._hashes[name]


def identity_of(settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Return the hash of settings and inputs."""
    text = json.dumps({"settings": settings, "inputs": inputs}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def source_of(run: PaperRun) -> str:
    """Return the source of a run's layers."""
    if run.kind in (TASK, ENSEMBLE):
        return ARMS[run.arm].source
    return "glove" if run.kind == COVERAGE else run.arm


def _hash_files(paths: Sequence[Path]) -> str:
    """Return the hash of the unpacked content of files."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            with _open(path) as file:
                while piece := file.read(PIECE):
                    digest.update(piece)
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read: {error.strerror or error}; check the path, seen from {Path.cwd()}"
            ) from error
    return digest.hexdigest()[:ID_LENGTH]


def _open(path: Path) -> BinaryIO:
    openers: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}
    opened: BinaryIO = openers.get(path.suffix, open)(path, "rb")
    return opened


def _hash_shape(source: str) -> str:
    return hashlib.sha256(load_saved(source).config.model_dump_json().encode()).hexdigest()[:ID_LENGTH]
