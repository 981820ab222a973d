"""Model card of a task model."""

from collections.abc import Mapping

from elmokit.tasks.recipe import TaskRecipe

PLACES = {
    "input": "concatenated with the token vectors",
    "output": "concatenated with the output of the lowest recurrent layer",
    "both": "concatenated with the token vectors and with the output of the lowest recurrent layer",
}


def task_card(
    *, name: str, task: str, recipe: TaskRecipe, num_parameters: int, has_bilm: bool, scores: Mapping[str, float]
) -> str:
    """Return the README.md of a folder called ``name``. ``scores`` are shown by their names."""
    training, elmo = recipe.training, recipe.elmo
    part = "" if training.max_examples is None else f", at most {training.max_examples:,} examples"
    bilm = "untrained" if elmo.untrained else "frozen, in the folder bilm"
    rows = {
        "Parameters": f"{num_parameters:,} trained for the task",
        "ELMo": f"{bilm}; {PLACES[elmo.place]}" if has_bilm and elmo.place != "none" else "none",
        "Trained with": f"{training.optimizer}, learning rate {training.learning_rate:g}, "
        f"batches of {training.batch_size}, seed {training.seed}{part}",
        **{score: f"{value:.4f}" for score, value in scores.items()},
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"""---
library_name: elmokit
tags: [elmo, {task}]
---

# {name}

A model of the task {task}, as in Peters et al. 2018, trained with elmokit.

```
elmokit task predict {task} {name} lines.txt     format of a line: elmokit task predict --help
elmokit task evaluate {task} {name} labeled.txt
```

| | |
|---|---|
{table}

`sha256sum -c SHA256SUMS` checks the files; so does loading, with the subfolders. This card is not part of the
sums: edit it as you like.
"""
