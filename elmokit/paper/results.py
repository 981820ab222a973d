"""Results of the plan, looked up in the file of runs alone: neither data nor models are needed."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.errors import InputError
from elmokit.paper.plan import ENSEMBLE, TABLES, TASK, Kind, PaperRun
from elmokit.paper.run_file import RunRecord
from elmokit.paper.settings import Recipes
from elmokit.paper.statistics import Scores

MOST_SEEDS = max(block.seeds for blocks in TABLES.values() for block in blocks)


class Results:
    """Finished runs with one biLM by what the plan calls them.

    A record counts if its settings are those of the plan now, and its inputs those of the newest record of its row.

    Args:
        records: Content of the file of runs, the oldest first.
        recipes: Recipes of the plan.
        elmo: Name of the biLM; that of the newest record by default.
    """

    def __init__(self, records: Mapping[str, RunRecord], recipes: Recipes, *, elmo: str | None = None) -> None:
        self.recipes = recipes
        self.elmo = elmo or next((one.elmo for one in reversed(list(records.values())) if "bilm" in one.inputs), "")
        named = [one for one in records.values() if one.elmo == self.elmo and "bilm" in one.inputs]
        if elmo is not None and records and not named:
            known = ", ".join(dict.fromkeys(one.elmo for one in records.values()))
            raise InputError(f"the file of runs has none with {elmo}; it has runs with {known}")
        self._newest = _newest_inputs([*records.values(), *named])  # those with the biLM of the page decide
        tasks = [one for one in records.values() if one.run.kind != ENSEMBLE and self._is_current(one)]
        identities = {one.identity for one in tasks}
        ensembles = [one for one in records.values() if one.run.kind == ENSEMBLE]
        self.used = [*tasks, *(one for one in ensembles if set(one.inputs["members"].split()) <= identities)]
        """The records that count."""
        self._by_settings = {_key(one.settings): one for one in self.used}

    def find(self, run: PaperRun) -> RunRecord | None:
        """Return the record of a run; None if it was not made."""
        return self._by_settings.get(_key(self.recipes.settings(run)))

    def runs(self, row: str, arm: str, *, fraction: float = 1.0) -> dict[int, RunRecord]:
        """Return the task runs of an arm by seed."""
        found = {seed: self.find(PaperRun(TASK, row, arm, seed, fraction)) for seed in range(MOST_SEEDS)}
        return {seed: record for seed, record in found.items() if record is not None}

    def scores(self, row: str, arm: str, part: str, *, fraction: float = 1.0) -> Scores:
        """Return the scores of an arm by seed; ``part`` is dev or test."""
        runs = self.runs(row, arm, fraction=fraction)
        return {seed: run.result[part][run.result["metric"]] for seed, run in runs.items()}

    def evaluation(self, kind: Kind, row: str, arm: str) -> Mapping[str, Any] | None:
        """Return the result of an evaluation; None if it was not made."""
        record = self.find(PaperRun(kind, row, arm))
        return None if record is None else record.result

    def ensemble(self, row: str, arm: str) -> tuple[int, Mapping[str, Any]] | None:
        """Return the size and the result of the largest ensemble of an arm; None if there is none."""
        for size in range(MOST_SEEDS, 1, -1):
            record = self.find(PaperRun(ENSEMBLE, row, arm, size))
            if record is not None:
                return size, record.result
        return None

    def _is_current(self, record: RunRecord) -> bool:
        return all(self._newest[_input_name(record, name)] == content for name, content in record.inputs.items())


def _newest_inputs(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the content of every input in the newest record that has it, by its name."""
    return {_input_name(record, name): content for record in records for name, content in record.inputs.items()}


def _input_name(record: RunRecord, name: str) -> str:
    return f"{name} {record.run.row}" if name == "data" else name


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)
