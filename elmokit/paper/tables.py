"""The paper's tables with our numbers, as Markdown.

A table has the rows that were run. A line below it names the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from elmokit.analysis.datasets import find_dataset
from elmokit.analysis.wsd import PUBLISHED as PUBLISHED_SENSES
from elmokit.paper.arms import ARMS, BASELINE, ELMO, UNTRAINED
from elmokit.paper.comparisons import ENCODER_TITLES, layer_scores, mean_weights, mix_weights, updates
from elmokit.paper.evaluations import QUERIES, TEST_SETS
from elmokit.paper.plan import (
    BUDGETED,
    ENCODERS,
    FRACTIONS,
    NEIGHBORS,
    PERPLEXITY,
    SENSES,
    TAGS,
    TASK,
    Kind,
    PaperRun,
)
from elmokit.paper.results import Results
from elmokit.paper.statistics import NOT_RUN, show_scores

NOTHING = "-"
NOT_RUN_LINE = "Not run yet:"
SIGNAL_TITLES = {"upos": "coarse tag (UPOS)", "direction": "side of the head", "relation": "relation to the head"}
PAPER_LAYERS = {
    SENSES: {"bilm": ("", "67.4", "69.0"), "cove": ("59.4", "64.7")},
    TAGS: {"bilm": ("", "97.3", "96.8"), "cove": ("93.3", "92.8")},
}
NOT_PLANNED = {("coref", "output")}
"""Cells of a table that the paper leaves empty too."""
PAPER_NEIGHBORS = "playing, game, games, played, players, plays, player, Play, football, multiplayer"
OTHERS = ("Raganato et al. 2017", "Iacobacci et al. 2016")  # in the paper's Table 5
PLACES = ("input", "output")
MIXED_ROWS = ("ner-wikigold", "sst", "snli", "squad", "srl", "coref")


def as_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def run_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, results: slice, label: slice) -> str:
    """Return a table of the rows that have a result, and a line that names the others.

    Args:
        headings: of the columns.
        rows: cells of every row.
        results: the cells that have results; a row without any was not run.
        label: the cells that name a row.
    """
    rows = list(rows)
    is_run = [any(cell not in (NOT_RUN, NOTHING) for cell in row[results]) for row in rows]
    run = [row for row, one in zip(rows, is_run, strict=True) if one]
    others = [", ".join(row[label]) for row, one in zip(rows, is_run, strict=True) if not one]
    return join_parts(
        [as_table(headings, run) if run else "", f"{NOT_RUN_LINE} {'; '.join(others)}." if others else ""]
    )


def titled(title: str, table: str) -> str:
    """Return a table below its title; a single line if nothing in it was run."""
    return f"{title}: not run yet." if table.startswith(NOT_RUN_LINE) else f"{title}:\n\n{table}"


def join_parts(parts: Iterable[str]) -> str:
    """Return paragraphs, without empty ones."""
    return "\n\n".join(part for part in parts if part)


def show_arms(
    results: Results,
    rows: Sequence[str],
    arms: Sequence[str],
    paper: dict[str, dict[str, str]],
    *,
    part: Literal["dev", "test"] = "dev",
) -> str:
    """Return the scores of arms, one column per row that was run, each beside the paper's number if it has any."""
    run = [row for row in rows if any(results.scores(row, arm, part) for arm in arms)]
    others = [find_dataset(row).title for row in rows if row not in run]
    lines = []
    for arm in arms:
        cells = [
            [
                show_scores(results.scores(row, arm, part)) if (row, arm) not in NOT_PLANNED else NOTHING,
                paper.get(arm, {}).get(row, NOTHING),
            ]
            for row in run
        ]
        lines.append([ARMS[arm].title, *(text for pair in cells for text in (pair if paper else pair[:1]))])
    titles = [[find_dataset(row).title, "paper"] for row in run]
    headings = ["", *(text for pair in titles for text in (pair if paper else pair[:1]))]
    table = run_table(headings, lines, results=slice(1, None, 2 if paper else 1), label=slice(1)) if run else ""
    return join_parts([table, f"{NOT_RUN_LINE} {'; '.join(others)}." if others else ""])


def show_neighbors(results: Results) -> str:
    """Return the ranks of the published neighbors of *play*, and the share of neighbors with the same sense."""
    rows = []
    for encoder in ("bilm", UNTRAINED, "cove"):
        found = results.evaluation(NEIGHBORS, "play", encoder)
        if found is None:
            rows.append([ENCODER_TITLES[encoder], NOTHING, *[NOT_RUN] * 3])
            continue
        for layer, share in enumerate(found["same_sense"]):
            ranks = [f"{of_query[layer]:g} of {found['num_occurrences'] - 1}" for of_query in found["ranks"].values()]
            rows.append([ENCODER_TITLES[encoder], _layer_name(encoder, layer), *ranks, f"{share:.1%}"])
    headings = ["encoder", "layer", "rank, baseball", "rank, theater", "nearest has the same sense"]
    table = run_table(headings, rows, results=slice(2, None), label=slice(1))
    shown = _nearest_sentences(results)
    glove = results.evaluation(NEIGHBORS, "play", "glove")
    words = NOT_RUN if glove is None else ", ".join(glove["words"])
    return join_parts([table, shown, f"Nearest words by GloVe: {words}. The paper's: {PAPER_NEIGHBORS}."])


