"""Compile the kernels when the package is built, and record its commit. Without a C compiler there are no kernels."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

# Every kernel is compiled for each instruction set; the best one is chosen at run time (isa.c).
AVX512 = ["-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"]
X86_ISAS = {
    "baseline": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": AVX512,
    "avx512bf16": [*AVX512, "-mavx512bf16"],
}
AMX = {"amxbf16": [*AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"]}  # where the compiler knows it
OTHER_ISAS: dict[str, list[str]] = {"baseline": []}
ONCE = "isa.c"
# Not -ffast-math: NaN must stay NaN. Fused multiply-add is allowed; nobody reads errno or traps.
FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast", "-fno-math-errno"]
FLAGS += ["-fno-trapping-math", "-Wno-psabi"]
SUFFIXES = {"darwin": ".dylib", "win32": ".dll"}


class KernelBuildHook(BuildHookInterface[Any]):
    """Hook that puts the compiled library beside its loader, in the source tree and in the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Record the commit, compile, and mark the wheel as specific to this platform."""
        commit = describe_commit(Path(self.root))
        if commit is not None and version != "editable":
            path = Path(self.directory, "commit.txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{commit}\n", "utf-8")
            build_data["force_include"][str(path)] = "elmokit/commit.txt"
        library = library_path(Path(self.root))
        library.unlink(missing_ok=True)
        try:
            compile_library(library.parent / "src", library)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_info(f"elmokit is built without compiled kernels: {error}")
            return
        build_data["artifacts"].append(library.relative_to(self.root).as_posix())
        build_data["pure_python"] = False
        # Any Python 3 can load it: ctypes binds to no Python ABI. The plain platform tag claims no old libc.
        platform = next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))
        build_data["tag"] = f"py3-none-{platform}"

    def clean(self, versions: list[str]) -> None:  # noqa: ARG002
        """Remove the library."""
        library_path(Path(self.root)).unlink(missing_ok=True)


def describe_commit(root: Path) -> str | None:
    """Return the commit of a source tree and whether the tree has changes; None outside a repository."""
    if not (root / ".git").exists():  # it may be inside another project's tree
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or a repository that it rejects
        return None


def library_path(root: Path) -> Path:
    """Return the path where the loader looks for the library."""
    return root / "elmokit" / "kernels" / f"libelmokit_kernels{SUFFIXES.get(sys.platform, '.so')}"


def compile_library(source_dir: Path, library: Path) -> None:
    """Compile every kernel for every instruction set into one library."""
    compiler = find_compiler()
    isas, once = X86_ISAS if is_x86(compiler) else OTHER_ISAS, []
    if isas is X86_ISAS and all(accepts(compiler, flags) for flags in AMX.values()):
        isas, once = isas | AMX, ["-DWITH_AMX"]
    with tempfile.TemporaryDirectory() as folder:
        commands, objects = [], []
        for source in sorted(source_dir.glob("*.c")):
            for isa, flags in ({"once": once} if source.name == ONCE else isas).items():
                compiled = Path(folder, f"{source.stem}_{isa}.o")
                objects.append(str(compiled))
                flags = [*FLAGS, *flags, f"-DKERNEL_ISA={isa}"]
                commands.append([*compiler, *flags, "-c", str(source), "-o", str(compiled)])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(run, commands))
        linked = Path(folder, library.name)
        run([*compiler, "-shared", "-o", str(linked), *objects])
        shutil.copy(linked, library.with_suffix(".new"))
        library.with_suffix(".new").replace(library)


def find_compiler() -> list[str]:
    """Return the command named in CC, or the first known compiler; raise OSError if there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        return named
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise FileNotFoundError("no C compiler found (cc, gcc, clang, or one named in CC)")


def is_x86(compiler: list[str]) -> bool:
    """Return True if the compiler targets 64-bit x86, whatever machine it runs on."""
    macros = subprocess.run([*compiler, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, text=True, check=True)
    return "__x86_64__" in macros.stdout


def accepts(compiler: list[str], flags: list[str]) -> bool:
    """Return True if the compiler has these instructions, and its assembler too."""
    source = 'void shape(void) { __asm__ volatile("tilerelease"); }\n'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probe.c")
        path.write_text(source, "utf-8")
        command = [*compiler, *flags, "-c", str(path), "-o", str(path.with_suffix(".o"))]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(command: list[str]) -> None:
    """Run a command without output; raise CalledProcessError if it fails."""
    subprocess.run(command, check=True, capture_output=True)
