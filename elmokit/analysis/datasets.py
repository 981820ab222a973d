"""Datasets of the tasks: their files, and splits where they have none.

They replace the paper's datasets, which are not free. A table names the data it used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elmokit.analysis.splits import split_by_document
from elmokit.errors import InputError
from elmokit.readers.conll2003 import TaggedSentence
from elmokit.readers.conll2012 import Document
from elmokit.readers.conllu import read_conllu
from elmokit.tasks.materials import TaskData, read_data, text_of
from elmokit.tasks.names import get_task
from elmokit.tasks.squad import hold_out_contexts
from elmokit.tasks.task import AnyTask

PACKED = ("", ".xz", ".gz")  # suffixes of a file's name


@dataclass(frozen=True)
class DataSet:
    """A dataset of a task, a row of Table 1."""

    name: str
    """Name on the command line, and of the folder of its runs."""
    task: str
    title: str
    metric: str
    """The task's metric, by which its models are selected and compared."""
    files: tuple[str, ...]
    """Paths below the data folder."""
    read: Callable[..., TaskData]
    """(task, path of every file) -> examples."""
    split: str
    """Description of the split."""

    def find_files(self, data_dir: Path) -> list[Path]:
        """Return the paths of the files, compressed or not."""
        return find_files(data_dir, self.files, self.name)

    def read_text(self, data_dir: Path) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        """Return the sentences of the training and the dev part, each once; of SQuAD the paragraphs alone.

        Phrases of SST, which are examples of their own in training, are left out.
        """
        task, paths = get_task(self.task), self.find_files(data_dir)
        data = self.read(task, *paths)
        train = task.read(paths[0]) if self.read is _read_given else data.train
        return text_of(task, train), text_of(task, data.dev)

    def read_questions(self, data_dir: Path) -> list[Sequence[str]]:
        """Return SQuAD's dev questions, each once."""
        task, paths = get_task(self.task), self.find_files(data_dir)
        columns = (task.sequences(example) for example in self.read(task, *paths).dev)
        return list(dict.fromkeys(tuple(tokens) for column in columns for part in column[1:] for tokens in part))


def find_files(data_dir: Path, names: Sequence[str], row: str) -> list[Path]:
    """Return the paths of files, compressed or not; ``row`` is what needs them."""
    found = []
    for name in names:
        paths = [data_dir / f"{name}{end}" for end in PACKED]
        existing = [path for path in paths if path.is_file()]
        if not existing:
            raise InputError(
                f"{data_dir}: has no {name} (or {' or '.join(PACKED[1:])} of it), a file of {row}; "
                "put it there, or choose other rows with --only"
            )
        found.append(existing[0])
    return found


def _read_given(task: AnyTask, train: Path, dev: Path, test: Path) -> TaskData:
    return read_data(task, train=train, dev=dev, test=test)


def _divide_entities(task: AnyTask, path: Path) -> TaskData:
    sentences: list[TaggedSentence] = task.read_training(path)
    parts = split_by_document(sentences, lambda one: one.document, held_out=20, between="-DOCSTART-")
    return TaskData(parts.train, parts.dev, lambda: parts.test)


def _divide_questions(task: AnyTask, train: Path, test: Path) -> TaskData:
    learned_from, dev = hold_out_contexts(task.read_training(train))
    return TaskData(learned_from, dev, partial(task.read, test))


def _divide_documents(task: AnyTask, path: Path) -> TaskData:
    documents: list[Document] = task.read_training(path)
    parts = split_by_document(documents, lambda one: one.name, held_out=10, between="#begin document")
    return TaskData(parts.train, parts.dev, lambda: parts.test)


def _read_tags(task: AnyTask, *paths: Path) -> TaskData:
    del task  # its own format is another one
    train, dev, test = ([TaggedSentence(one.tokens, one.xpos, 0) for one in read_conllu(path)] for path in paths)
    return TaskData(train, dev, lambda: test)


def _three(form: str) -> tuple[str, ...]:
    return tuple(form.format(part) for part in ("train", "dev", "test"))


PUBLISHED_SPLIT = "as published"

DATASETS = (
    DataSet(
        name="ner-wikigold",
        task="ner",
        title="Wikigold",
        metric="f1",
        files=("ner/wikigold.conll",),
        read=_divide_entities,
        split="60/20/20 % of the documents, by a fixed seed",
    ),
    DataSet("ner-wnut17", "ner", "WNUT-17", "f1", _three("ner/wnut17.{}.conll"), _read_given, PUBLISHED_SPLIT),
    DataSet("sst", "sst", "SST-5", "accuracy", _three("sst/{}.txt"), _read_given, PUBLISHED_SPLIT),
    DataSet(
        name="snli",
        task="snli",
        title="SNLI",
        metric="accuracy",
        files=("snli/snli_1.0_train-100k.jsonl", "snli/snli_1.0_dev.jsonl", "snli/snli_1.0_test.jsonl"),
        read=_read_given,
        split="as published, with 100,000 of the training pairs to choose from",
    ),
    DataSet(
        name="squad",
        task="squad",
        title="SQuAD, a part",
        metric="f1",
        files=("squad/train-small.json", "squad/test-small.json"),
        read=_divide_questions,
        split="a tenth of the training paragraphs is dev, by a fixed seed",
    ),
    DataSet(
        name="srl",
        task="srl",
        title="EWT PropBank",
        metric="f1",
        files=_three("srl/ewt-propbank-{}.conll"),
        read=_read_given,
        split=PUBLISHED_SPLIT,
    ),
    DataSet(
        name="coref",
        task="coref",
        title="LitBank",
        metric="f1",
        files=("coref/litbank-conll.tar",),
        read=_divide_documents,
        split="80/10/10 % of the documents, by a fixed seed",
    ),
    DataSet("parse", "parse", "EWT trees", "f1", _three("trees/ewt.{}.ptb"), _read_given, PUBLISHED_SPLIT),
    DataSet("tag", "tag", "UD EWT", "accuracy", _three("pos/en_ewt-ud-{}.conllu"), _read_tags, PUBLISHED_SPLIT),
)


def find_dataset(name: str) -> DataSet:
    """Return the dataset of this name."""
    return next(one for one in DATASETS if one.name == name)


def choose_datasets(names: Sequence[str]) -> list[DataSet]:
    """Return the rows with these names or tasks, in the table's order; all rows if there are no names."""
    unknown = [name for name in names if not any(name in (one.name, one.task) for one in DATASETS)]
    if unknown:
        known = ", ".join(one.name for one in DATASETS)
        raise InputError(f"the table has no row {unknown[0]!r}; its rows are {known}")
    return [one for one in DATASETS if not names or one.name in names or one.task in names]
