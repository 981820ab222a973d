"""Measure a pretrained model and write one page of results, such as results/en-small.md.

    python scripts/en_small_results.py RUN DATA --work WORK -o results/en-small.md

RUN is a finished run of `elmokit pretrain`; DATA contains lm, pos and glove. Every measurement is a command, and the
page shows it beside its numbers. WORK caches the output of each command, so an interrupted script can be restarted and
the page rewritten. WORK/en-small is the model as published, with its card.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.atomic import atomic_file
from elmokit.errors import ElmokitError, InputError
from elmokit.runs.provenance import gather_facts
from elmokit.weights.folder import CARD
from elmokit.weights.sums import SUMS

Command = Sequence[str | Path]
Found = list[dict[str, Any]]
Section = list[str]

SCRIPTS = Path(__file__).absolute().parent
HELD_OUT = ("wiki.dev", "wiki.test")
DOMAINS = ("un", "novels")
CONTEXTS = (  # three senses
    "The shortstop made a great play at second base and ended the inning .",
    "She wrote a play in three acts , which opened on Broadway that winter .",
    "The children play in the garden behind the house .",
)

TRAINING_HEADINGS = ("steps", "tokens seen", "epochs", "hours", "tokens/s")

ABOUT_TRAINING = """\
Recipe: `recipes/en-small.toml`. The curve shows the perplexity of the first 100,000 words of `wiki.dev`; the next table
covers all of it. Tokens and sentence boundaries count once, although both directions predict them. Hours are wall-clock
time on a machine that was shared at times; evaluations of the held-out text up to step 12,000 are excluded."""

ABOUT_PERPLEXITY = """\
Held-out text, full softmax. Out-of-vocabulary words are one word, `<UNK>`, for all models. A sentence starts from zero
(`reset`), from a settled state (`warm`) or from the state after the previous sentence (`carry`). n-grams: modified
Kneser-Ney of the same tokens, unpruned."""

ABOUT_FINE_TUNING = """\
Perplexity (mean of both directions, `warm`) of held-out text of the domain before and after one epoch on a million
words of it, and that of the tuned model on `wiki.dev`. The paper's supplement has a similar table for its tasks. Both
texts are wrapped at a fixed width without blank lines, so headings run into sentences."""

ABOUT_ROUNDING = 'Cosine of every vector in `precision="int8"` with the same vector in fp32.'

ABOUT_PARTS_OF_SPEECH = """\
Accuracy of a linear classifier on frozen vectors: UD English-EWT, XPOS tags. The paper's Table 6 is on the Wall Street
Journal, so its numbers are not comparable."""

ABOUT_NEIGHBORS = """\
Nearest by the top layer in `wiki.dev` and `wiki.test`, as in the paper's Table 4: the same word elsewhere, and the
nearest of all tokens. GloVe has one vector for all senses. The word occurs 116 times in these texts, never in the
baseball sense, so the first context has no good match."""

ABOUT_TEXT = """\
## Training data

