"""Figures 1 and 2 of the paper, drawn from the file of runs alone, as SVG and PNG.

Shapes: L layers, R rows.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from elmokit.analysis.datasets import find_dataset
from elmokit.atomic import atomic_file
from elmokit.extras import require
from elmokit.paper.arms import ARMS, BASELINE, ELMO, UNTRAINED
from elmokit.paper.comparisons import mean_weights, mix_weights
from elmokit.paper.plan import FRACTIONS
from elmokit.paper.results import Results
from elmokit.paper.tables import MIXED_ROWS, PLACES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = {BASELINE: ("#d55e00", "s", "--"), ELMO: ("#0072b2", "o", "-"), UNTRAINED: ("#555555", "^", ":")}
LOW, HIGH = 1 / 3, 2 / 3  # weights that the paper marks
FORMATS = ("svg", "png")


def draw_figures(results: Results, folder: Path, *, stem: str) -> dict[str, str]:
    """Draw the figures that have runs, and return the names of the pictures by section."""
    require("matplotlib", extra="plot")
    drawn = {}
    for name, draw in (("figure1", draw_fractions), ("figure2", draw_weights)):
        figure = draw(results)
        if figure is not None:
            drawn[name] = f"{stem}-{name}.svg"
            _save(figure, folder / f"{stem}-{name}")
    return drawn


def draw_fractions(results: Results) -> "Figure | None":
    """Draw dev scores against the fraction of the training data, with a band of one standard deviation."""
    rows = [row for row in ("snli", "srl") if any(_points(results, row, arm) for arm in STYLES)]
    if not rows:
        return None
    figure = _figure(width=4.2 * len(rows), height=3.4)
    for number, row in enumerate(rows, start=1):
        axes = figure.add_subplot(1, len(rows), number)
        for arm, (color, marker, line) in STYLES.items():
            points = _points(results, row, arm)
            if points:
                shares, means, spreads = zip(*points, strict=True)
                axes.plot(shares, means, line, color=color, marker=marker, label=ARMS[arm].title)
                lower, upper = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
                axes.fill_between(shares, lower, upper, color=color, alpha=0.2, linewidth=0)
        dataset = find_dataset(row)
        _label_fractions(axes, f"{dataset.title}, dev {dataset.metric}")
    return figure


def draw_weights(results: Results) -> "Figure | None":
    """Draw the trained weights of the layers per row and place: hatched below 1/3, speckled above 2/3."""
    weights = {
        place: {row: mean_weights(mixes) for row in MIXED_ROWS if (mixes := mix_weights(results, row, place))}
        for place in PLACES
    }
    places = [place for place in PLACES if weights[place]]
    if not places:
        return None
    num_columns = max(len(weights[place]) for place in places)
    figure = _figure(width=1.5 + 1.15 * num_columns * len(places), height=2.6)
    for number, place in enumerate(places, start=1):
        axes = figure.add_subplot(1, len(places), number)
        _draw_cells(axes, list(weights[place].values()))
        axes.set_title(f"{place} of the task's RNN", fontsize=9)
        titles = [find_dataset(row).title for row in weights[place]]
        axes.set_xticks(range(len(titles)), titles, rotation=30, ha="right", fontsize=8)
    return figure


def _draw_cells(axes: "Axes", columns: Sequence[Sequence[float]]) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    colors = colormaps["Blues"]
    num_layers = len(columns[0])
    for x, weights in enumerate(columns):
        for layer, weight in enumerate(weights):
            hatch = "---" if weight < LOW else "..." if weight > HIGH else None
            axes.add_patch(
                Rectangle(
                    (x - 0.5, layer - 0.5), 1, 1, facecolor=colors(0.75 * weight), edgecolor="#999999", hatch=hatch
                )
            )
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
            axes.text(x, layer, f"{weight:.2f}", ha="center", va="center", fontsize=8, bbox=box)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, num_layers - 0.5)
    axes.set_yticks(range(num_layers), ["token", *(f"LSTM {n}" for n in range(1, num_layers))], fontsize=8)
    axes.tick_params(length=0)


def _points(results: Results, row: str, arm: str) -> list[tuple[float, float, float]]:
    """Return fraction, mean and standard deviation of the dev scores in percent, where there are runs."""
    points = []
    for share in FRACTIONS:
        scores = [100 * score for score in results.scores(row, arm, "dev", fraction=share).values()]
        if scores:
            points.append((100 * share, mean(scores), stdev(scores) if len(scores) > 1 else 0.0))
    return points


def _label_fractions(axes: "Axes", title: str) -> None:
    shares = [100 * share for share in FRACTIONS]
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{share:g}%" for share in shares])
    axes.minorticks_off()
    axes.set_xlabel("training data")
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    axes.grid(visible=True, alpha=0.3)


def _figure(*, width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    """Write both formats, the same bytes for the same runs."""
    from matplotlib import rc_context

    metadata: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    with rc_context({"svg.hashsalt": path.name, "hatch.linewidth": 0.6}):
        for form in FORMATS:
            with atomic_file(path.with_suffix(f".{form}")) as new:
                figure.savefig(new, format=form, dpi=150, metadata=metadata[form])
