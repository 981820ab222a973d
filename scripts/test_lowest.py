"""Test with the oldest versions that pyproject.toml allows. `make test-lowest` runs this.

    python scripts/test_lowest.py [PYTEST ARGUMENTS]

Makes .venv-lowest with the lower bound of every dependency of the package and of the extras that `make test` needs.
pytest and its plugins, and torch, have the versions of constraints.txt: PyPI has no older builds of torch for the CPU
alone. `--torch 2.6.0` installs another one, where your index has it. Tests that need other tools are skipped.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-lowest"
TOOLS = ("hypothesis", "pytest", "pytest-xdist")
EXTRAS = ("hub", "onnx", "plot", "serve", "tasks", "train")
LOWER = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)")


def normalized(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lower_bounds(project: dict[str, list[str] | dict[str, list[str]]]) -> dict[str, str]:
    """Return {package: lowest version} for the dependencies and the extras that are tested."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    wanted = [*project["dependencies"], *(package for extra in EXTRAS for package in extras[extra])]
    bounds: dict[str, str] = {}
    for requirement in wanted:
        match = LOWER.match(requirement)
        if match is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} has no lower bound; expected NAME>=VERSION")
        bounds[normalized(match[1])] = match[2]
    return bounds


def pins(constraints: str) -> dict[str, str]:
    """Return {package: version} of constraints.txt."""
    return {normalized(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)$", constraints, re.MULTILINE)}


def wanted_versions(*, torch: str | None) -> dict[str, str]:
    """Return {package: version} for everything that is installed by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    bounds = lower_bounds(project)
    versions = {tool: pinned[tool] for tool in TOOLS} | bounds
    versions["torch"] = torch or pinned["torch"]
    return versions


def install(versions: dict[str, str]) -> Path:
    """Return the Python of an environment with these versions and the package itself."""
    python = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    constraints = ENVIRONMENT / "constraints.txt"
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    if constraints.exists() and constraints.read_text(encoding="utf-8") == lines:
        return python
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, *(f"{name}=={version}" for name, version in versions.items())], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
    constraints.write_text(lines, encoding="utf-8")
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="version of torch; by default that of constraints.txt")
    options, pytest_arguments = parser.parse_known_args()
    versions = wanted_versions(torch=options.torch)
    print(", ".join(f"{name} {version}" for name, version in sorted(versions.items())))
    python = install(versions)
    chosen = pytest_arguments or [
        "-n",
        "auto",
        "--maxprocesses",
        "4",
        "--dist",
        "worksteal",
        "-m",
        "not slow and not long",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    sys.exit(subprocess.run([str(python), "-m", "pytest", *chosen], cwd=ROOT, env=environment).returncode)


if __name__ == "__main__":
    main()
