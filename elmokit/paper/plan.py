"""The plan: which runs every table and figure of the paper needs. Tables, not code.

A run that several tables need has the same settings in all of them, and is made once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from elmokit.analysis.datasets import DATASETS
from elmokit.errors import InputError
from elmokit.paper.arms import BASELINE, ELMO, TUNED, UNTRAINED

Kind = Literal["task", "ensemble", "tuning", "coverage", "perplexity", "neighbors", "senses", "tags"]

TASK: Final = "task"
ENSEMBLE: Final = "ensemble"
TUNING: Final = "tuning"
COVERAGE: Final = "coverage"
PERPLEXITY: Final = "perplexity"
NEIGHBORS: Final = "neighbors"
SENSES: Final = "senses"
TAGS: Final = "tags"


@dataclass(frozen=True)
class PaperRun:
    """One run of the plan.

    ``row`` is a dataset of `elmokit.analysis.datasets` or of `elmokit.paper.evaluations`. ``arm`` is one of
    `elmokit.paper.arms`, or the encoder that an evaluation reads. ``seed`` is the number of members of an ensemble.
    """

    kind: Kind
    row: str
    arm: str
    seed: int = 0
    fraction: float = 1.0

    def __str__(self) -> str:
        share = "" if self.fraction == 1 else f", {self.fraction:.1%} of the data"
        if self.kind == ENSEMBLE:
            return f"{self.row}, {self.arm}, ensemble of {self.seed}"
        if self.kind == TASK:
            return f"{self.row}, {self.arm}{share}, seed {self.seed}"
        return f"{self.row}, {self.kind}, {self.arm}"


@dataclass(frozen=True)
class Block:
    """Every combination of rows, arms, fractions and seeds is a run."""

    rows: tuple[str, ...]
    arms: tuple[str, ...]
    seeds: int = 1
    fractions: tuple[float, ...] = (1.0,)
    kind: Kind = TASK

    def runs(self) -> Iterator[PaperRun]:
        """Yield the runs of the block."""
        for row in self.rows:
            for arm in self.arms:
                for fraction in self.fractions:
                    for seed in range(self.seeds):
                        yield PaperRun(self.kind, row, arm, seed, fraction)


FIVE_SEEDS = ("ner-wikigold", "ner-wnut17", "sst", "snli")
THREE_SEEDS = ("squad", "srl", "coref", "parse")
TUNED_ROWS = ("ner-wikigold", "ner-wnut17", "snli", "squad", "sst")
UNTUNED_ROWS = ("srl", "coref")
"""Rows whose text the paper did not tune on; its perplexity is measured."""
ABLATED = ("squad", "snli", "srl")
FRACTIONS = (0.001, 0.01, 0.1, 1.0)
ENCODERS = ("bilm", UNTRAINED, "cove", "context2vec", "glove")
SIGNALS = ("relation", "upos", "direction")
"""Rows of Table 6 besides parts of speech: the relation to the syntactic head, coarse tags, the side of the head. The
longest run comes first."""
BUDGETED = ("shared", "taglm", "forward", "words")
"""Encoders of one size, trained on the same 20 million tokens."""

TABLES: dict[str, tuple[Block, ...]] = {
    "table1": (
        Block(FIVE_SEEDS + THREE_SEEDS, ("glove",), kind=COVERAGE),
        Block(FIVE_SEEDS, (BASELINE, ELMO, UNTRAINED), seeds=5),
        Block(THREE_SEEDS, (BASELINE, ELMO, UNTRAINED), seeds=3),
        Block(TUNED_ROWS, ("bilm",), kind=TUNING),
        Block(UNTUNED_ROWS, ("bilm",), kind=PERPLEXITY),
        Block(("ner-wikigold", "ner-wnut17", "snli", "sst"), (TUNED,), seeds=5),
        Block(("squad",), (TUNED,), seeds=3),
        Block(("squad", "sst"), ("cove",), seeds=3),
    ),
    "table2": (
        Block(ABLATED, (BASELINE, "last", "lambda-1", "lambda-0.001"), seeds=3),
        Block(("snli", "srl"), ("cove-last", "cove"), seeds=3),
        Block(("ner-wikigold",), ("last", "lambda-1", "lambda-0.001", ELMO), seeds=5),
        Block(("snli", "srl"), ("last-no-gamma",), seeds=3),
    ),
    "table3": (
        Block(ABLATED, ("input", "both", "output"), seeds=3),
        Block(("coref",), ("input", "both"), seeds=3),
    ),
    "table4": (Block(("play",), ("glove", "bilm", UNTRAINED, "cove"), kind=NEIGHBORS),),
    "table5": (Block(("wsd",), ENCODERS, kind=SENSES),),
    "table6": (
        Block(SIGNALS, ("bilm",), kind=TAGS),
        Block(("pos",), ENCODERS, kind=TAGS),
        Block(("tag",), (BASELINE, ELMO), seeds=3),
    ),
    "table7": (Block(ABLATED, (BASELINE, "type", "elmo-alone", ELMO), seeds=3),),
    "figure1": (
        Block(("snli", "srl"), (BASELINE, ELMO), seeds=3, fractions=FRACTIONS),
        Block(("snli", "srl"), (UNTRAINED,), seeds=3, fractions=(0.1,)),
    ),
    "figure2": (Block(("ner-wikigold", "sst", "snli", "squad", "srl", "coref"), (ELMO,), seeds=3),),
    "questions": (
        Block(("ner-wikigold", "sst"), (ELMO, "dimension", "gated"), seeds=3),
        Block(("snli",), ("input", "both", "output", "gate"), seeds=3),
        Block(("ner-wikigold",), (ELMO, TUNED, "trained"), seeds=3),
        Block(("ner-wikigold",), BUDGETED, kind=PERPLEXITY),
        Block(("wsd",), BUDGETED, kind=SENSES),
        Block(("pos",), BUDGETED, kind=TAGS),
        Block(("ner-wikigold",), BUDGETED, seeds=3),
    ),
}
"""The runs of every table and figure, and of questions that the paper leaves open. Claims of the text stand with the
table that they are about."""

ENSEMBLES = {"table1": (("snli", (BASELINE, ELMO), 5), ("squad", (ELMO,), 3))}
"""Ensembles of the same runs: row, arms, number of seeds. They need the models of their members on one machine."""

ALL = "all"


def choose_tables(name: str) -> list[str]:
    """Return the tables and figures that a name stands for."""
    if name != ALL and name not in TABLES:
        raise InputError(f"there is no {name!r} to reproduce; choose {', '.join(TABLES)} or {ALL}")
    return list(TABLES) if name == ALL else [name]


def plan_runs(tables: Sequence[str], *, seeds: int | None = None, only: Sequence[str] = ()) -> list[PaperRun]:
    """Return the runs of tables, each once, in the order in which they are made.

    Evaluations come first, because they take minutes; then all runs seed by seed, so that half a table is useful.
    ``seeds`` limits the seeds of every row. ``only`` names rows or tasks, arms, and kinds of runs; a run needs one name
    of each of these that it mentions.
    """
    known = _names([run for table in TABLES for run in _runs_of(table, None)])
    for name in only:
        if not any(name in of_group for of_group in known.values()):
            listed = "; ".join(f"{group} {', '.join(of_group)}" for group, of_group in known.items())
            raise InputError(f"the plan has no {name!r}; it has {listed}")
    wanted = [names for of_group in known.values() if (names := set(only) & set(of_group))]
    runs = dict.fromkeys(run for table in tables for run in _runs_of(table, seeds))
    chosen = [run for run in runs if all({run.row, task_of(run.row), run.arm, run.kind} & names for names in wanted)]
    return sorted(chosen, key=_place)


def members(run: PaperRun) -> list[PaperRun]:
    """Return the runs whose models form an ensemble."""
    return [replace(run, kind=TASK, seed=seed) for seed in range(run.seed)]


def task_of(row: str) -> str | None:
    """Return the task of a row; None for an evaluation."""
    return next((one.task for one in DATASETS if one.name == row), None)


def _runs_of(table: str, seeds: int | None) -> Iterator[PaperRun]:
    for block in TABLES[table]:
        few = block if seeds is None else replace(block, seeds=min(seeds, block.seeds))
        yield from few.runs()
    for row, arms, number in ENSEMBLES.get(table, ()):
        size = number if seeds is None else min(seeds, number)
        if size > 1:
            yield from (PaperRun(ENSEMBLE, row, arm, size) for arm in arms)


def _place(run: PaperRun) -> tuple[int, int, float]:
    """Return the place of a run in the order; runs on less data come first."""
    if run.kind == TASK:
        return 1, run.seed, run.fraction
    return (2 if run.kind == ENSEMBLE else 0), 0, 0


def _names(runs: Iterable[PaperRun]) -> dict[str, list[str]]:
    """Return what a user may choose runs by."""
    runs = list(runs)
    rows = [*(run.row for run in runs), *(task for run in runs if (task := task_of(run.row)) is not None)]
    groups: dict[str, list[str]] = {
        "rows and tasks": rows,
        "arms": [run.arm for run in runs],
        "kinds of runs": [run.kind for run in runs],
    }
    return {group: list(dict.fromkeys(names)) for group, names in groups.items()}