def _nearest_sentences(results: Results) -> str:
    """Return the paper's queries with the sentences that the biLM's top layer finds."""
    found = results.evaluation(NEIGHBORS, "play", "bilm")
    if found is None or "nearest" not in found:  # older results have none
        return ""
    rows = [[f"{query} …", f"… {answer} …", found["nearest"][query][-1]] for query, answer in QUERIES.items()]
    return titled("The paper's queries", as_table(["query", "the paper's neighbor", "ours, top layer"], rows))


def show_layers(results: Results, kind: Kind, encoders: Sequence[str] = ENCODERS) -> str:
    """Return the accuracy of every layer of every encoder."""
    rows = []
    for encoder in encoders:
        found, published = layer_scores(results, kind, encoder), PAPER_LAYERS[kind].get(encoder, ())
        if found is None:
            rows.append([ENCODER_TITLES[encoder], NOTHING, NOT_RUN, NOTHING])
            continue
        for layer, accuracy in enumerate(found.layers):
            number = published[layer] if layer < len(published) else ""
            name = _layer_name(encoder, layer)
            rows.append([ENCODER_TITLES[encoder], name, f"{100 * accuracy:.2f}", number or NOTHING])
    if encoders != ENCODERS:
        return run_table(["encoder", "layer", "accuracy", "paper"], rows, results=slice(2, 3), label=slice(1))
    if kind == SENSES and (found := layer_scores(results, kind, "bilm")) is not None:
        rows.append(["WordNet's first sense", NOTHING, f"{100 * found.baseline:.2f}", "65.9"])
    if kind == TAGS:
        for arm, paper in ((BASELINE, "97.3 to 97.8"), (ELMO, NOTHING)):
            title = f"biLSTM-CRF tagger, {ARMS[arm].title.removeprefix('+ ')}"
            rows.append([title, NOTHING, show_scores(results.scores("tag", arm, "test")), paper])
    return run_table(["encoder", "layer", "accuracy", "paper"], rows, results=slice(2, 3), label=slice(1))


def show_trained_encoders(results: Results) -> str:
    """Return how CoVe and context2vec were trained, and CoVe's perplexity as a translation model."""
    rows = []
    for encoder, unit in (("cove", "pairs"), ("context2vec", "tokens")):
        made = results.evaluation(SENSES, "wsd", encoder)
        if made is None or (found := made.get("training")) is None:  # published weights have none
            continue
        perplexity, unknown = found.get("test_perplexity"), found["unknown_share"]
        shown = NOTHING if perplexity is None else f"{perplexity:.1f} ({unknown:.1%} unknown words)"
        data = f"{found['num_examples']:,} {unit}"
        rows.append([ENCODER_TITLES[encoder], data, f"{found['epochs']:.2f}", f"{found['seconds'] / 3600:.1f}", shown])
    headings = ["encoder", "data", "epochs", "hours", "perplexity of the test pairs"]
    return titled("Encoders that were trained for this page", as_table(headings, rows)) if rows else ""


def show_signals(results: Results) -> str:
    """Return the accuracy of every layer of the biLM for other signals than parts of speech."""
    rows = []
    for row, title in SIGNAL_TITLES.items():
        found = layer_scores(results, TAGS, "bilm", row=row)
        scores = [NOT_RUN] if found is None else [f"{100 * accuracy:.2f}" for accuracy in found.layers]
        rows.append([title, *scores])
    num_layers = max(map(len, rows)) - 1
    headings = ["signal", *(f"layer {number}" for number in range(num_layers))]
    return run_table(headings, rows, results=slice(1, None), label=slice(1))


def show_test_sets(results: Results) -> str:
    """Return every layer's accuracy on each test set of word senses, and on multi-word senses."""
    made = {encoder: results.evaluation(SENSES, "wsd", encoder) for encoder in ENCODERS}
    found = {encoder: one for encoder, one in made.items() if one is not None}
    if not found:
        return ""
    first = next(iter(found.values()))
    parts = [name for name in ("all", *TEST_SETS, "multi-word") if name in first]
    rows = [
        ["instances", NOTHING, *(f"{first[name]['num_instances']:,}" for name in parts)],
        ["WordNet's first sense", NOTHING, *(f"{100 * first[name]['first_sense']:.2f}" for name in parts)],
    ]
    for encoder, one in found.items():
        for layer in range(len(one["all"]["layers"])):
            scores = [f"{100 * one[name]['layers'][layer]:.2f}" if name in one else NOTHING for name in parts]
            rows.append([ENCODER_TITLES[encoder], _layer_name(encoder, layer), *scores])
    table = as_table(["encoder", "layer", *parts], rows)
    others = "; ".join(f"{name} {PUBLISHED_SENSES[name]}" for name in OTHERS)
    return join_parts([table, f"Published, on the same test sets together: {others}."])