61 million words of English Wikipedia (2015), one epoch. The text is licensed under
[CC BY-SA 3.0](https://creativecommons.org/licenses/by-sa/3.0/). The model reflects its biases, gaps and errors. The
weights have the license of elmokit."""

ABOUT_LIMITS = """\
This is a small model of encyclopedic English. It predicts other kinds of text worse until it is fine-tuned on them
(`elmokit finetune`). With a GPU, a transformer gives better vectors for most tasks.

`results/en-small.md` in elmokit's repository has the commands behind these numbers, and more results."""


@dataclass(frozen=True)
class Lab:
    """Paths, and the cache of measurements."""

    run: Path
    data: Path
    work: Path

    @property
    def model(self) -> Path:
        """The model as published, in half precision."""
        return self.work / "en-small"

    def text(self, name: str) -> Path:
        """Return the path of a raw text."""
        return self.data / "lm" / f"{name}.txt.xz"

    def claim(self) -> None:
        """Raise InputError if the cache has measurements of another model."""
        path, sums = self.work / "measured.sums", (self.run / "model" / SUMS).read_text("utf-8")
        if path.exists() and path.read_text("utf-8") != sums:
            raise InputError(f"{self.work}: has measurements of a model other than {self.run}'s; use another folder")
        with atomic_file(path) as part:
            part.write_text(sums, "utf-8")

    def measure(self, name: str, command: Command) -> Found:
        """Run a command that prints JSON lines, unless its output is cached; return the objects."""
        path, asked = self.work / f"{name}.jsonl", json.dumps({"command": self.shown(command)})
        before = path.read_text("utf-8").splitlines() if path.exists() else []
        if before[:1] != [asked]:
            before = [asked, *self.call(command).splitlines()]
            with atomic_file(path) as part:
                part.write_text("\n".join([*before, ""]), "utf-8")
        return [json.loads(line) for line in before[1:]]

    def make(self, folder: Path, command: Command) -> None:
        """Run a command that makes a model folder, unless the folder exists."""
        if not (folder / "config.json").exists():
            self.call(command)

    def call(self, command: Command) -> str:
        """Run a command and return its output."""
        print(f"$ {self.shown(command)}", file=sys.stderr, flush=True)
        run = subprocess.run([sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            raise InputError(
                f"{self.shown(command)}: exit code {run.returncode}, see above; fix the cause and start again"
            )
        return run.stdout

    def shown(self, command: Command) -> str:
        """Return a command as a user types it, with the run in `runs`, the data in `data` and models right here."""
        words = [self._named(word) if isinstance(word, Path) else word for word in command]
        return shlex.join(["python", *words] if isinstance(command[0], Path) else words[1:])

    def _named(self, path: Path) -> str:
        for folder, name in ((self.work, Path()), (self.run, Path("runs", self.model.name)), (self.data, Path("data"))):
            if path.is_relative_to(folder):
                return str(name / path.relative_to(folder))
        return str(path.relative_to(SCRIPTS.parent)) if path.is_relative_to(SCRIPTS.parent) else path.name

    def as_block(self, *commands: Command) -> Section:
        """Return commands as a code block."""
        return ["```", *map(self.shown, commands), "```", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("data", type=Path, help="folder of the data")
    parser.add_argument("--work", type=Path, required=True, help="folder for cached measurements")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page, a .md file")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    lab = Lab(args.run.absolute(), args.data.absolute(), args.work.absolute())
    made_by: Command = [
        SCRIPTS / "en_small_results.py",
        lab.run,
        lab.data,
        "--work",
        lab.work,
        "-o",
        args.output.absolute(),
    ]
    facts = gather_facts(shlex.split(lab.shown(made_by)))  # before the page's files make the tree dirty
    try:
        lab.claim()
        sections = [
            head(lab, args.output.absolute().with_suffix(".svg"), facts),
            perplexity(lab),
            fine_tuning(lab),
            rounding(lab),
            parts_of_speech(lab),
            neighbors(lab),
        ]
        with atomic_file(args.output) as part:
            part.write_text("\n".join(line for section in sections for line in (*section, "")), "utf-8")
        write_card(lab)
    except ElmokitError as error:
        sys.exit(f"en_small_results: {error}")


def elmokit(*arguments: str | Path) -> Command:
    return ["-m", "elmokit", *arguments]


def as_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def head(lab: Lab, curve: Path, facts: Mapping[str, str]) -> Section:
    """Return the title, the provenance and the training curve."""
    converting = elmokit("convert", lab.run / "model", "-o", lab.model, "--dtype", "float16")
    drawing: Command = [SCRIPTS / "learning_curve.py", lab.run, "-o", curve]
    lab.make(lab.model, converting)
    lab.call(drawing)
    seed = json.loads((lab.run / "recipe.json").read_text("utf-8"))["training"]["seed"]
    return [
        *("# Results of en-small", ""),
        *(f"- {name}: {value}" for name, value in facts.items()),
        *(f"- training seed: {seed}", ""),
        "The commands assume the run in `runs`, the data in `data` and models in the current folder.",
        *("", "## Training", "", f"![held-out perplexity and loss against tokens seen]({curve.name})", ""),
        *(ABOUT_TRAINING, "", *lab.as_block(converting, drawing)),
        *as_table(TRAINING_HEADINGS, [training_numbers(lab.run)]),
    ]


def training_numbers(run: Path) -> tuple[str, ...]:
    """Return what a run took, in the order of ``TRAINING_HEADINGS``."""
    settings = json.loads((run / "recipe.json").read_text("utf-8"))["training"]
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    last = [line for line in lines if line["kind"] == "LogLine"][-1]
    tokens, hours = last["step"] * settings["num_rows"] * settings["unroll_steps"], last["seconds"] / 3600
    return (
        *(f"{last['step']:,}", f"{tokens:,}", f"{last['epoch']:.2f}"),
        *(f"{hours:.2f}", f"{tokens / hours / 3600:,.0f}"),
    )


def measured_perplexities(lab: Lab) -> tuple[dict[str, Found], Found, list[Command]]:
    """Return the model's perplexities by text, those of n-grams, and the commands."""
    texts = {name: lab.text(name) for name in HELD_OUT}
    commands = {name: elmokit("perplexity", lab.model, path, "--all-states", "--json") for name, path in texts.items()}
    counting: Command = [SCRIPTS / "ngram_perplexity.py", lab.run, *texts.values(), "--json"]
    found = {name: lab.measure(f"perplexity-{name}", command) for name, command in commands.items()}
    return found, lab.measure("ngrams", counting), [*commands.values(), counting]


def perplexity(lab: Lab) -> Section:
    """Return perplexities on held-out text, with n-grams for comparison."""
    found, ngrams, commands = measured_perplexities(lab)
    rows = []
    for name in HELD_OUT:
        for one in found[name]:
            geometric, unknown = f"{one['geometric_mean']:.2f}", f"{one['unknown_share']:.2%}"
            numbers = (f"{one[key]:.2f}" for key in ("forward", "backward", "arithmetic_mean"))
            rows.append((name, f"en-small, {one['state']}", *numbers, geometric, f"{one['num_targets']:,}", unknown))
        for one in (row for row in reversed(ngrams) if row["file"] == lab.text(name).name):
            model = "unigrams" if one["order"] == 1 else f"{one['order']}-grams"
            geometric = f"{(one['forward'] * one['backward']) ** 0.5:.2f}"
            numbers = (f"{one[key]:.2f}" for key in ("forward", "backward", "mean"))
            unknown = f"{one['unknown'] / one['targets']:.2%}"
            rows.append((name, model, *numbers, geometric, f"{one['targets']:,}", unknown))
    headings = ("text", "model", "forward", "backward", "mean", "geometric mean", "targets", "unknown")
    return ["## Perplexity", "", ABOUT_PERPLEXITY, "", *lab.as_block(*commands), *as_table(headings, rows)]


def fine_tuning(lab: Lab) -> Section:
    """Return perplexities before and after one epoch on a domain, on its held-out text and on Wikipedia."""
    rows: list[tuple[str, ...]] = []
    commands: list[Command] = []
    for domain in DOMAINS:
        tuned = lab.work / f"tuned-{domain}"
        tuning = elmokit("finetune", lab.model, lab.text(f"{domain}.train"), "-o", tuned, "--wrapped")
        lab.make(tuned, tuning)
        dev = lab.text(f"{domain}.dev")
        before_after = [elmokit("perplexity", model, dev, "--wrapped", "--json") for model in (lab.model, tuned)]
        of_wiki = elmokit("perplexity", tuned, lab.text("wiki.dev"), "--json")
        commands += [tuning, *before_after, of_wiki]
        before, after = (
            lab.measure(f"{domain}-{when}", command)[0]["arithmetic_mean"]
            for when, command in zip(("before", "after"), before_after, strict=True)
        )
        wiki = lab.measure(f"{domain}-wiki", of_wiki)[0]["arithmetic_mean"]
        rows.append((domain, f"{before:.1f}", f"{after:.1f}", f"{1 - after / before:.1%}", f"{wiki:.1f}"))
    table = as_table(("domain", "before", "after", "lower by", "`wiki.dev` after"), rows)
    return ["## Fine-tuning on a domain", "", ABOUT_FINE_TUNING, "", *lab.as_block(*commands), *table]


def rounding(lab: Lab) -> Section:
    """Return the cosines of int8 with fp32 vectors."""
    comparing: Command = [
        SCRIPTS.parent / "benchmarks" / "int8_accuracy.py",
        lab.model,
        lab.text("wiki.test"),
        "--json",
    ]
    rows = [
        (layer, f"{one['mean']:.5f}", f"{one['lowest']:.5f}", f"`{one['lowest_token']}`", f"{one['num_tokens']:,}")
        for layer, one in enumerate(lab.measure("int8", comparing))
    ]
    table = as_table(("layer", "mean cosine", "lowest", "at", "tokens"), rows)
    return ["## int8", "", ABOUT_ROUNDING, "", *lab.as_block(comparing), *table]


def measured_parts_of_speech(lab: Lab) -> tuple[Found, Command]:
    """Return the accuracy by biLM and layer, and the command."""
    files = {part: lab.data / "pos" / f"en_ewt-ud-{part}.conllu.xz" for part in ("train", "dev", "test")}
    given = [word for part, path in files.items() for word in (f"--{part}", path)]
    command = elmokit("evaluate", "pos", *given, "--model", lab.model, "--control", "--json")
    return lab.measure("pos", command), command


def parts_of_speech(lab: Lab) -> Section:
    """Return the part-of-speech accuracy of each layer."""
    found, command = measured_parts_of_speech(lab)
    names = {"given": "en-small", "untrained": "the same shape, untrained"}
    rows = [
        (names[one["bilm"]], one["layer"], f"{one['dev_accuracy']:.2%}", f"{one['test_accuracy']:.2%}") for one in found
    ]
    table = as_table(("biLM", "layer", "dev", "test"), rows)
    return ["## Parts of speech", "", ABOUT_PARTS_OF_SPEECH, "", *lab.as_block(command), *table]


def neighbors(lab: Lab) -> Section:
    """Return the nearest neighbors of "play" in several contexts."""
    contexts = [word for context in CONTEXTS for word in ("--context", context)]
    vectors = lab.data / "glove" / "glove.6B.100d.top100k.f16.npz"
    texts = [word for name in HELD_OUT for word in ("--in", lab.text(name))]
    asking = elmokit("neighbors", "play", *texts, "--model", lab.model, *contexts, "-k", "3", "--json")
    of_word, of_all = [*asking, "--same-word", "--vectors", vectors], asking
    same, others = lab.measure("neighbors-of-the-word", of_word), lab.measure("neighbors", of_all)
    static = ", ".join(f"{one['token']} ({one['similarity']:.2f})" for one in same[0]["static_neighbors"])
    lines = ["## Nearest neighbors of *play*", "", ABOUT_NEIGHBORS, "", *lab.as_block(of_word, of_all)]
    lines += [f"GloVe: {static}", ""]
    for word, token in zip(same, others, strict=True):
        rows = [
            (what, f"{near['similarity']:.2f}", marked(near["tokens"], near["position"]))
            for what, one in (("the word", word), ("any token", token))
            for near in one["neighbors"]
        ]
        lines += [f"> {marked(word['tokens'], word['position'])}", "", *as_table(("", "cosine", "nearest"), rows), ""]
    return lines


def marked(tokens: Sequence[str], position: int, width: int = 12) -> str:
    """Return the token in bold, with some words of context."""
    first, last = max(0, position - width), position + width + 1
    words = [f"**{token}**" if place == position else token for place, token in enumerate(tokens)]
    cut = " ".join(words[first:last]).replace("|", "\\|")
    return f"{'… ' if first else ''}{cut}{' …' if last < len(tokens) else ''}"


def write_card(lab: Lab) -> None:
    """Add training data and results to the model card, which is not covered by the checksums."""
    path = lab.model / CARD
    found, ngrams, _ = measured_perplexities(lab)
    of_test = {one["state"]: one["arithmetic_mean"] for one in found["wiki.test"]}
    best_ngrams = max(
        (one for one in ngrams if one["file"] == lab.text("wiki.test").name), key=lambda one: one["order"]
    )
    tags = {(one["bilm"], str(one["layer"])): one["test_accuracy"] for one in measured_parts_of_speech(lab)[0]}
    layers = ", ".join(f"{accuracy:.1%} (layer {layer})" for (bilm, layer), accuracy in tags.items() if bilm == "given")
    rows = [
        ("perplexity on `wiki.test`, mean of both directions", f"{of_test['warm']:.1f}"),
        (
            f"the same for modified Kneser-Ney {best_ngrams['order']}-grams of the same text",
            f"{best_ngrams['mean']:.1f}",
        ),
        ("part-of-speech accuracy, UD English-EWT test, linear classifier", layers),
    ]
    generated = path.read_text("utf-8").partition("\n## ")[0].rstrip()
    lines = [generated, "", ABOUT_TEXT, "", "## Results", "", *as_table(("", ""), rows), "", ABOUT_LIMITS, ""]
    with atomic_file(path) as part:
        part.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
