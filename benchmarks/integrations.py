"""Cost of the integrations over the Embedder on the same 2,000 sentences, by the clock and by processor time.

    python benchmarks/integrations.py wiki.dev.txt.xz

Run it in the environments of `make integrations`: a library that is not installed is left out. The variants take turns,
and the ratio of each round compares neighbors in time. The goal is for the clock; other work on the machine changes
processor time less.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import gather_facts

from elmokit import Embedder
from elmokit.text.lines import read_lines

NUM_SENTENCES = 2000
NUM_ROUNDS = 3
GOAL = 1.15


def make_variants(
    embedder: Embedder, sentences: list[str]
) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return (reference, integration) by name, for the libraries that are installed."""
    found: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
    if importlib.util.find_spec("spacy"):
        import spacy
        from spacy.tokens import Doc

        nlp = spacy.blank("en")
        nlp.add_pipe("elmo")
        tokenized = [embedder.tokenize(sentence) for sentence in sentences]
        found["spaCy: nlp.pipe"] = (
            lambda: embedder.embed_tokens(tokenized),
            lambda: list(nlp.pipe(Doc(nlp.vocab, words=words) for words in tokenized)),
        )
    if importlib.util.find_spec("sklearn") and importlib.util.find_spec("spacy"):
        from elmokit.integrations.sklearn import ElmoVectorizer

        vectorizer = ElmoVectorizer().fit(sentences)
        found["scikit-learn: transform"] = lambda: embedder.encode(sentences), lambda: vectorizer.transform(sentences)
    if importlib.util.find_spec("sentence_transformers"):
        from elmokit.integrations.sentence_transformers import load

        model = load()
        found["sentence-transformers: encode"] = lambda: embedder.encode(sentences), lambda: model.encode(sentences)
    return found


def seconds(work: Callable[[], object]) -> np.ndarray:
    """Return the seconds of a call: by the clock, and of the processor."""
    start = np.array([time.perf_counter(), time.process_time()])
    work()
    return np.array([time.perf_counter(), time.process_time()]) - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="text file, one sentence or paragraph per line")
    text = parser.parse_args().text
    lines = (line.text.strip() for line in read_lines([text]))
    sentences = [line for line in lines if 20 <= len(line) <= 300][:NUM_SENTENCES]
    for name, fact in gather_facts(hidden=text).items():
        print(f"- {name}: {fact}")
    print(f"- text: {len(sentences):,} lines of {text.name}\n")
    print("| call | reference s | integration s | ratio | goal | met | ratio of processor time |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    embedder = Embedder.from_pretrained()
    for name, (reference, integration) in make_variants(embedder, sentences).items():
        reference(), integration()  # caches
        rounds = np.array([(seconds(reference), seconds(integration)) for _ in range(NUM_ROUNDS)])
        clock, processor = np.median(rounds[:, 1] / rounds[:, 0], axis=0)
        theirs, ours = np.median(rounds[:, :, 0], axis=0)
        judged = f"{clock:.2f}x | <= {GOAL}x | {'yes' if clock <= GOAL else 'no'}"
        print(f"| {name} | {theirs:.2f} | {ours:.2f} | {judged} | {processor:.2f}x |")


if __name__ == "__main__":
    main()
