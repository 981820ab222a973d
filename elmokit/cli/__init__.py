"""The command line: each verb parses its options, calls one function of a room and shows the result.

Data goes to stdout and messages to stderr. Exit codes: 0, 1 (failed), 2 (usage), 130 (interrupted).
Nothing heavy is imported here: ``elmokit --help`` must answer at once.
"""

from elmokit.cli import (
    analysis,
    checking,
    embedding,
    encoder_verbs,
    evaluating,
    finetuning,
    indexing,
    models,
    pretraining,
    reproducing,
    scoring,
    serving,
    task_verbs,
)
from elmokit.cli.app import main, run

__all__ = [
    "analysis",
    "checking",
    "embedding",
    "encoder_verbs",
    "evaluating",
    "finetuning",
    "indexing",
    "main",
    "models",
    "pretraining",
    "reproducing",
    "run",
    "scoring",
    "serving",
    "task_verbs",
]
