"""Score the clusters of `elmokit senses` against SemCor's senses, per layer.

    python scripts/semcor_senses.py SEMCOR.data.xml.xz

The words are the 50 lemmas with most instances among those with two or more senses of at least 10 instances each. Up to
200 evenly spaced instances of such senses are clustered, once with the number of clusters that the silhouette chooses,
once with the true number of senses. The score is the mean V-measure.
"""

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean

import numpy as np

from elmokit.analysis.occurrences import Occurrence
from elmokit.analysis.senses import find_senses, spread
from elmokit.embed.embedder import Embedder
from elmokit.metrics.clusters import v_measure
from elmokit.readers.wsd import find_keys, read_wsd
from elmokit.runs.provenance import gather_facts

NUM_WORDS, MOST, LEAST = 50, 200, 10


def choose_words(path: Path) -> dict[tuple[str, str], list[tuple[Occurrence, str]]]:
    """Return tagged occurrences by lemma and part of speech."""
    found = defaultdict(list)
    for number, sentence in enumerate(read_wsd(path, find_keys(path))):
        for one in sentence.instances:
            if len(one.senses) == 1 and one.end == one.start + 1:
                place = Occurrence(sentence.tokens, one.start, number)
                found[one.lemma, one.pos].append((place, one.senses[0]))
    kept = {}
    for word, tagged in found.items():
        counts = Counter(sense for _, sense in tagged)
        frequent = {sense for sense, count in counts.items() if count >= LEAST}
        if len(frequent) > 1:
            kept[word] = [one for one in tagged if one[1] in frequent]
    chosen = sorted(kept, key=lambda word: (-len(kept[word]), word))[:NUM_WORDS]
    return {word: kept[word] for word in chosen}


def score(tagged: list[tuple[Occurrence, str]], vectors_ND: np.ndarray, layer: int) -> tuple[float, float, int]:
    """Return V-measures with the chosen and the true number of clusters, and the chosen number."""
    places, senses = zip(*tagged, strict=True)
    numbered = [Occurrence(place.tokens, place.position, number) for number, place in enumerate(places)]
    results = []
    for num_clusters in (None, len(set(senses))):
        found = find_senses("", numbered, vectors_ND, layer=layer, num_clusters=num_clusters)
        label = {one.sentence: number for number, sense in enumerate(found.senses) for one in sense.occurrences}
        results.append((v_measure(senses, [label[number] for number in range(len(senses))]), len(found.senses)))
    return results[0][0], results[1][0], results[0][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    path = parser.parse_args().data
    embedder = Embedder.from_pretrained()
    words = choose_words(path)
    scores = defaultdict(list)
    num_instances = 0
    for tagged in words.values():
        chosen = spread(tagged, MOST)
        num_instances += len(chosen)
        found = embedder.embed_layers([place.tokens for place, _ in chosen])
        vectors_NLD = np.stack(
            [layers_LTD[:, place.position] for (place, _), layers_LTD in zip(chosen, found, strict=True)]
        )
        for layer in range(embedder.num_layers):
            scores[layer].append(score(chosen, vectors_NLD[:, layer], layer))
    print("# Senses: clusters against SemCor\n")
    for name, fact in gather_facts(["python", "scripts/semcor_senses.py", path.name, *sys.argv[2:]]).items():
        print(f"- {name}: {fact}")
    print(f"- model: en-small; data: SemCor 3.0, {len(words)} words, {num_instances:,} instances; no randomness\n")
    print("| layer | V-measure, chosen number | mean number | V-measure, true number |\n|---|---|---|---|")
    for layer, rows in scores.items():
        chosen_v, true_v, number = (mean(column) for column in zip(*rows, strict=True))
        print(f"| {layer} | {chosen_v:.3f} | {number:.2f} | {true_v:.3f} |")


if __name__ == "__main__":
    main()
