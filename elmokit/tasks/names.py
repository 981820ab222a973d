"""The six tasks of the paper, by name. A task is imported when it is asked for."""

from importlib import import_module

from elmokit.errors import InputError
from elmokit.tasks.task import AnyTask

TASKS = {
    "coref": "elmokit.tasks.coref",
    "ner": "elmokit.tasks.ner",
    "snli": "elmokit.tasks.snli",
    "squad": "elmokit.tasks.squad",
    "srl": "elmokit.tasks.srl",
    "sst": "elmokit.tasks.sst",
}
"""Name -> the module whose ``TASK`` it is."""


def get_task(name: str) -> AnyTask:
    """The task of that name."""
    if name not in TASKS:
        raise InputError(f"there is no task {name!r}; the tasks are {', '.join(TASKS)}")
    task: AnyTask = import_module(TASKS[name]).TASK
    return task