def show_fractions(results: Results) -> str:
    """Return the dev scores of Figure 1."""
    rows = []
    for row in ("snli", "srl"):
        for arm in (BASELINE, ELMO, UNTRAINED):
            cells = [show_scores(results.scores(row, arm, "dev", fraction=share)) for share in FRACTIONS]
            if arm == UNTRAINED:
                cells[:2] = [NOTHING] * 2
            rows.append([find_dataset(row).title, ARMS[arm].title, *cells])
    headings = ["data", "arm", *(f"{share:.1%}" for share in FRACTIONS)]
    counts = "; ".join(f"{find_dataset(row).title} {_counts(results, row)}" for row in ("snli", "srl"))
    return join_parts(
        [
            run_table(headings, rows, results=slice(2, None), label=slice(2)),
            f"The shares are of the training data that all tables use, in examples: {counts}.",
        ]
    )


def _counts(results: Results, row: str) -> str:
    """Return the number of training examples of each fraction, in words."""
    sizes = [results.recipes.recipe(PaperRun(TASK, row, BASELINE, fraction=share)).training for share in FRACTIONS]
    return ", ".join(f"{one.max_examples:,}" for one in sizes)


def show_updates(results: Results) -> str:
    """Return the updates that ELMo needs to reach the baseline's best dev score, for every seed."""
    rows = []
    for row in ("srl", "snli"):
        found = updates(results, row)
        pairs = ", ".join(
            f"{f'{needed:,}' if needed else 'not reached'} for {best:,}" for best, needed in found.values()
        )
        training = results.recipes.recipe(PaperRun(TASK, row, BASELINE)).training
        per_epoch = (training.max_examples or 0) / training.batch_size
        reached = [(best, needed) for best, needed in found.values() if needed]
        epochs = NOTHING
        if reached and per_epoch:
            of_baseline, of_elmo = (sum(steps) / len(reached) / per_epoch for steps in zip(*reached, strict=True))
            epochs = f"{of_elmo:.1f} for {of_baseline:.1f}"
        rows.append([find_dataset(row).title, pairs or NOT_RUN, epochs])
    headings = ["data", "updates of ELMo for those of the baseline, each seed", "in epochs, mean"]
    return run_table(headings, rows, results=slice(1, 2), label=slice(1))


def show_mixes(results: Results) -> str:
    """Return the trained weights of the layers, and gamma, means over seeds."""
    rows = []
    for row in MIXED_ROWS:
        for place in PLACES:
            mixes = mix_weights(results, row, place)
            if mixes:
                gammas = [run.result["mixes"][place]["gamma"] for run in results.runs(row, ELMO).values()]
                weights = [f"{weight:.2f}" for weight in mean_weights(mixes)]
                rows.append(
                    [
                        find_dataset(row).title,
                        place,
                        ", ".join(weights),
                        f"{sum(gammas) / len(gammas):.2f}",
                        str(len(mixes)),
                    ]
                )
    run = {row[0] for row in rows}
    others = [find_dataset(row).title for row in MIXED_ROWS if find_dataset(row).title not in run]
    table = as_table(["data", "place", "weights, from the token layer up", "gamma", "seeds"], rows) if rows else ""
    return join_parts([table, f"{NOT_RUN_LINE} {'; '.join(others)}." if others else ""])


def show_perplexities(results: Results) -> str:
    """Return the perplexity of one text under language models of one size and budget."""
    rows = []
    for encoder in BUDGETED:
        found = results.evaluation(PERPLEXITY, "ner-wikigold", encoder)
        cells = [NOT_RUN] * 3
        if found is not None:
            cells = [f"{found[way]:.1f}" for way in ("forward", "backward")]
            cells = [cells[0], NOTHING if encoder == "forward" else cells[1], f"{_unknown(found):.1%}"]
        rows.append([ENCODER_TITLES[encoder], *cells])
    headings = ["model", "forward", "backward", "unknown words"]
    return run_table(headings, rows, results=slice(1, None), label=slice(1))


def _unknown(found: Mapping[str, Any]) -> float:
    share: float = found["num_unknown"] / found["num_targets"]
    return share


def _layer_name(encoder: str, layer: int) -> str:
    if encoder in ("context2vec", "glove"):
        return NOTHING
    return str(layer + (encoder == "cove")) + (" (token)" if encoder != "cove" and layer == 0 else "")
