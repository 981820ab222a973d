"""Tables of the verb evaluate, with published figures beside ours."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from elmokit.analysis.blimp import BlimpScores
    from elmokit.analysis.lexsub import SubstitutionScores
    from elmokit.analysis.pos_probe import ProbeResult
    from elmokit.analysis.sts import LayerScores
    from elmokit.analysis.wsd import SenseScores

PROBE_ROW = "{:<10} {:<5} {:>7} {:>7} {:>8} {:>8}"


def print_blimp(scores: "BlimpScores") -> None:
    """Print accuracy per phenomenon and direction, and published ones."""
    from elmokit.analysis.blimp import DIRECTIONS, PHENOMENA, PUBLISHED

    found = [scores.by_direction[direction] for direction in DIRECTIONS]
    others = [dict(zip(PHENOMENA, one.by_phenomenon, strict=True)) for one in PUBLISHED]
    rows = [
        ["all paradigms", *(_percent(one.overall) for one in found), *(f"{one.overall:.1f}" for one in PUBLISHED)],
        ["differing words in vocabulary", *(_percent(one.known) for one in found), *("" for _ in PUBLISHED)],
    ]
    for name in found[0].phenomena:
        published = [f"{other[name]:.1f}" if name in other else "" for other in others]
        rows.append([name, *(_percent(one.phenomena[name]) for one in found), *published])
    _print_table(["accuracy, %", *DIRECTIONS, *(f"[{one.model}]" for one in PUBLISHED)], rows)
    typer.echo(
        f"\n{scores.num_pairs:,} pairs; in {scores.unknown_pairs:.1%} a differing word is out of vocabulary; "
        f"{scores.ties:.2%} ties, counted as wrong"
    )
    texts = "; ".join(f"{one.model}, {one.training_text}" for one in PUBLISHED)
    typer.echo(f"[published] (Warstadt et al. 2020, corrected results of their repository; forward): {texts}")


def print_substitutes(scores: "SubstitutionScores") -> None:
    """Print generalized average precision per direction."""
    from elmokit.analysis.blimp import DIRECTIONS
    from elmokit.analysis.lexsub import PUBLISHED

    rows = [
        ["all candidates", f"{scores.num_instances:,}", *(_percent(scores.gap[one]) for one in DIRECTIONS)],
        [
            "candidates in vocabulary",
            f"{scores.num_known_instances:,}",
            *(_percent(scores.known_gap[one]) for one in DIRECTIONS),
        ],
    ]
    _print_table(["GAP, %", "words", *DIRECTIONS], rows)
    typer.echo(
        f"\n{scores.unknown_candidates:.1%} of the candidates are out of vocabulary; ranked last in the first row"
    )
    _print_published(PUBLISHED, "Arefyev et al. 2020, results of their repository")


def print_sts(results: "Mapping[str, Sequence[LayerScores]]") -> None:
    """Print correlations per file, layer and pooling."""
    from elmokit.analysis.sts import PUBLISHED

    rows = [
        [name, str(one.layer), one.pooling, f"{100 * one.spearman:.2f}", f"{100 * one.pearson:.2f}"]
        for name, found in results.items()
        for one in found
    ]
    _print_table(["file", "layer", "pooling", "Spearman", "Pearson"], rows, num_names=3)
    _print_published(PUBLISHED, "Reimers and Gurevych 2019, Spearman on sts-test, none trained on STS")


def print_senses(results: "Mapping[str, SenseScores]") -> None:
    """Print accuracy per test set and layer."""
    from elmokit.analysis.wsd import PUBLISHED

    num_layers = len(next(iter(results.values())).layers)
    rows = [
        [
            name,
            f"{scores.num_instances:,}",
            f"{scores.num_unseen:,}",
            _percent(scores.first_sense),
            *map(_percent, scores.layers),
        ]
        for name, scores in results.items()
    ]
    layers = [f"layer {number}" for number in range(num_layers)]
    _print_table(["F1, %", "words", "unseen", "first sense", *layers], rows)
    _print_published(
        PUBLISHED, "Peters et al. 2018, Table 5, on senseval2, senseval3, semeval2013 and semeval2015 together"
    )


def print_probe_heading(column: str) -> None:
    """Print the published figures and the heading of the probe's rows."""
    from elmokit.analysis.pos_probe import PUBLISHED

    if column == "xpos":
        _print_published(PUBLISHED, "Peters et al. 2018, Table 6, on the Wall Street Journal: not comparable")
        typer.echo()
    typer.echo(PROBE_ROW.format("encoder", "layer", "dev", "test", "strength", "seconds"))


def print_probe_row(name: str, result: "ProbeResult") -> None:
    """Print the accuracies of a layer."""
    accuracies = f"{result.dev_accuracy:.2%}", f"{result.test_accuracy:.2%}"
    typer.echo(PROBE_ROW.format(name, result.layer, *accuracies, f"{result.strength:g}", f"{result.seconds:.1f}"))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _print_published(figures: Mapping[str, float], source: str) -> None:
    listed = "; ".join(f"{name} {figure:g}" for name, figure in figures.items())
    typer.echo(f"published ({source}): {listed}")


def _print_table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, num_names: int = 1) -> None:
    """Print columns, the first ``num_names`` of them as text and the others as numbers."""
    widths = [max(len(row[column]) for row in (heading, *rows)) for column in range(len(heading))]
    for row in (heading, *rows):
        cells = [
            cell.ljust(width) if column < num_names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())
