"""Measure how much of the test and dev sets a biLM saw in pretraining, and how that affects its scores.

    python scripts/lm_overlap.py DATA TEXT... -o PAGE.md [--runs RUNS]
    python scripts/lm_overlap.py DATA --list

DATA is the folder of the data sets. TEXT is the biLM's training text: files with one sentence per line, or the folder
of a prepared text (`text` of a pretraining run), from which excluded sentences are already left out. A sentence counts
as seen if it equals a line of the text up to case, white space and punctuation. Sentences with fewer than 40 letters
and digits are left out, since they occur anywhere.

RUNS is the folder of a finished `elmokit reproduce table1 --keep-models`. With it, every row of that table whose test
set was seen by more than 1 % is scored on two parts: examples of which nothing was seen, and examples of which half or
more was seen.

`--list` prints the setting `data.exclude` of a pretraining run that leaves out all these sets.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.analysis.datasets import DATASETS, DataSet
from elmokit.atomic import atomic_file
from elmokit.errors import ElmokitError, InputError
from elmokit.paper.arms import ARMS, BASELINE, ELMO, UNTRAINED
from elmokit.paper.plan import TASK, PaperRun
from elmokit.paper.statistics import show_scores
from elmokit.paper.tables import NOTHING, as_table
from elmokit.paper.workshop import run_folder
from elmokit.readers.plain_text import read_texts
from elmokit.runs.provenance import gather_facts, shown_word
from elmokit.tasks.names import get_task
from elmokit.tasks.saved import SharedParts, load_task
from elmokit.text.corpus import Corpus
from elmokit.text.exclusion import MIN_LETTERS, split_texts
from elmokit.text.lines import find_inputs, read_lines

COMPARED = (BASELINE, UNTRAINED, ELMO)
WORTH_SCORING = 0.01  # of a test set's sentences
BATCH_SIZE = 32
ALL, UNSEEN, HALF_SEEN = "all", "nothing seen", "half or more seen"
NO_LETTERS = re.compile(r"[\W_]+")

TEST_SETS = {  # every test and dev set, by its files below the data folder
    "WNUT-17": ("ner/wnut17.dev.conll.xz", "ner/wnut17.test.conll.xz"),
    "Wikigold": ("ner/wikigold.conll.xz",),  # split by document
    "SST-5": ("sst/dev.txt.xz", "sst/test.txt.xz"),
    "SNLI": ("snli/snli_1.0_dev.jsonl.xz", "snli/snli_1.0_test.jsonl.xz"),
    "SQuAD": ("squad/train-small.json.xz", "squad/test-small.json.xz"),  # dev is a part of train-small
    "EWT PropBank": ("srl/ewt-propbank-dev.conll.xz", "srl/ewt-propbank-test.conll.xz"),
    "EWT trees": ("trees/ewt.dev.ptb.xz", "trees/ewt.test.ptb.xz"),
    "UD English-EWT": ("pos/en_ewt-ud-dev.conllu.xz", "pos/en_ewt-ud-test.conllu.xz"),
    "UD Latin-Perseus": ("pos/la_perseus-ud-*.conllu.xz",),  # dev is a part of train
    "LitBank": ("coref/litbank-conll.tar.xz",),  # split by document
    "GAP": ("coref/gap-*.tsv.xz",),
    "word senses": ("wsd/*/*.data.xml*",),
    "Multi30k": ("mt/multi30k.val.tok.*.xz", "mt/multi30k.test_2016_flickr.tok.*.xz"),
    "Europarl": ("mt/europarl.val.*.xz", "mt/europarl.test.*.xz"),
    "BLiMP": ("blimp/blimp.tar.xz",),
    "lexical substitution": ("lexsub/lst_all.preprocessed.xz",),
    "STS benchmark": ("sts/sts-*.csv.xz",),
    "held-out text": ("lm/*.dev.txt.xz", "lm/*.test.txt.xz"),
}

INTRODUCTION = """\
How much of each test and dev set the biLM saw in its training text. A sentence counts as seen if it equals a sentence
of that text up to case, white space and punctuation. Sentences with fewer than 40 letters and digits are left out.
Paragraphs are split after a period, a question mark or an exclamation mark. A sentence that the training text splits
elsewhere is missed, so the counts are lower bounds."""

ABOUT_EXAMPLES = """\
Examples of the test sets of [Table 1](tasks.md) by the share of their sentences that was seen. Of SQuAD, only the
paragraphs count."""

ABOUT_SCORES = """\
Every model of the table on examples of which nothing was seen, and on examples of which half or more was seen: mean and
standard deviation over the seeds. The biLM saw only the paragraphs, neither questions nor answers."""


@dataclass(frozen=True, eq=False)
class TestSet:
    """Examples of a row, each with its long enough sentences, normalized for comparison."""

    dataset: DataSet
    examples: list[Any]
    sentences: list[list[str]]

    def all_sentences(self) -> set[str]:
        """Return the distinct sentences."""
        return {sentence for one in self.sentences for sentence in one}

    def shares(self, seen: set[str]) -> list[float]:
        """Return the share of each example that was seen."""
        return [sum(sentence in seen for sentence in one) / len(one) if one else 0.0 for one in self.sentences]


@dataclass(frozen=True)
class DataFile:
    """Distinct long enough sentences of a file of a test or dev set, normalized for comparison."""

    title: str
    name: str
    sentences: frozenset[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the data sets")
    parser.add_argument("texts", nargs="*", help="training text of the biLM: files, or the folder of a prepared text")
    parser.add_argument("-o", "--output", type=Path, help="output page, a .md file")
    parser.add_argument("--runs", type=Path, help="folder of the runs of Table 1, to score its models by overlap")
    parser.add_argument("--list", action="store_true", help="print the setting data.exclude, and nothing else")
    args = parser.parse_args()
    if not args.list and not (args.texts and args.output):
        parser.error("give the training text and -o PAGE.md, or --list")
    facts = gather_facts(["python", *map(shown_word, sys.argv)])  # before the page makes the tree dirty
    try:
        if args.list:
            names = [str(path) for _, path in find_files(args.data)]
            read_lines(names)  # checks that they exist
            print(f"data.exclude={json.dumps(names, ensure_ascii=False)}")
            return
        page = "\n\n".join(write_parts(args.data, args.texts, args.runs, facts))
        with atomic_file(args.output) as part:
            part.write_text(f"{page}\n", "utf-8")
    except ElmokitError as error:
        sys.exit(f"lm_overlap: {error}")


def write_parts(data: Path, texts: Sequence[str], runs: Path | None, facts: Mapping[str, str]) -> list[str]:
    """Return the parts of the page."""
    files = [DataFile(title, str(path.relative_to(data)), read_sentences(path)) for title, path in find_files(data)]
    sets = [read_test_set(dataset, data) for dataset in DATASETS]
    wanted = set().union(*(file.sentences for file in files), *(one.all_sentences() for one in sets))
    seen = find_seen(wanted, texts)
    parts = [
        "# Overlap of the test sets with the biLM's training text",
        INTRODUCTION,
        "\n".join(f"- {name}: {value}" for name, value in facts.items()),
        files_table(files, seen),
        "## Examples",
        ABOUT_EXAMPLES,
        overlap_table(sets, seen),
    ]
    if runs is not None:
        parts += ["## Scores by overlap", ABOUT_SCORES, scores_table(sets, seen, runs)]
    return parts


def find_files(data: Path) -> list[tuple[str, Path]]:
    """Return the title and path of every file of the test sets; raise InputError if a set has none."""
    return [
        (title, Path(name))
        for title, patterns in TEST_SETS.items()
        for name in find_inputs([data / pattern for pattern in patterns])
    ]


def read_sentences(path: Path) -> frozenset[str]:
    """Return the distinct sentences of a data file that are long enough."""
    pieces = (as_compared(piece) for text in read_texts(path) for piece in split_texts(text))
    return frozenset(piece for piece in pieces if len(piece) >= MIN_LETTERS)


def read_test_set(dataset: DataSet, data: Path) -> TestSet:
    task = get_task(dataset.task)
    read_test = dataset.read(task, *dataset.find_files(data)).read_test
    assert read_test is not None
    examples = list(read_test())
    texts = [[" ".join(tokens) for column in task.sequences(one) for tokens in column] for one in examples]
    if dataset.task == "squad":  # split as data.exclude does, before it is tokenized
        texts = [split_texts(one.context.text) for one in examples]
    sentences = [[bare for text in one if len(bare := as_compared(text)) >= MIN_LETTERS] for one in texts]
    return TestSet(dataset, examples, sentences)


def as_compared(text: str) -> str:
    """Return the letters and digits in lower case, which do not depend on the tokenization."""
    return NO_LETTERS.sub("", text.lower())


def find_seen(sentences: set[str], texts: Sequence[str]) -> set[str]:
    """Return the sentences that occur in the texts."""
    lines = (line for name in find_inputs(texts) for line in iter_sentences(name))
    return {bare for line in lines if (bare := as_compared(line)) in sentences}


def iter_sentences(name: str) -> Iterator[str]:
    """Yield the sentences of a text file or of a prepared text."""
    if not Path(name).is_dir():
        yield from (line.text for line in read_lines([name]))
        return
    corpus = Corpus.open(name)
    words = list(corpus.word_counts())
    start = 0
    for length in corpus.lengths.tolist():
        yield " ".join(words[word] for word in corpus.tokens[start : start + length].tolist())
        start += length


def files_table(files: Iterable[DataFile], seen: set[str]) -> str:
    """Return the table of distinct sentences per file."""
    rows = []
    for file in files:
        found = len(file.sentences & seen)
        share = f"{found / len(file.sentences):.1%}" if file.sentences else NOTHING
        rows.append([file.title, file.name, f"{len(file.sentences):,}", f"{found:,}", share])
    return as_table(["set", "file", "sentences", "of these seen", "share"], rows)


def parts_of(one: TestSet, seen: set[str]) -> dict[str, list[int]]:
    """Return the indices of the examples in each part."""
    shares = one.shares(seen)
    return {
        ALL: list(range(len(shares))),
        UNSEEN: [place for place, share in enumerate(shares) if share == 0],
        HALF_SEEN: [place for place, share in enumerate(shares) if share >= 0.5],
    }


def overlap_table(sets: Iterable[TestSet], seen: set[str]) -> str:
    """Return the table of counts: distinct sentences, and examples."""
    rows = []
    for one in sets:
        sentences, parts = one.all_sentences(), parts_of(one, seen)
        found, num_examples = len(sentences & seen), len(parts[ALL])
        share = f"{found / len(sentences):.1%}" if sentences else NOTHING
        counts = (len(sentences), found), (num_examples, num_examples - len(parts[UNSEEN]), len(parts[HALF_SEEN]))
        of_sentences, of_examples = ([f"{count:,}" for count in some] for some in counts)
        rows.append([one.dataset.title, *of_sentences, share, *of_examples])
    return as_table(["data", "sentences", "of these seen", "share", "examples", "seen in part", HALF_SEEN], rows)


def scores_table(sets: Iterable[TestSet], seen: set[str], runs: Path) -> str:
    """Return the arms' scores for the rows that were seen in part."""
    rows = []
    for one in sets:
        sentences = one.all_sentences()
        if len(sentences & seen) <= WORTH_SCORING * len(sentences):
            continue
        parts = parts_of(one, seen)
        scores = {arm: score_parts(one, arm, parts, runs) for arm in COMPARED}
        for name, places in parts.items():
            cells = [show_scores(scores[arm][name]) if scores[arm][name] else NOTHING for arm in COMPARED]
            rows.append([one.dataset.title, name, f"{len(places):,}", *cells])
    return as_table(["data", "examples", "number", *(ARMS[arm].title for arm in COMPARED)], rows)


def score_parts(one: TestSet, arm: str, parts: Mapping[str, Sequence[int]], runs: Path) -> dict[str, dict[int, float]]:
    """Return the score of every seed on each non-empty part."""
    task, shared = get_task(one.dataset.task), SharedParts()
    folders = sorted(run_folder(runs, PaperRun(TASK, one.dataset.name, arm)).glob("seed-*/model"))
    if not folders:
        raise InputError(
            f"{runs}: has no finished run of {one.dataset.name}, {arm}; "
            "make them with: elmokit reproduce table1 --keep-models"
        )
    found: dict[str, dict[int, float]] = {name: {} for name in parts}
    for number, folder in enumerate(folders):
        print(f"{one.dataset.name}, {arm}, {folder.parent.name}", file=sys.stderr, flush=True)
        model = load_task(folder, expected_task=task, shared=shared)
        predictions = model.predict_examples(one.examples, batch_size=BATCH_SIZE)
        for name, part in parts.items():
            if part:
                scores = task.score([one.examples[place] for place in part], [predictions[place] for place in part])
                found[name][number] = scores[one.dataset.metric]
    return found


if __name__ == "__main__":
    main()
