"""Show in some seconds what elmokit does: a word gets different vectors in different sentences.

Everything runs on the bundled English model.
"""

import time

import numpy as np
from rich.console import Console
from rich.table import Table

from elmokit import Embedder
from elmokit.analysis.neighbors import find_neighbors
from elmokit.analysis.occurrences import find_in_contexts

# Two sentences per sense, and a text to find neighbors in.
SENSES = {
    "bank": {
        "money": ["The bank raised its interest rates again.", "She borrowed the money from a bank in London."],
        "river": ["They sat on the bank of the river.", "Trees grow along the eastern bank of the stream."],
    },
    "play": {
        "theater": ["She wrote a play about a young king.", "He directed a play at the national theatre."],
        "sport": ["He made a great play in the second half.", "The shortstop made a play at first base."],
    },
}
TEXT = """
The company reported higher profits last year.
The government lowered taxes on small firms.
Investors bought shares of the insurance company.
A credit union lent him the money for the house.
The fund sold its stake in the airline.
The lender was founded in the nineteenth century.
The lake lies on the southern shore of the island.
A narrow path follows the coast to the village.
The boat drifted to the other side of the canal.
They camped at the edge of the forest.
The castle stands on a hill above the valley.
The stream flows past an old mill.
The film was based on a short novel.
He wrote a comedy about two brothers.
The opera was first performed in Vienna.
Her second book won a prize for fiction.
The musical opened on Broadway in the spring.
The drama was adapted for television.
The team scored three goals in the final game.
He caught the ball and ran to the line.
The match ended in a draw after extra time.
The goalkeeper was injured in the first half.
They lost the final against a club from Spain.
The season began with a win over the champions.
""".strip().splitlines()


def main() -> None:
    console = Console(highlight=False)
    start = time.perf_counter()
    embedder = Embedder.from_pretrained()
    loaded = time.perf_counter()
    for word, senses in SENSES.items():
        console.print(closeness(embedder, word, senses))
    for word, senses in SENSES.items():
        console.print(neighbors(embedder, word, senses))
    done = time.perf_counter()
    console.print(
        f"Loaded the model in {loaded - start:.2f} s; everything above took {done - loaded:.2f} s. "
        "The same for your own text: [bold]elmokit neighbors play --in FILE[/bold]"
    )


def closeness(embedder: Embedder, word: str, senses: dict[str, list[str]]) -> Table:
    """Return the similarity of a word's vectors within a sense and across senses, per layer."""
    vectors = {sense: [vectors_of(embedder, word, sentence) for sentence in pair] for sense, pair in senses.items()}
    first, second = vectors
    across = [(left, right) for left in vectors[first] for right in vectors[second]]
    table = Table(title=f'Cosine of "{word}" with itself', title_justify="left")
    table.add_column("layer")
    for name in (f"both {first}", f"both {second}", f"{first} and {second}"):
        table.add_column(name, justify="right")
    for layer, name in enumerate(["0  characters alone", "1  first LSTM", "2  second LSTM"]):
        within = [cosine(left[layer], right[layer]) for left, right in vectors.values()]
        between = float(np.mean([cosine(left[layer], right[layer]) for left, right in across]))
        table.add_row(name, *(f"{value:.2f}" for value in [*within, between]))
    return table


def neighbors(embedder: Embedder, word: str, senses: dict[str, list[str]]) -> Table:
    """Return the words of the text that are nearest to a word in its context, at the top layer."""
    table = Table(title=f'Nearest to "{word}" in context', title_justify="left")
    table.add_column("in")
    table.add_column("nearest words of the text")
    queries = find_in_contexts(embedder, [first for first, _ in senses.values()], word)
    for found in find_neighbors(embedder, TEXT, queries, k=4):
        nearest = ", ".join(neighbor.occurrence.token for neighbor in found.neighbors)
        table.add_row(" ".join(found.query.tokens), nearest)
    return table


def vectors_of(embedder: Embedder, word: str, sentence: str) -> np.ndarray:
    """Return the vectors of a word in a sentence, one per layer."""
    return embedder.embed_layers([sentence])[0][:, embedder.tokenize(sentence).index(word)]


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))


if __name__ == "__main__":
    main()
