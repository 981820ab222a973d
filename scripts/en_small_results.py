"""Measure a pretrained model, and write what was found as one page: results/en-small.md is made so.

    python scripts/en_small_results.py RUN DATA --work WORK -o results/en-small.md

RUN is the finished folder of `elmokit pretrain`, DATA has lm, pos and glove. Every measurement is a command, shown on
the page beside its numbers. What it prints is kept in WORK, and a measurement that is there is not made again: an
interrupted run goes on, and the page can be written anew.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.analysis.facts import gather_facts
from elmokit.atomic import atomic_file
from elmokit.errors import ElmokitError, InputError

Found = list[dict[str, Any]]

SCRIPTS = Path(__file__).parent
DOMAINS = ("un", "novels")
CONTEXTS = (  # three senses
    "The shortstop made a great play at second base and ended the inning .",
    "She wrote a play in three acts , which opened on Broadway that winter .",
    "The children play in the garden behind the house .",
)

ABOUT_TRAINING = """\
From `recipes/en-small.toml`. A token counts once, though each direction predicts it; hours are those of the clock, with
other work beside it at times."""

ABOUT_PERPLEXITY = """\
Of held-out text, over the whole vocabulary. Words that it lacks are one word, `<UNK>`, for all models. A sentence
begins from zero (`reset`), from a settled state (`warm`) or where the last one ended (`carry`). n-grams: modified
Kneser-Ney of the same tokens, nothing left out."""

ABOUT_FINE_TUNING = """\
Perplexity (mean of both directions, `warm`) of text of the domain that was not learned from, before and after one epoch
on a million words of it; and what the tuned model then has on `wiki.dev`. The paper's supplement has such a table for
its tasks' data."""

ABOUT_ROUNDING = 'Cosine of every vector with `precision="int8"` and the same in fp32.'

ABOUT_PARTS_OF_SPEECH = """\
A linear classifier on frozen vectors: UD English-EWT, XPOS tags, accuracy. The paper's Table 6 asks the same of the
Wall Street Journal, so its numbers do not compare."""

ABOUT_NEIGHBOURS = """\
Among all tokens of `wiki.dev` and `wiki.test`, by the top layer, in the manner of the paper's Table 4. GloVe has one
vector for all of them."""


