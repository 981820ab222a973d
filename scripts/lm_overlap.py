"""Say how much of the test sets of Table 1 a biLM has read while it learned, and what that does to the scores.

    python scripts/lm_overlap.py DATA RUNS TEXT... -o results/tasks-overlap.md

DATA is the folder of the data sets and RUNS that of a finished `elmokit reproduce table1`; the texts are what the biLM
learned from, a sentence a line. A sentence counts as read if it stands there as a line, but for case, white space and
punctuation; those of fewer than 40 letters and digits are left out, since they stand anywhere. Where more than a
hundredth of the test set's sentences was read, every model of the row is scored on both parts: the examples of which
nothing was read, and those of which half or more was.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.analysis.datasets import DATASETS, DataSet
from elmokit.analysis.table1 import ARMS, run_folder
from elmokit.analysis.table1_summary import ARM_TITLES, NOTHING, as_table, summarize
from elmokit.atomic import atomic_file
from elmokit.errors import ElmokitError, InputError
from elmokit.runs.provenance import gather_facts, shown_word
from elmokit.tasks.evaluation import predict
from elmokit.tasks.names import get_task
from elmokit.tasks.saved import SharedParts, load_task_model
from elmokit.text.lines import read_lines

MIN_LETTERS = 40
WORTH_SCORING = 0.01  # of a test set's sentences
BATCH_SIZE = 32
ALL, UNREAD, HALF_READ = "all", "nothing read", "half or more read"
NO_LETTERS = re.compile(r"[\W_]+")
SENTENCE_ENDS = re.compile(r"(?<=[.!?]) ")

INTRODUCTION = """\
How much of the test sets of [Table 1](tasks.md) stands in the text that the biLM learned from, and what that does to
the scores. A sentence counts as read if it is a line of that text, but for case, white space and punctuation. Sentences
of fewer than 40 letters and digits are left out. SQuAD's paragraphs are divided after each token that ends with a full
stop, a question mark or an exclamation mark; a sentence that the text divides elsewhere is missed, so what is counted
is the least."""

ABOUT_SCORES = """\
Every model of the table on the examples of which nothing was read, and on those of which half or more was: mean and
standard deviation over the seeds. The biLM has read the text alone: no question, and not which words answer it."""


@dataclass(frozen=True, eq=False)
class TestSet:
    """The examples of a row, and of each the sentences that are long enough, in the form in which they are compared."""

    dataset: DataSet
    examples: list[Any]
    sentences: list[list[str]]

    def all_sentences(self) -> set[str]:
        """Each sentence once."""
        return {sentence for one in self.sentences for sentence in one}

    def shares(self, read: set[str]) -> list[float]:
        """How much of each example was read."""
        return [sum(sentence in read for sentence in one) / len(one) if one else 0.0 for one in self.sentences]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of the data sets")
    parser.add_argument("runs", type=Path, help="the folder of the table's runs")
    parser.add_argument("texts", nargs="+", help="what the biLM learned from")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page, a .md file")
    args = parser.parse_args()
    facts = gather_facts(["python", *map(shown_word, sys.argv)])  # before the tree has the page in it
    try:
        sets = [read_test_set(dataset, args.data) for dataset in DATASETS]
        read = find_read({sentence for one in sets for sentence in one.all_sentences()}, args.texts)
        page = "\n\n".join(
            [
                "# How much of the test sets the biLM has read",
                INTRODUCTION,
                "\n".join(f"- {name}: {value}" for name, value in facts.items()),
                overlap_table(sets, read),
                "## Scores of both parts",
                ABOUT_SCORES,
                scores_table(sets, read, args.runs),
            ]
        )
        with atomic_file(args.output) as part:
            part.write_text(f"{page}\n", "utf-8")
    except ElmokitError as error:
        sys.exit(f"lm_overlap: {error}")


def read_test_set(dataset: DataSet, data: Path) -> TestSet:
    task = get_task(dataset.task)
    read_test = dataset.read(task, *dataset.find_files(data)).read_test
    assert read_test is not None
    examples = list(read_test())
    texts = [[" ".join(tokens) for column in task.sequences(one) for tokens in column] for one in examples]
    if dataset.task == "squad":  # a paragraph and a question
        texts = [SENTENCE_ENDS.split(paragraph) for paragraph, *_ in texts]
    sentences = [[bare for text in one if len(bare := as_compared(text)) >= MIN_LETTERS] for one in texts]
    return TestSet(dataset, examples, sentences)


def as_compared(text: str) -> str:
    """Only letters and digits, in lower case: however a text was divided into tokens, these are the same."""
    return NO_LETTERS.sub("", text.lower())


def find_read(sentences: set[str], texts: Sequence[str]) -> set[str]:
    """Which of the sentences stand in the texts."""
    return {bare for line in read_lines(texts) if (bare := as_compared(line.text)) in sentences}


def parts_of(one: TestSet, read: set[str]) -> dict[str, list[int]]:
    """Which examples are in which part."""
    shares = one.shares(read)
    return {
        ALL: list(range(len(shares))),
        UNREAD: [place for place, share in enumerate(shares) if share == 0],
        HALF_READ: [place for place, share in enumerate(shares) if share >= 0.5],
    }


def overlap_table(sets: Iterable[TestSet], read: set[str]) -> str:
    """Counts of sentences, each once, and of examples."""
    rows = []
    for one in sets:
        sentences, parts = one.all_sentences(), parts_of(one, read)
        found, num_examples = len(sentences & read), len(parts[ALL])
        share = f"{found / len(sentences):.1%}" if sentences else NOTHING
        counts = (len(sentences), found), (num_examples, num_examples - len(parts[UNREAD]), len(parts[HALF_READ]))
        of_sentences, of_examples = ([f"{count:,}" for count in some] for some in counts)
        rows.append([one.dataset.title, *of_sentences, share, *of_examples])
    return as_table(["data", "sentences", "of these read", "share", "examples", "read in part", HALF_READ], rows)


def scores_table(sets: Iterable[TestSet], read: set[str], runs: Path) -> str:
    """The arms' scores of the rows that were read in part."""
    rows = []
    for one in sets:
        sentences = one.all_sentences()
        if len(sentences & read) <= WORTH_SCORING * len(sentences):
            continue
        parts = parts_of(one, read)
        scores = {arm: score_parts(one, arm, parts, runs) for arm in ARMS}
        for name, places in parts.items():
            cells = [summarize(scores[arm][name], num_seeds=len(scores[arm][name])) for arm in ARMS]
            rows.append([one.dataset.title, name, f"{len(places):,}", *cells])
    return as_table(["data", "examples", "number", *(ARM_TITLES[arm] for arm in ARMS)], rows)


def score_parts(one: TestSet, arm: str, parts: Mapping[str, Sequence[int]], runs: Path) -> dict[str, dict[int, float]]:
    """Of each part that is not empty, the score of every seed."""
    task, shared = get_task(one.dataset.task), SharedParts()
    folders = sorted(run_folder(runs, one.dataset, arm, 0).parent.glob("seed-*/model"))
    if not folders:
        raise InputError(f"{runs}: no finished run of {one.dataset.name}, {arm}; finish the table first")
    found: dict[str, dict[int, float]] = {name: {} for name in parts}
    for number, folder in enumerate(folders):
        print(f"{one.dataset.name}, {arm}, {folder.parent.name}", file=sys.stderr, flush=True)
        saved = load_task_model(folder, expected_task=task, shared=shared)
        said = predict(task, saved.model, saved.columns, saved.labels, one.examples, batch_size=BATCH_SIZE)
        for name, part in parts.items():
            if part:
                scores = task.score([one.examples[place] for place in part], [said[place] for place in part])
                found[name][number] = scores[one.dataset.metric]
    return found


if __name__ == "__main__":
    main()
