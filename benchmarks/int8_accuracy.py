"""Compare int8 with fp32 vectors on real text, by their cosines.

    python benchmarks/int8_accuracy.py MODEL TEXT [--sentences 500] [--json]

MODEL is a folder of elmokit, or one with options.json and an .hdf5 file; TEXT is raw text, also .gz and .xz. Prints the
mean and the lowest cosine over all tokens, per layer.

Shapes: L layers, T tokens, D width.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from workload import Sentence, read_sentences

from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Vectors

Cosines = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """Cosines of one layer's vectors, fp32 with int8."""

    mean: float
    lowest: float
    lowest_token: str
    num_tokens: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sentences", type=int, default=500, help="sentences from the text's beginning (500)")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per layer")
    arguments = parser.parse_args()
    sentences = list(islice(read_sentences(arguments.text), arguments.sentences))
    if not sentences:
        raise SystemExit(f"{arguments.text}: has no sentences; expected a text with one or more")
    found = compare_precisions(arguments.model, sentences)
    if arguments.json:
        for agreement in found:
            print(json.dumps(asdict(agreement)))
        return
    table = Table("layer", "mean cosine", "lowest", "at", title=f"int8 against fp32, {arguments.model.name}")
    for layer, agreement in enumerate(found):
        table.add_row(str(layer), f"{agreement.mean:.5f}", f"{agreement.lowest:.5f}", repr(agreement.lowest_token))
    Console().print(table)
    print(f"{len(sentences):,} sentences, {agreement.num_tokens:,} tokens")


def compare_precisions(model: Path, sentences: list[Sentence]) -> list[Agreement]:
    """Embed the sentences in both precisions; return the agreement per layer."""
    exact, rounded = (Embedder.from_pretrained(model, precision=precision) for precision in ("fp32", "int8"))
    pairs = zip(exact.iter_layers(sentences), rounded.iter_layers(sentences), strict=True)
    cosine_LN = np.concatenate([cosines(*pair) for pair in pairs], axis=1)
    tokens = [token for sentence in sentences for token in sentence]
    return [summarize(cosine_N, tokens) for cosine_N in cosine_LN]


def cosines(first_LTD: Vectors, second_LTD: Vectors) -> Cosines:
    """Return the cosine of every vector with its counterpart, (L, T); 1 for two zero vectors."""
    first_LTD, second_LTD = first_LTD.astype(np.float64), second_LTD.astype(np.float64)
    lengths_LT = np.linalg.norm(first_LTD, axis=2) * np.linalg.norm(second_LTD, axis=2)
    same_LT = (first_LTD == second_LTD).all(axis=2).astype(np.float64)
    return np.divide(np.einsum("ltd,ltd->lt", first_LTD, second_LTD), lengths_LT, out=same_LT, where=lengths_LT > 0)


def summarize(cosine_N: Cosines, tokens: list[str]) -> Agreement:
    worst = int(cosine_N.argmin())
    return Agreement(float(cosine_N.mean()), float(cosine_N[worst]), tokens[worst], len(tokens))


if __name__ == "__main__":
    main()
