"""What elmokit does, in half a minute: write published-format weights, read them, embed, compare.

The weights are random, so the numbers show how the machinery works, not what words mean.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from elmokit import BiLM, BiLMConfig, CharEncoderConfig, Embedder, LSTMConfig
from elmokit.weights.bilm_tf import write_bilm_tf
from elmokit.weights.saved import SavedBiLM

SENTENCES = [
    "The bank closed its doors early.",
    "They sat on the bank of the river.",
    "The bank closed its doors early.",
]
WORD = "bank"


def write_published_model(folder: Path) -> tuple[Path, Path]:
    """Write options.json and weights.hdf5 of the published small size, with random weights."""
    torch.manual_seed(0)
    config = BiLMConfig(char_encoder=CharEncoderConfig(num_highway=1), lstm=LSTMConfig(cell_dim=1024, proj_dim=128))
    pair = folder / "options.json", folder / "weights.hdf5"
    write_bilm_tf(SavedBiLM(config, dict(BiLM(config).state_dict())), *pair)
    return pair


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        pair = write_published_model(Path(folder))
        start = time.perf_counter()
        embedder = Embedder.from_pretrained(pair)
        load_seconds = time.perf_counter() - start
    start = time.perf_counter()
    layers = embedder.embed_layers(SENTENCES)
    embed_seconds = time.perf_counter() - start

    places = [embedder.tokenize(sentence).index(WORD) for sentence in SENTENCES]
    vectors = [layers_LTD[:, place] for layers_LTD, place in zip(layers, places, strict=True)]
    table = Table(title=f'How close "{WORD}" is to itself (cosine)', title_justify="left")
    for name in ("layer", "another sentence", "the same sentence again"):
        table.add_column(name, justify="left" if name == "layer" else "right")
    names = ["0  token, no context", "1  first LSTM", "2  second LSTM"]
    for layer, name in enumerate(names):
        other, same = (cosine(vectors[0][layer], vectors[index][layer]) for index in (1, 2))
        table.add_row(name, f"{other:.4f}", f"{same:.4f}")

    for sentence, layers_LTD in zip(SENTENCES, layers, strict=True):
        console.print(f"{sentence}  ->  {layers_LTD.shape} (layers, tokens, width)", highlight=False)
    console.print(table)
    console.print(f"Loaded published-format weights in {load_seconds:.2f} s, embedded in {embed_seconds:.2f} s.")
    console.print("The weights are random: give Embedder.from_pretrained the folder of a trained model.")


if __name__ == "__main__":
    main()
