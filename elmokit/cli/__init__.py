"""The command line: each verb reads its options, imports its room and calls one function.

Data goes to stdout and messages to stderr. Exit codes: 0, 1 (failed), 2 (usage), 130 (interrupted).
Nothing heavy is imported here, so that ``elmokit --help`` answers at once.
"""

from elmokit.cli import analysing, embedding, finetuning, pretraining, reproducing, scoring, task_verbs
from elmokit.cli.app import main, run

__all__ = [
    "analysing",
    "embedding",
    "finetuning",
    "main",
    "pretraining",
    "reproducing",
    "run",
    "scoring",
    "task_verbs",
]
