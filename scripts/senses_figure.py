"""Draw the senses of *bank* and *play* by layer, with the bundled model: docs/senses.png.

    python scripts/senses_figure.py [-o docs/senses.png]        # needs pip install "elmokit[plot]"

Each point is the word in one of the sentences below. A panel shows one layer in two dimensions: the principal
components of the vectors at unit length, rotated to match the panel of the second LSTM layer (orthogonal
Procrustes). The number in a panel does not depend on the projection: it is the share of points whose nearest neighbor
by cosine has the same sense. Ties count in parts, so where all points coincide it is the share by chance.

Shapes: N sentences, L layers, D width.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmokit import Embedder
from elmokit.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
LAYERS = ("token layer (no context)", "first LSTM layer", "second LSTM layer")
STYLES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"))  # distinct without color, too
GRAY = "#555555"
COINCIDE = 1e-6
OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "senses.png"

SENSES: dict[str, dict[str, list[str]]] = {
    "bank": {
        "money": [
            "She works for a bank in Frankfurt .",
            "The bank raised its interest rates again .",
            "He asked the bank for a loan of ten thousand dollars .",
            "My salary is paid into the bank at the end of each month .",
            "The largest bank in the country was sold to investors last year .",
            "A clerk at the bank counted the notes twice .",
            "They robbed a bank and fled across the border .",
            "The company owes the bank several million euros .",
            "Customers can open an account at any bank in the city .",
            "The central bank lowered the value of the currency .",
            "Her father was the director of a small bank before the war .",
            "In 1931 the bank failed and thousands lost their savings .",
        ],
        "river": [
            "They sat on the bank of the river and watched the boats .",
            "The village lies on the left bank of the Danube .",
            "Trees grow along the bank of the stream .",
            "We pulled the canoe up onto the muddy bank .",
            "The castle stands on the north bank of the lake .",
            "The army reached the eastern bank of the Rhine at dawn .",
            "A heron was standing on the opposite bank , waiting for fish .",
            "The flood washed away a part of the bank .",
            "He swam across and climbed up the steep bank .",
            "The old mill was built on the bank of the canal .",
            "Reeds covered the bank , and the water was shallow there .",
            "The road follows the west bank of the Nile .",
        ],
    },
    "play": {
        "theater": [
            "She wrote a play in three acts about her mother .",
            "The play opened in London and ran for two years .",
            "He directed a play by Ibsen at the national theatre .",
            "The critics praised the play for its dialogue .",
            "The film is based on a play by Anton Chekhov .",
            "His first play was performed in Dublin in 1904 .",
            "In the last scene of the play the king dies .",
            "The main character of the play is a young widow .",
            "Shakespeare is said to have finished the play in 1606 .",
            "The school put on a play at the end of the year .",
            "A new play about the strike was staged in Chicago .",
            "The audience left before the play was over .",
        ],
        "game": [
            "The children play in the garden behind the house .",
            "They play football every Saturday afternoon .",
            "He hopes to play for the national team next season .",
            "We used to play chess after dinner .",
            "The two clubs will play in the final on Sunday .",
            "She learned to play tennis when she was six .",
            "Our neighbors like to play cards on Friday evenings .",
            "He was too injured to play in the second half .",
            "Boys and girls play together in this league .",
            "You can play the game alone or against a friend .",
            "The dogs play on the beach for hours .",
            "She decided to play professional basketball in Spain .",
        ],
        "music": [
            "She can play the piano and the violin .",
            "He taught himself to play the guitar .",
            "The band will play two new songs tonight .",
            "They play jazz in a club near the station .",
            "The orchestra was asked to play a symphony by Mahler .",
            "My brother used to play drums in a rock band .",
            "The organist began to play a slow hymn .",
            "I heard him play the sonata from memory .",
            "Local musicians play folk songs in the square .",
            "She started to play the flute at the age of nine .",
            "The pianist refused to play the concerto again .",
            "He could play any tune on the trumpet .",
        ],
    },
}
EXAMPLES = {  # pieces of sentences above, for the legend
    "bank": {"money": "asked the bank for a loan", "river": "climbed up the steep bank"},
    "play": {"theater": "wrote a play in three acts", "game": "play football", "music": "can play the piano"},
}


@dataclass(frozen=True, eq=False)
class Panel:
    """One word at one layer."""

    points_N2: Array
    same_sense: float  # share of points whose nearest neighbor has their sense


def word_layers(embedder: Embedder, word: str, sentences: list[str]) -> Array:
    """Return a word's vectors in each of the sentences at unit length, (L, N, D)."""
    tokens = [sentence.split() for sentence in sentences]
    layers = embedder.embed_layers(tokens)
    vectors_NLD = np.stack([layers_LTD[:, words.index(word)] for layers_LTD, words in zip(layers, tokens, strict=True)])
    vectors_LND = vectors_NLD.swapaxes(0, 1).astype(np.float64)
    unit_LND: Array = vectors_LND / np.linalg.norm(vectors_LND, axis=2, keepdims=True)
    return unit_LND


