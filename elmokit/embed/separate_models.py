"""Two language models that share nothing, read as one source of layers: TagLM (Peters et al. 2017).

The forward half of every layer comes from one model, the backward half from the other. Each has its own token layer
and softmax, where the directions of a biLM share both. `elmokit pretrain` trains either with ``training.direction``.

A saved pair is a folder:

    config.json           format, version, and the hashes of the subfolders
    forward/, backward/   the two models
    README.md             model card
    SHA256SUMS            hash of config.json

Shapes: L layers, T tokens, P width of a direction, D = 2 P width of a layer.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import numpy as np

from elmokit.atomic import atomic_folder
from elmokit.config import FrozenConfig, parse_config
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Vectors
from elmokit.errors import InputError, WeightsError
from elmokit.text.grouping import windows
from elmokit.weights.folder import is_replaceable
from elmokit.weights.options import read_json_object
from elmokit.weights.sums import SUMS, check_sums, sha256, write_sums

FORMAT: Final = "elmokit.taglm"
CONFIG, CARD, FORWARD, BACKWARD = "config.json", "README.md", "forward", "backward"
KNOWN_FILES = {CONFIG, CARD, SUMS, FORWARD, BACKWARD}
WINDOW_SENTENCES = 2048


class PairConfig(FrozenConfig):
    """Content of config.json."""

    format: Literal["elmokit.taglm"] = FORMAT
    version: Literal[1] = 1
    forward: str
    """Hash of the SHA256SUMS in ``forward``."""
    backward: str


class SeparateModels:
    """Layers of a forward and a backward language model side by side.

    Args:
        forward: Embedder of the model whose forward half is read.
        backward: Embedder of the model whose backward half is read; of the same sizes.
    """

    def __init__(self, forward: Embedder, backward: Embedder) -> None:
        sizes = [(one.num_layers, one.width) for one in (forward, backward)]
        if sizes[0] != sizes[1]:
            raise InputError(
                f"the forward model has {sizes[0][0]} layers of width {sizes[0][1]}, the backward one {sizes[1][0]} of "
                f"{sizes[1][1]}; give two models of the same sizes"
            )
        self.forward, self.backward = forward, backward
        self.num_layers, self.width = sizes[0]

    @property
    def state(self) -> str:
        """Policy for the state in which a sentence starts."""
        return self.forward.state

    def iter_layers(self, sentences: Iterable[Sequence[str]], *, batch_size: int = 64) -> Iterator[Vectors]:
        """Yield the layers of each sentence in order, (L, T, D)."""
        for window in windows(sentences, WINDOW_SENTENCES):
            found = dict(self.iter_unordered(window, batch_size=batch_size))
            yield from (found[index] for index in range(len(window)))

    def iter_unordered(
        self, sentences: Sequence[Sequence[str]], *, batch_size: int = 64
    ) -> Iterator[tuple[int, Vectors]]:
        """Yield (index, layers) of sentences, batch by batch of similar length."""
        half = self.width // 2
        both = (model.iter_unordered(sentences, batch_size=batch_size) for model in (self.forward, self.backward))
        for (index, forward_LTD), (other, backward_LTD) in zip(*both, strict=True):
            assert index == other  # both sort by length alone
            yield index, np.concatenate([forward_LTD[:, :, :half], backward_LTD[:, :, half:]], axis=2)

    def fingerprint(self) -> str:
        """Return a hash of everything that vectors depend on besides their sentence."""
        parts = f"{FORMAT} {self.forward.fingerprint()} {self.backward.fingerprint()}"
        return hashlib.sha256(parts.encode()).hexdigest()

    def save(self, folder: str | Path, *, description: str) -> None:
        """Save both models as one folder; a pair that is there is replaced."""
        folder = Path(folder)
        with atomic_folder(folder, replace=is_replaceable(folder, form=FORMAT, known_files=KNOWN_FILES)) as new:
            for name, model in ((FORWARD, self.forward), (BACKWARD, self.backward)):
                model.save_pretrained(new / name, description=f"The {name} language model of a pair.")
            config = PairConfig(forward=sha256(new / FORWARD / SUMS), backward=sha256(new / BACKWARD / SUMS))
            (new / CONFIG).write_text(json.dumps(config.model_dump(mode="json"), indent=2) + "\n", "utf-8")
            (new / CARD).write_text(f"# {folder.resolve().name}\n\n{description}\n", "utf-8")
            write_sums(new, (CONFIG,))


def is_pair(folder: str | Path) -> bool:
    """Return whether a folder holds a saved pair."""
    path = Path(folder) / CONFIG
    return path.is_file() and read_json_object(path).get("format") == FORMAT


def load_pair(folder: str | Path) -> SeparateModels:
    """Load a pair that was saved, and verify its hashes."""
    folder = Path(folder)
    check_sums(folder, (CONFIG,))
    config = parse_config(PairConfig, read_json_object(folder / CONFIG), source=str(folder / CONFIG))
    for name, expected in ((FORWARD, config.forward), (BACKWARD, config.backward)):
        if not (folder / name / SUMS).is_file() or sha256(folder / name / SUMS) != expected:
            raise WeightsError(f"{folder / name}: is not what the pair was saved with; get the whole folder again")
    return SeparateModels(Embedder.from_pretrained(folder / FORWARD), Embedder.from_pretrained(folder / BACKWARD))
