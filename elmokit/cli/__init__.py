"""The command line: each verb reads its options, imports its room and calls one function.

Data goes to stdout and messages to stderr. Exit codes: 0, 1 (failed), 2 (usage), 130 (interrupted).
Nothing heavy is imported here, so that ``elmokit --help`` answers at once.
"""

from elmokit.cli import embedding, finetuning, pretraining, scoring
from elmokit.cli.app import main, run

__all__ = ["embedding", "finetuning", "main", "pretraining", "run", "scoring"]
