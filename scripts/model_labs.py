"""Models to measure side by side, each with a cache of its measurements, and the yardstick beside them."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from en_small_results import SCRIPTS, Command, Found, Lab, Section

from elmokit.atomic import atomic_file
from elmokit.errors import InputError
from elmokit.weights.bundled import find_model
from elmokit.weights.sums import SUMS

YARDSTICK = "all-MiniLM-L6"
KEPT = re.compile(r"at-(\d+)")  # a model that a run kept


@dataclass(frozen=True)
class ModelLab(Lab):
    """Cache of one model's measurements."""

    folder: Path
    name: str
    """The name in tables."""

    @property
    def model(self) -> Path:
        """The model's folder."""
        return self.folder

    def claim(self) -> None:
        """Raise InputError if the cache has measurements of another model."""
        path, sums = self.work / "measured.sums", (self.folder / SUMS).read_text("utf-8")
        if path.exists() and path.read_text("utf-8") != sums:
            raise InputError(f"{self.work}: has measurements of another model than {self.folder}; use another folder")
        with atomic_file(path) as part:
            part.write_text(sums, "utf-8")

    def _named(self, path: Path) -> str:
        if path.is_relative_to(self.folder):
            return str(Path(self.name) / path.relative_to(self.folder))
        if path.is_relative_to(self.run):
            return str(Path("runs", self.run.name) / path.relative_to(self.run))
        return super()._named(path)


@dataclass(frozen=True)
class Bench:
    """All models to measure, and the yardstick."""

    labs: list[ModelLab]
    data: Path
    work: Path
    yardstick: Path | None
    has_control: bool = True
    """Probe an untrained model of each shape, too."""

    def measure_all(self, name: str, command: Callable[[ModelLab], Command]) -> dict[str, Found]:
        """Return the output of a command for every model."""
        return {lab.name: lab.measure(name, command(lab)) for lab in self.labs}

    def shown(self, command: Callable[[ModelLab], Command]) -> Section:
        """Return a command as a code block, with MODEL for the models."""
        shown = [lab.shown(command(lab)).replace(lab.name, "MODEL") for lab in self.labs[:1]]
        return ["```", *shown, "```", ""]

    def measure_yardstick(self, name: str) -> Found:
        """Return what scripts/yardstick.py prints, or nothing without a yardstick."""
        if self.yardstick is None:
            return []
        lab = YardstickLab(self.work, self.data, self.work / YARDSTICK, python=self.yardstick)
        lab.work.mkdir(parents=True, exist_ok=True)
        return lab.measure(name, [SCRIPTS / "yardstick.py", name, lab.data, "--json"])


@dataclass(frozen=True)
class YardstickLab(Lab):
    """Cache of the yardstick's measurements, which another Python makes."""

    python: Path

    def call(self, command: Command) -> str:
        """Run a command with the other Python and return its output."""
        print(f"$ {self.shown(command)}", file=sys.stderr, flush=True)
        run = subprocess.run([self.python, *map(str, command)], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            raise InputError(f"{self.shown(command)}: exit code {run.returncode}, see above")
        return run.stdout


def open_bench(models: list[str], data: Path, work: Path, yardstick: Path | None) -> Bench:
    """Return the models, each with a cache of its own."""
    labs = []
    for model in models:
        folder = find_model(model).absolute()
        if not (folder / SUMS).is_file():
            raise InputError(f"{model}: no model of elmokit's format; expected a folder with {SUMS}")
        cache = work / folder.relative_to(folder.anchor).as_posix().replace("/", "-")
        lab = ModelLab(work / "no-run", data, cache, folder, _title(model, folder))
        lab.work.mkdir(parents=True, exist_ok=True)
        lab.claim()
        labs.append(lab)
    return Bench(labs, data, work, yardstick)


def _title(model: str, folder: Path) -> str:
    """Return a model's name: as given, or that of its folder; for a model saved during a run, the tokens read."""
    if not Path(model).is_dir():
        return model
    recipe = folder.parent / "recipe.json"
    if found := KEPT.fullmatch(folder.name) if recipe.is_file() else None:
        training = json.loads(recipe.read_text("utf-8"))["training"]
        return f"{int(found[1]) * training['num_rows'] * training['unroll_steps'] / 1e6:.0f} M tokens"
    return folder.parent.name if folder.name == "model" else folder.name
