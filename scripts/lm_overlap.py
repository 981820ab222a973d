"""Measure how much of Table 1's test sets a biLM saw in pretraining, and how that affects the scores.

    python scripts/lm_overlap.py DATA RUNS TEXT... -o results/tasks-overlap.md

DATA is the folder of the data sets, RUNS that of a finished `elmokit reproduce table1`, and TEXT the biLM's training
text, one sentence per line. A sentence counts as seen if it equals a line of the text up to case, white space and
punctuation. Sentences with fewer than 40 letters and digits are left out, since they occur anywhere. If more than 1 %
of a test set's sentences were seen, every model of the row is scored on two parts: examples of which nothing was seen,
and examples of which half or more was seen.
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
from elmokit.tasks.names import get_task
from elmokit.tasks.saved import SharedParts, load_task
from elmokit.text.lines import read_lines

MIN_LETTERS = 40
WORTH_SCORING = 0.01  # of a test set's sentences
BATCH_SIZE = 32
ALL, UNSEEN, HALF_SEEN = "all", "nothing seen", "half or more seen"
NO_LETTERS = re.compile(r"[\W_]+")
SENTENCE_ENDS = re.compile(r"(?<=[.!?]) ")

INTRODUCTION = """\
How much of the test sets of [Table 1](tasks.md) the biLM saw in its training text, and how that affects the scores. A
sentence counts as seen if it equals a line of that text up to case, white space and punctuation. Sentences with fewer
than 40 letters and digits are left out. SQuAD's paragraphs are split after each token that ends with a period, a
question mark or an exclamation mark. A sentence that the training text splits elsewhere is missed, so the counts are
lower bounds."""

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the data sets")
    parser.add_argument("runs", type=Path, help="folder of the table's runs")
    parser.add_argument("texts", nargs="+", help="training text of the biLM")
    parser.add_argument("-o", "--output", type=Path, required=True, help="output page, a .md file")
    args = parser.parse_args()
    facts = gather_facts(["python", *map(shown_word, sys.argv)])  # before the page makes the tree dirty
    try:
        sets = [read_test_set(dataset, args.data) for dataset in DATASETS]
        seen = find_seen({sentence for one in sets for sentence in one.all_sentences()}, args.texts)
        page = "\n\n".join(
            [
                "# Overlap of the test sets with the biLM's training text",
                INTRODUCTION,
                "\n".join(f"- {name}: {value}" for name, value in facts.items()),
                overlap_table(sets, seen),
                "## Scores by overlap",
                ABOUT_SCORES,
                scores_table(sets, seen, args.runs),
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
    """Return the letters and digits in lower case, which do not depend on the tokenization."""
    return NO_LETTERS.sub("", text.lower())


def find_seen(sentences: set[str], texts: Sequence[str]) -> set[str]:
    """Return the sentences that occur in the texts."""
    return {bare for line in read_lines(texts) if (bare := as_compared(line.text)) in sentences}


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
        scores = {arm: score_parts(one, arm, parts, runs) for arm in ARMS}
        for name, places in parts.items():
            cells = [summarize(scores[arm][name], num_seeds=len(scores[arm][name])) for arm in ARMS]
            rows.append([one.dataset.title, name, f"{len(places):,}", *cells])
    return as_table(["data", "examples", "number", *(ARM_TITLES[arm] for arm in ARMS)], rows)


def score_parts(one: TestSet, arm: str, parts: Mapping[str, Sequence[int]], runs: Path) -> dict[str, dict[int, float]]:
    """Return the score of every seed on each non-empty part."""
    task, shared = get_task(one.dataset.task), SharedParts()
    folders = sorted(run_folder(runs, one.dataset, arm, 0).parent.glob("seed-*/model"))
    if not folders:
        raise InputError(
            f"{runs}: has no finished run of {one.dataset.name}, {arm}; finish `elmokit reproduce table1` first"
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
