"""The tasks by name, with what help texts need to know of them. Importing this module does not import torch.

To add a task, write its module with a class and ``TASK``, add a row here, and add its recipe to ``recipes/tasks``.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.tasks.task import AnyTask


@dataclass(frozen=True)
class TaskInfo:
    """Help texts of a task, and the module that has its ``TASK``."""

    module: str
    files: str
    """Format of its labeled files."""
    line: str
    """Meaning of a line of typed text."""
    prompt: str
    """The same, for whoever types."""


SENTENCE = "one sentence per line"

TASKS = {
    "classify": TaskInfo(
        module="elmokit.tasks.classify",
        files="a label, a tab and a text per line; any labels",
        line="a text",
        prompt="one text per line",
    ),
    "coref": TaskInfo(
        module="elmokit.tasks.coref",
        files="CoNLL-2012 columns with coreference; a folder or archive of them",
        line="part of a document; an empty line begins another document",
        prompt="running text, an empty line between documents",
    ),
    "ner": TaskInfo(
        module="elmokit.tasks.ner",
        files="CoNLL-2003 columns: one token per line, its tag (BIO, IOB1) last",
        line="a sentence",
        prompt=SENTENCE,
    ),
    "parse": TaskInfo(
        module="elmokit.tasks.parse",
        files="constituency trees in Penn Treebank brackets, one per line",
        line="a sentence",
        prompt=SENTENCE,
    ),
    "snli": TaskInfo(
        module="elmokit.tasks.snli",
        files="SNLI's JSON lines",
        line="a premise, a tab, a hypothesis",
        prompt="a premise, a tab and a hypothesis per line",
    ),
    "squad": TaskInfo(
        module="elmokit.tasks.squad",
        files="SQuAD 1.1's JSON",
        line="a paragraph, a tab, a question",
        prompt="a paragraph, a tab and a question per line",
    ),
    "srl": TaskInfo(
        module="elmokit.tasks.srl",
        files="CoNLL-2012 columns with roles",
        line="a sentence with stars around each predicate: She *sold* it .",
        prompt=f"{SENTENCE}, with stars around each predicate, as in: She *sold* it .",
    ),
    "sst": TaskInfo(
        module="elmokit.tasks.sst",
        files="trees of the Stanford Sentiment Treebank",
        line="a sentence",
        prompt=SENTENCE,
    ),
    "tag": TaskInfo(
        module="elmokit.tasks.tag",
        files="one token and its tag per line; any tags",
        line="a sentence",
        prompt=SENTENCE,
    ),
}


def get_task(name: str) -> "AnyTask":
    """Return the task of that name."""
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}; known: {', '.join(TASKS)}")
    task: AnyTask = import_module(TASKS[name].module).TASK
    return task
