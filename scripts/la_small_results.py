"""Measure the Latin model and write results/la-small.md.

    python scripts/la_small_results.py RUN DATA --work WORK -o results/la-small.md

RUN is a finished run of recipes/la-small.toml; DATA contains lm and pos. Every measurement is a command, and the page
shows it beside its numbers. WORK caches the output of each command. WORK/la-small is the model in half precision.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

from en_small_results import (
    SCRIPTS,
    TRAINING_HEADINGS,
    Command,
    Lab,
    Section,
    as_table,
    elmokit,
    marked,
    training_numbers,
)

from elmokit.atomic import atomic_file
from elmokit.errors import ElmokitError
from elmokit.runs.provenance import gather_facts

ABBREVIATIONS = SCRIPTS.parent / "recipes" / "la-abbreviations.txt"
CONTEXTS = {
    "bellum": (
        "Caesar bellum cum Helvetiis gessit .",
        "bellum civile inter Caesarem et Pompeium ortum est .",
    ),
    "ius": (
        "populus ius suffragii habuit .",
        "praetor ius inter cives dixit .",
        "cocus ius calidum in patinam fundit .",
    ),
}

ABOUT_TRAINING = "Recipe: `recipes/la-small.toml`. Tokens count once, although both directions predict them."
ABOUT_PERPLEXITY = """\
Held-out text, full softmax, `warm`; out-of-vocabulary words are one word, `<UNK>`, for all models. n-grams: modified
Kneser-Ney of the same tokens, unpruned."""
ABOUT_POS = """\
Accuracy of a linear classifier on frozen vectors: UD Latin-Perseus, UPOS. The last tenth of the training sentences is
the dev set. *Untrained* is a biLM of the same shape with random weights."""
ABOUT_NEIGHBORS = "Nearest by the top layer in `la.dev` and `la.test`: the same word elsewhere."


class LatinLab(Lab):
    """Paths and cache of the Latin model."""

    @property
    def model(self) -> Path:
        """The model in half precision."""
        return self.work / "la-small"

    @property
    def language(self) -> list[str | Path]:
        """Options for raw Latin text."""
        return ["--language", f"generic:{ABBREVIATIONS.relative_to(SCRIPTS.parent)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("data", type=Path, help="folder of the data")
    parser.add_argument("--work", type=Path, required=True, help="folder for cached measurements")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page, a .md file")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    lab = LatinLab(args.run.absolute(), args.data.absolute(), args.work.absolute())
    made_by: Command = [
        SCRIPTS / Path(__file__).name,
        lab.run,
        lab.data,
        "--work",
        lab.work,
        "-o",
        args.output.absolute(),
    ]
    facts = gather_facts(shlex.split(lab.shown(made_by)))
    try:
        lab.claim()
        sections = [training(lab), perplexity(lab), parts_of_speech(lab), neighbors(lab)]
        lines = [
            *("# Results of la-small", "", *(f"- {name}: {value}" for name, value in facts.items()), ""),
            *(
                "A Latin model of 1024 cells, made as docs/latin.md describes. The weights are not in the repository.",
                "",
            ),
            *(line for section in sections for line in (*section, "")),
        ]
        with atomic_file(args.output) as part:
            part.write_text("\n".join(lines), "utf-8")
    except ElmokitError as error:
        sys.exit(f"la_small_results: {error}")


def training(lab: LatinLab) -> Section:
    """Return steps, tokens, time and size."""
    converting = elmokit("convert", lab.run / "model", "-o", lab.model, "--dtype", "float16")
    lab.make(lab.model, converting)
    meta = json.loads((lab.run / "text" / "corpus.json").read_text("utf-8"))
    counts = [f"{meta.get(key, 0):,}" for key in ("num_sentences", "num_tokens", "num_words", "num_left_out")]
    headings = ("sentences", "tokens", "distinct words", "left out", *TRAINING_HEADINGS)
    table = as_table(headings, [(*counts, *training_numbers(lab.run))])
    return ["## Training", "", ABOUT_TRAINING, "", *lab.as_block(converting), *table]


def perplexity(lab: LatinLab) -> Section:
    """Return perplexities on held-out text, with n-grams for comparison."""
    counting: Command = [SCRIPTS / "ngram_perplexity.py", lab.run, lab.text("la.dev"), lab.text("la.test"), "--json"]
    ngrams = lab.measure("ngrams", counting)
    rows, commands = [], [counting]
    for name in ("la.dev", "la.test"):
        command = elmokit("perplexity", lab.model, lab.text(name), "--split", *lab.language, "--json")
        commands.append(command)
        [one] = lab.measure(f"perplexity-{name}", command)
        numbers = [f"{one[key]:.1f}" for key in ("forward", "backward", "arithmetic_mean")]
        rows.append((name, "la-small", *numbers, f"{one['num_targets']:,}", f"{one['unknown_share']:.2%}"))
        for other in (row for row in reversed(ngrams) if row["file"] == lab.text(name).name):
            title = "unigrams" if other["order"] == 1 else f"{other['order']}-grams"
            numbers = [f"{other[key]:.1f}" for key in ("forward", "backward", "mean")]
            unknown = f"{other['unknown'] / other['targets']:.2%}"
            rows.append((name, title, *numbers, f"{other['targets']:,}", unknown))
    table = as_table(("text", "model", "forward", "backward", "mean", "targets", "unknown"), rows)
    return ["## Perplexity", "", ABOUT_PERPLEXITY, "", *lab.as_block(*commands), *table]


def parts_of_speech(lab: LatinLab) -> Section:
    """Return the part-of-speech accuracy of each layer, beside an untrained biLM."""
    files = [
        word
        for part in ("train", "test")
        for word in (f"--{part}", lab.data / "pos" / f"la_perseus-ud-{part}.conllu.xz")
    ]
    command = elmokit("evaluate", "pos", *files, "--column", "upos", "--model", lab.model, "--control", "--json")
    names = {"given": "la-small", "untrained": "untrained"}
    rows = [
        (names[one["bilm"]], one["layer"], f"{one['dev_accuracy']:.2%}", f"{one['test_accuracy']:.2%}")
        for one in lab.measure("pos", command)
    ]
    return [
        "## Parts of speech",
        "",
        ABOUT_POS,
        "",
        *lab.as_block(command),
        *as_table(("biLM", "layer", "dev", "test"), rows),
    ]


def neighbors(lab: LatinLab) -> Section:
    """Return the nearest neighbors of two words in several contexts."""
    lines, commands = [], []
    for word, contexts in CONTEXTS.items():
        given = [part for context in contexts for part in ("--context", context)]
        texts = ["--in", lab.work / "la.sentences.txt"]
        command = elmokit(
            "neighbors", word, *texts, "--model", lab.model, *given, "--tokenized", "--same-word", "-k", "3", "--json"
        )
        write_sentences(lab)
        commands.append(command)
        for one in lab.measure(f"neighbors-{word}", command):
            rows = [
                (f"{near['similarity']:.2f}", marked(near["tokens"], near["position"])) for near in one["neighbors"]
            ]
            lines += [f"> {marked(one['tokens'], one['position'])}", "", *as_table(("cosine", "nearest"), rows), ""]
    return ["## Neighbors in context", "", ABOUT_NEIGHBORS, "", *lab.as_block(*commands), *lines]


def write_sentences(lab: LatinLab) -> None:
    """Write the held-out text as sentences of tokens, which `neighbors` reads."""
    from elmokit.text.lines import read_lines
    from elmokit.text.rules import TextRules

    path = lab.work / "la.sentences.txt"
    if path.exists():
        return
    rules = TextRules(split=True, language=f"generic:{ABBREVIATIONS}")
    with atomic_file(path) as part, part.open("w", encoding="utf-8") as file:
        for line in read_lines([lab.text("la.dev"), lab.text("la.test")]):
            for sentence in rules.sentences(line.text):
                file.write(" ".join(rules.tokens(sentence)) + "\n")


if __name__ == "__main__":
    main()