def same_sense_share(vectors_ND: Array, senses: list[str]) -> float:
    """Return the share of vectors whose nearest other vector has the same sense; equally near ones count in parts."""
    similarities_NN = (vectors_ND @ vectors_ND.T).round(6)
    np.fill_diagonal(similarities_NN, -np.inf)
    nearest_NN = similarities_NN == similarities_NN.max(axis=1, keepdims=True)
    same_NN = np.equal.outer(senses, senses)
    return float(((nearest_NN & same_NN).sum(axis=1) / nearest_NN.sum(axis=1)).mean())


def project(vectors_ND: Array) -> Array:
    """Return the first two principal components, (N, 2); the sign of each makes its largest value positive."""
    centered_ND = vectors_ND - vectors_ND.mean(axis=0)
    left_NK, scales_K, _ = np.linalg.svd(centered_ND, full_matrices=False)
    points_N2 = left_NK[:, :2] * scales_K[:2]
    largest_2 = points_N2[np.abs(points_N2).argmax(axis=0), [0, 1]]
    signed_N2: Array = points_N2 * np.where(largest_2 < 0, -1, 1)
    return signed_N2


def turn_towards(points_N2: Array, target_N2: Array) -> Array:
    """Rotate or mirror points so that they are as near as they can be to others (orthogonal Procrustes)."""
    left_22, _, right_22 = np.linalg.svd(points_N2.T @ target_N2)
    turned_N2: Array = points_N2 @ left_22 @ right_22
    return turned_N2


def panels_of(embedder: Embedder, word: str) -> list[Panel]:
    """Return a word's panels, the token layer first."""
    sentences = [sentence for group in SENSES[word].values() for sentence in group]
    senses = [sense for sense, group in SENSES[word].items() for _ in group]
    layers_LND = word_layers(embedder, word, sentences)
    found = [project(vectors_ND) for vectors_ND in layers_LND]
    top_N2 = found[-1]
    return [
        Panel(turn_towards(points_N2, top_N2), same_sense_share(vectors_ND, senses))
        for points_N2, vectors_ND in zip(found, layers_LND, strict=True)
    ]


def draw(words: dict[str, list[Panel]], path: Path) -> None:
    """Write the figure: one row per word, one column per layer."""
    require("matplotlib", extra="plot").use("agg")  # write a file, with or without a screen
    from matplotlib import pyplot

    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9, "axes.edgecolor": "#c8c8c8"})
    figure, grid = pyplot.subplots(len(words), len(LAYERS), figsize=(8.0, 4.75), squeeze=False)
    for axes, title in zip(grid[0], LAYERS, strict=True):
        axes.set_title(title, fontsize=10, pad=7)
    for axes_row, (word, panels) in zip(grid, words.items(), strict=True):
        reach = max(float(np.abs(panel.points_N2).max()) for panel in panels)
        for axes, panel in zip(axes_row, panels, strict=True):
            draw_panel(axes, word, panel)
            limits = (-1.12 * reach, 1.12 * reach), (-reach, 0.9 * reach)  # the share stands at the bottom
            axes.set(xlim=limits[0], ylim=limits[1], xticks=[], yticks=[], aspect="equal")
        axes_row[0].set_ylabel(word, fontsize=13, fontweight="bold", fontstyle="italic", labelpad=6)
        draw_legend(axes_row[0], word)
    figure.subplots_adjust(left=0.045, right=0.995, bottom=0.012, top=0.93, wspace=0.03, hspace=0.04)
    figure.savefig(path, dpi=180, metadata={"Software": None}, facecolor="white")
    pyplot.close(figure)


def draw_panel(axes: "Axes", word: str, panel: Panel) -> None:
    """Draw the points of one panel, and its share of same-sense neighbors."""
    begin = 0
    for (_, sentences), (color, marker) in zip(SENSES[word].items(), STYLES, strict=False):
        points_N2 = panel.points_N2[begin : begin + len(sentences)]
        begin += len(sentences)
        axes.scatter(*points_N2.T, s=34, c=color, marker=marker, alpha=0.85, linewidths=0.6, edgecolors="white")
    share = f"same-sense neighbor: {panel.same_sense:.0%}"
    if np.ptp(panel.points_N2) < COINCIDE:
        share += " (chance)"
        axes.scatter([0], [0], s=60, c=GRAY, zorder=3)
        note = {"textcoords": "offset points", "ha": "center", "va": "top", "color": GRAY}
        axes.annotate(f"all {begin} coincide", (0, 0), (0, -8), **note)
    axes.text(0.5, 0.03, share, transform=axes.transAxes, ha="center", va="bottom", fontsize=8.5)


def draw_legend(axes: "Axes", word: str) -> None:
    """List the senses, with an example each, in the panel of the token layer, which has room."""
    for sense, (color, marker) in zip(SENSES[word], STYLES, strict=False):
        axes.scatter([], [], s=34, c=color, marker=marker, label=f"{sense}: {EXAMPLES[word][sense]}")
    axes.legend(loc="upper left", frameon=False, handletextpad=0.1, borderaxespad=0.2, labelspacing=0.35, fontsize=8.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    embedder = Embedder.from_pretrained()
    words = {word: panels_of(embedder, word) for word in SENSES}
    for word, panels in words.items():
        print(word, *(f"{layer} {panel.same_sense:.1%}" for layer, panel in zip(LAYERS, panels, strict=True)), sep="  ")
    draw(words, options.output)


if __name__ == "__main__":
    main()
