"""Write the training, dev and test files of the ready model for named entities: Wikigold and WNUT-17, in one tag set.

    python scripts/ner_data.py DATA OUT

DATA has ner/wikigold.conll and ner/wnut17.{train,dev,test}.conll, also .xz or .gz. Wikigold is split as in Table 1. The
types of WNUT-17 are mapped to the four of CoNLL-2003; the test sets stay apart.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from elmokit.analysis.splits import split_by_document
from elmokit.readers.conll2003 import TaggedSentence, read_conll2003
from elmokit.text.lines import find_inputs

TYPES = {
    "person": "PER",
    "location": "LOC",
    "corporation": "ORG",
    "group": "ORG",
    "product": "MISC",
    "creative-work": "MISC",
}


def main(data: Path, out: Path) -> None:
    wikigold = list(read_conll2003(find_one(data / "ner", "wikigold.conll")))
    parts = split_by_document(wikigold, lambda one: one.document, held_out=20, between="-DOCSTART-")
    wnut = {
        name: list(read_conll2003(find_one(data / "ner", f"wnut17.{name}.conll"))) for name in ("train", "dev", "test")
    }
    out.mkdir(parents=True, exist_ok=True)
    write(out / "train.conll", [*parts.train, *wnut["train"]])
    write(out / "dev.conll", [*parts.dev, *wnut["dev"]])
    write(out / "test-wikigold.conll", parts.test)
    write(out / "test-wnut17.conll", wnut["test"])


def find_one(folder: Path, name: str) -> Path:
    return Path(find_inputs([str(folder / f"{name}*")])[0])


def write(path: Path, sentences: Iterable[TaggedSentence]) -> None:
    blocks = []
    for one in sentences:
        rows = zip(one.tokens, map(four_types, one.tags), strict=True)
        blocks.append("".join(f"{token}\t{tag}\n" for token, tag in rows))
    path.write_text("\n".join(blocks), "utf-8")
    print(f"{path}: {len(blocks):,} sentences")


def four_types(tag: str) -> str:
    prefix, dash, name = tag.partition("-")
    return f"{prefix}-{TYPES.get(name, name)}" if dash else tag


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
