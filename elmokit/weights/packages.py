"""Write a model folder as a Python package that holds data only; `elmokit.weights.bundled` finds it by its name."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from string import Template

from elmokit.atomic import atomic_folder
from elmokit.errors import InputError, OutputError
from elmokit.weights.bundled import MODEL, find_model
from elmokit.weights.card import read_description
from elmokit.weights.folder import load_folder, save_folder
from elmokit.weights.saved import list_names
from elmokit.weights.source import build_bilm, has_softmax, load_softmax
from elmokit.weights.start_state import to_tensors, warm_state
from elmokit.weights.sums import CARD, read_sums, write_sums

MODULE = "elmokit_model_"
NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")

PYPROJECT = Template("""\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "elmokit-$name"
version = "$version"
description = "$description"
readme = "README.md"
requires-python = ">=3.11"
license = "$license"
dependencies = ["elmokit"]

[project.entry-points."elmokit.models"]
$name = "$module"

[tool.hatch.build.targets.wheel]
packages = ["$module"]
""")

README = Template("""\
# elmokit-$name

$description

```console
$$ pip install elmokit-$name
```

```python
from elmokit import Embedder

embedder = Embedder.from_pretrained("$name")
```

The package holds data only. The model card is [$module/model/README.md]($module/model/README.md).
""")


def write_package(
    source: str | Path,
    folder: str | Path,
    *,
    name: str | None = None,
    version: str = "0.1.0",
    license: str = "Apache-2.0",
    description: str | None = None,
    half: bool = True,
    eight_bit_softmax: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write a package with a model, ready for ``pip install`` or ``python -m build``; return its folder.

    Args:
        source: Folder of the model, saved by elmokit.
        folder: Folder to write.
        name: Name of the model; by default that of its folder.
        version: Version of the package.
        license: SPDX expression of the model's license.
        description: One line for the package index.
        half: Store the weights as float16.
        eight_bit_softmax: Store the output layer as int8.
        overwrite: Replace a package of a model in ``folder``.
    """
    source, folder = find_model(source), Path(folder)
    name = source.resolve().name if name is None else name
    if not NAME.fullmatch(name):
        raise InputError(f"model name {name!r}; expected lower-case letters and digits, joined by - . or _")
    if folder.is_dir() and any(folder.iterdir()):
        if not overwrite:
            raise OutputError(f"{folder}: exists already; name a new folder, or replace the package (--force)")
        _expect_package(folder)
    saved = load_folder(source)  # verifies the hashes
    description = (
        description or f"{name}: a biLM for elmokit, {saved.config.num_layers} layers of {saved.config.width}."
    )
    module = f"{MODULE}{re.sub(r'[._-]', '_', name)}"
    values = {"name": name, "version": version, "license": license, "module": module}
    values["description"] = description.replace("\\", "").replace('"', "'").replace("\n", " ")
    if saved.start_state is None:
        saved = replace(saved, start_state=to_tensors(warm_state(build_bilm(saved), saved.dictionary)))
    softmax = load_softmax(source) if has_softmax(source) else None
    with atomic_folder(folder, replace=folder.exists()) as new:
        (new / "pyproject.toml").write_text(PYPROJECT.substitute(values), "utf-8")
        (new / "README.md").write_text(README.substitute(values), "utf-8")
        target = new / module / MODEL
        target.parent.mkdir()
        (new / module / "__init__.py").write_text(f'"""The model {name} for elmokit: data only."""\n', "utf-8")
        about = read_description(source)
        save_folder(
            saved, target, softmax=softmax, description=about, name=name, half=half, eight_bit_softmax=eight_bit_softmax
        )
        if about is None and (source / CARD).is_file():  # it was written by hand
            shutil.copyfile(source / CARD, target / CARD)
            write_sums(target, read_sums(target))
    return folder


def _expect_package(folder: Path) -> None:
    """Raise OutputError unless a folder holds the package of a model and nothing else."""
    names = {path.name for path in folder.iterdir()}
    modules = {name for name in names if name.startswith(MODULE)}
    if foreign := sorted(names - modules - {"pyproject.toml", "README.md"}):
        raise OutputError(f"{folder}: also holds {list_names(foreign)}; move that away, or name another folder")
    if not modules:
        raise OutputError(f"{folder}: holds no package of a model, and is not replaced; name another folder")
