"""SeqVec: ELMo for proteins, with the call of bio_embeddings' ``SeqVecEmbedder``. A token is one amino acid.

Shapes: L layers, R residues, D width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Vectors
from elmokit.embed.state import State
from elmokit.errors import InputError, WeightsError
from elmokit.text.grouping import group_by_size
from elmokit.weights.saved import Source

WEIGHTS_BYTES = 374_434_776  # of the published weights.hdf5
# Human ubiquitin. bio_embeddings warmed up on another protein; both lead to the settled state.
WARM_PROTEIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
# The published outputs were made in one batch of these.
REFERENCE_BATCH = ("PROTEIN", "SEQWENCE", "VLSXXXIEP", "")
RELATIVE, ABSOLUTE = 1e-3, 1e-5


class SeqVecEmbedder:
    """A protein's residues to the vectors of all layers.

    Every protein starts in the same state, so its vectors do not depend on the proteins before it: the state that the
    LSTMs reach after some rounds of one fixed protein, or zero without rounds.

    Args:
        warmup_rounds: Times that the fixed protein is run first.
        device: Device to run on; the CPU by default.
        weights_file: Path of the weights.
        options_file: Path of the options.
        model_directory: Folder or archive with both, instead of the two.
    """

    name = "seqvec"

    def __init__(
        self,
        warmup_rounds: int = 4,
        device: str | None = None,
        *,
        weights_file: str | Path | None = None,
        options_file: str | Path | None = None,
        model_directory: str | Path | None = None,
    ) -> None:
        if warmup_rounds < 0:
            raise InputError(f"warmup_rounds is {warmup_rounds}; expected 0 or more")
        source = _source(weights_file, options_file, model_directory)
        try:
            embedder = Embedder.from_pretrained(source, state="carry", device=device or "cpu")
        except WeightsError as error:
            raise WeightsError(f"{error}{_size_hint(source)}") from error
        for _ in range(warmup_rounds):
            embedder.embed_layers([list(WARM_PROTEIN)])
        state: State = "warm" if warmup_rounds else "reset"
        self._embedder = Embedder(embedder.bilm, state=state, warm=embedder.carried_state, device=embedder.device)
        self.embedding_dimension = self._embedder.width
        self.number_of_layers = self._embedder.num_layers

    def embed(self, sequence: str) -> Vectors:
        """Return the vectors of a protein, (L, R, D)."""
        return self._embedder.embed_layers([_residues(sequence)])[0]

    def embed_batch(self, batch: Sequence[str]) -> Iterator[Vectors]:
        """Yield the vectors of every protein, (L, R, D)."""
        yield from self._embedder.embed_layers([_residues(sequence) for sequence in batch])

    def embed_many(self, sequences: Iterable[str], batch_size: int | None = None) -> Iterator[Vectors]:
        """Yield the vectors of every protein in order; ``batch_size`` counts residues, and None runs one by one."""
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; expected 1 or more residues, or None")
        for batch in group_by_size(sequences, size_of=len, enough=batch_size or 1):
            yield from self.embed_batch(batch)

    @staticmethod
    def reduce_per_protein(embedding: Vectors) -> Vectors:
        """Return one vector for a protein, (D,): the sum of its layers, averaged over its residues."""
        reduced: Vectors = embedding.sum(axis=0).mean(axis=0)
        return reduced


@dataclass(frozen=True)
class Agreement:
    """Comparison of one protein with published vectors."""

    protein: str
    largest_difference: float
    agrees: bool


def check_outputs(source: Source, reference: Mapping[str, NDArray[np.float32]]) -> list[Agreement]:
    """Compare a model's vectors with published ones: arrays (L, R, D) by protein, made without a warm-up.

    Raises:
        InputError: No array is of one of the proteins, or an array has another shape.
    """
    layers = Embedder.from_pretrained(source, state="reset").embed_layers([list(name) for name in REFERENCE_BATCH])
    found = []
    for protein, layers_LRD in zip(REFERENCE_BATCH, layers, strict=True):
        if protein not in reference:
            continue
        expected_LRD = reference[protein]
        if expected_LRD.shape != layers_LRD.shape:
            raise InputError(
                f"the reference of {protein} has shape {expected_LRD.shape}; the model gives {layers_LRD.shape}. Is "
                "this SeqVec?"
            )
        gap = float(np.abs(layers_LRD - expected_LRD).max())
        agrees = np.allclose(layers_LRD, expected_LRD, rtol=RELATIVE, atol=ABSOLUTE)
        found.append(Agreement(protein, gap, bool(agrees)))
    if not found:
        names = ", ".join(list(reference)[:5]) or "nothing"
        raise InputError(f"the reference has {names}; expected arrays named {', '.join(REFERENCE_BATCH[:3])}")
    return found


def _source(
    weights_file: str | Path | None, options_file: str | Path | None, model_directory: str | Path | None
) -> Source:
    if model_directory is not None and weights_file is None and options_file is None:
        return model_directory
    if model_directory is None and weights_file is not None and options_file is not None:
        return options_file, weights_file
    raise InputError("pass weights_file and options_file, or model_directory alone")


def _size_hint(source: Source) -> str:
    path = Path(source[1] if isinstance(source, tuple) else source)
    candidates = [path] if path.is_file() else [path / name for name in ("weights.hdf5", "weights_file")]
    for file in candidates:
        if file.is_file() and file.stat().st_size < WEIGHTS_BYTES:
            return (
                f". The published weights of SeqVec have {WEIGHTS_BYTES:,} bytes, this file has "
                f"{file.stat().st_size:,}: the download was cut short"
            )
    return ""


def _residues(sequence: str) -> list[str]:
    if not isinstance(sequence, str):
        raise InputError(
            f"a protein is a {type(sequence).__name__}; expected a string of amino acids, such as 'SEQWENCE'"
        )
    return list(sequence)