@dataclass(frozen=True)
class Lab:
    """Where things are, and how what was measured is kept."""

    run: Path
    data: Path
    work: Path

    @property
    def model(self) -> Path:
        """The model as it is published: in half precision."""
        return self.work / "en-small"

    def text(self, name: str) -> Path:
        """A file of raw text."""
        return self.data / "lm" / f"{name}.txt.xz"

    def measure(self, name: str, command: Sequence[str | Path]) -> Found:
        """Run a command that prints an object a line, unless it was run before."""
        path = self.work / f"{name}.jsonl"
        if not path.exists():
            printed = self.call(command)
            with atomic_file(path) as part:
                part.write_text(printed, "utf-8")
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    def make(self, folder: Path, command: Sequence[str | Path]) -> None:
        """Run a command that makes a model's folder, unless it is there."""
        if not (folder / "config.json").exists():
            self.call(command)

    def call(self, command: Sequence[str | Path]) -> str:
        """Run a command; return what it prints."""
        print(f"$ {shown(command)}", file=sys.stderr, flush=True)
        run = subprocess.run([sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            raise InputError(f"{shown(command)}: ended with {run.returncode}, as told above; mend it and begin again")
        return run.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("data", type=Path, help="the folder of the data")
    parser.add_argument("--work", type=Path, required=True, help="a folder for what is measured")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page, a .md file")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    lab = Lab(args.run, args.data, args.work)
    try:
        lab.make(lab.model, elmokit("convert", lab.run / "model", "-o", lab.model, "--dtype", "float16"))
        curve = args.output.with_suffix(".svg")
        lab.call([SCRIPTS / "learning_curve.py", lab.run, "-o", curve])
        sections = [
            head(lab, curve, sys.argv),
            perplexity(lab),
            fine_tuning(lab),
            rounding(lab),
            parts_of_speech(lab),
            neighbours(lab),
        ]
        with atomic_file(args.output) as part:
            part.write_text("\n".join(line for section in sections for line in (*section, "")), "utf-8")
    except ElmokitError as error:
        sys.exit(f"en_small_results: {error}")


def elmokit(*arguments: str | Path) -> list[str | Path]:
    return ["-m", "elmokit", *arguments]


def shown(command: Sequence[str | Path]) -> str:
    """A command as a user types it, who has all files at hand."""
    first, *rest = [word.name if isinstance(word, Path) else word for word in command]
    if isinstance(command[0], Path):  # a script of ours, in its folder
        return shlex.join(["python", f"{command[0].parent.name}/{first}", *rest])
    return shlex.join(rest)


def as_block(*commands: Sequence[str | Path]) -> list[str]:
    return ["```", *map(shown, commands), "```", ""]


def as_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def head(lab: Lab, curve: Path, command: Sequence[str]) -> Iterator[str]:
    """How the model was learned."""
    recipe = json.loads((lab.run / "recipe.json").read_text("utf-8"))
    lines = [json.loads(line) for line in (lab.run / "log.jsonl").read_text("utf-8").splitlines()]
    last = [line for line in lines if line["kind"] == "LogLine"][-1]
    training = recipe["training"]
    tokens = last["step"] * training["num_rows"] * training["unroll_steps"]
    hours = last["seconds"] / 3600
    yield from ("# en-small: how good it is", "")
    yield from (f"- {name}: {value}" for name, value in gather_facts(["python", *map(_name_of, command)]).items())
    yield from (f"- seed of the training: {training['seed']}", "")
    yield from ("## How it learned", "", f"![held-out perplexity and loss against tokens seen]({curve.name})", "")
    yield from (ABOUT_TRAINING, "")
    yield from as_table(
        ("steps", "tokens seen", "epochs", "hours", "tokens/s"),
        [(f"{last['step']:,}", f"{tokens:,}", f"{last['epoch']:.2f}", f"{hours:.1f}", f"{tokens / hours / 3600:,.0f}")],
    )


def _name_of(word: str) -> str:
    """A path of this machine by its last part, others as they are."""
    return Path(word).name if Path(word).is_absolute() else word


def perplexity(lab: Lab) -> Iterator[str]:
    """On held-out text, beside n-grams."""
    texts = {name: lab.text(name) for name in ("wiki.dev", "wiki.test")}
    commands = {name: elmokit("perplexity", lab.model, path, "--all-states", "--json") for name, path in texts.items()}
    counting = [SCRIPTS / "ngram_perplexity.py", lab.run, *texts.values(), "--json"]
    ngrams = lab.measure("ngrams", counting)
    yield from ("## Perplexity", "")
    yield from (ABOUT_PERPLEXITY, "", *as_block(*commands.values(), counting))
    rows = []
    for name, path in texts.items():
        for one in lab.measure(f"perplexity-{name}", commands[name]):
            geometric, unknown = f"{one['geometric_mean']:.2f}", f"{one['unknown_share']:.2%}"
            numbers = (f"{one[key]:.2f}" for key in ("forward", "backward", "arithmetic_mean"))
            rows.append((name, f"en-small, {one['state']}", *numbers, geometric, f"{one['num_targets']:,}", unknown))
        for one in (row for row in reversed(ngrams) if row["file"] == path.name):
            model = "unigrams" if one["order"] == 1 else f"{one['order']}-grams"
            geometric = f"{(one['forward'] * one['backward']) ** 0.5:.2f}"
            numbers = (f"{one[key]:.2f}" for key in ("forward", "backward", "mean"))
            unknown = f"{one['unknown'] / one['targets']:.2%}"
            rows.append((name, model, *numbers, geometric, f"{one['targets']:,}", unknown))
    headings = ("text", "model", "forward", "backward", "mean", "geometric mean", "targets", "unknown")
    yield from as_table(headings, rows)


def fine_tuning(lab: Lab) -> Iterator[str]:
    """What one epoch on a domain's text does to the perplexity of other text of it, and of Wikipedia."""
    rows, commands = [], []
    for domain in DOMAINS:
        tuned = lab.work / f"tuned-{domain}"
        tuning = elmokit("finetune", lab.model, lab.text(f"{domain}.train"), "-o", tuned, "--split")
        lab.make(tuned, tuning)
        dev = lab.text(f"{domain}.dev")
        before_after = [elmokit("perplexity", model, dev, "--split", "--json") for model in (lab.model, tuned)]
        of_wiki = elmokit("perplexity", tuned, lab.text("wiki.dev"), "--json")
        commands += [tuning, *before_after, of_wiki]
        before, after = (
            lab.measure(f"{domain}-{when}", command)[0]["arithmetic_mean"]
            for when, command in zip(("before", "after"), before_after, strict=True)
        )
        wiki = lab.measure(f"{domain}-wiki", of_wiki)[0]["arithmetic_mean"]
        rows.append((domain, f"{before:.1f}", f"{after:.1f}", f"{1 - after / before:.1%}", f"{wiki:.1f}"))
    yield from ("## Fine-tuning on a domain", "")
    yield from (ABOUT_FINE_TUNING, "", *as_block(*commands))
    yield from as_table(("domain", "before", "after", "lower by", "`wiki.dev` after"), rows)


def rounding(lab: Lab) -> Iterator[str]:
    """int8 beside fp32."""
    comparing = [SCRIPTS.parent / "benchmarks" / "int8_accuracy.py", lab.model, lab.text("wiki.test"), "--json"]
    found = lab.measure("int8", comparing)
    yield from ("## Eight bits", "")
    yield from (ABOUT_ROUNDING, "", *as_block(comparing))
    rows = [
        (layer, f"{one['mean']:.5f}", f"{one['lowest']:.5f}", f"`{one['lowest_token']}`", f"{one['num_tokens']:,}")
        for layer, one in enumerate(found)
    ]
    yield from as_table(("layer", "mean cosine", "lowest", "at", "tokens"), rows)


def parts_of_speech(lab: Lab) -> Iterator[str]:
    """What each layer knows of them."""
    files = {part: lab.data / "pos" / f"en_ewt-ud-{part}.conllu.xz" for part in ("train", "dev", "test")}
    given = [word for part, path in files.items() for word in (f"--{part}", path)]
    command = elmokit("probe", "pos", *given, "--model", lab.model, "--control", "--json")
    found = lab.measure("pos", command)
    yield from ("## Parts of speech", "")
    yield from (ABOUT_PARTS_OF_SPEECH, "", *as_block(command))
    names = {"given": "en-small", "untrained": "the same shape, untrained"}
    yield from as_table(
        ("biLM", "layer", "dev", "test"),
        [
            (names[one["bilm"]], one["layer"], f"{one['dev_accuracy']:.2%}", f"{one['test_accuracy']:.2%}")
            for one in found
        ],
    )


def neighbours(lab: Lab) -> Iterator[str]:
    """Of "play", in several contexts."""
    contexts = [word for context in CONTEXTS for word in ("--context", context)]
    vectors = lab.data / "glove" / "glove.6B.100d.top100k.f16.npz"
    texts = [lab.text("wiki.dev"), lab.text("wiki.test")]
    command = elmokit(
        "neighbors", "play", "--in", texts[0], "--in", texts[1], "--model", lab.model,
        *contexts, "--vectors", vectors, "-k", "5", "--json",
    )  # fmt: skip
    found = lab.measure("neighbors", command)
    yield from ("## Nearest neighbours of *play*", "")
    yield from (ABOUT_NEIGHBOURS, "", *as_block(command))
    static = ", ".join(f"{one['token']} ({one['similarity']:.2f})" for one in found[0]["static_neighbors"])
    yield from (f"GloVe: {static}", "")
    for one in found:
        yield from (f"> {_marked(one['tokens'], one['position'])}", "")
        rows = [(f"{near['similarity']:.2f}", _marked(near["tokens"], near["position"])) for near in one["neighbors"]]
        yield from (*as_table(("cosine", "nearest"), rows), "")


def _marked(tokens: Sequence[str], position: int, width: int = 12) -> str:
    """The token in bold, with some words on either side."""
    first, last = max(0, position - width), position + width + 1
    words = [f"**{token}**" if place == position else token for place, token in enumerate(tokens)]
    cut = " ".join(words[first:last]).replace("|", "\\|")
    return f"{'… ' if first else ''}{cut}{' …' if last < len(tokens) else ''}"


if __name__ == "__main__":
    main()
