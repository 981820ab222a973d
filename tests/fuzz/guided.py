"""Fuzz formats with coverage as the guide, by atheris (libFuzzer). `make fuzz` runs this where atheris has a wheel.

    python tests/fuzz/guided.py [FORMAT]... [--seconds 10] [--seed 0]

Only formats of one file, each in a process of its own. The file's bytes are mutated so that new branches of elmokit are
reached; an error that is none of elmokit's, a hang or a crash ends the format and sets exit code 1. Inputs that reach
new branches are kept in build/fuzz/guided and are the seeds of the next run.
"""

import argparse
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "fuzz" / "guided"
WATCHED = ["elmokit.readers", "elmokit.text", "elmokit.config", "elmokit.weights", "elmokit.encoders", "elmokit.tasks"]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

with atheris.instrument_imports(include=WATCHED):
    from formats import FORMATS, Format

    from elmokit.errors import ElmokitError


def write_single(form: Format, folder: Path) -> Path | None:
    """Write the good file of a format; return its path, or None if the format has several."""
    form.write(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return files[0] if len(files) == 1 else None


def fuzz(name: str, *, seconds: int, seed: int) -> None:
    """Fuzz one format, and end this process."""
    form, corpus = FORMATS[name], KEPT / name.replace(" ", "-").replace("/", "-")
    folder = Path(tempfile.mkdtemp())
    path = write_single(form, folder)
    if path is None:
        sys.exit(f"{name}: has several files; expected a format of one")
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "good").write_bytes(path.read_bytes())
    warnings.simplefilter("ignore")

    def read(content: bytes) -> None:
        path.write_bytes(content)
        try:
            form.read(folder)
        except ElmokitError:
            return

    limits = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=3000", "-max_len=20000"]
    where = f"-artifact_prefix={KEPT}/{corpus.name}-"
    atheris.Setup([sys.argv[0], *limits, where, f"-seed={seed + 1}", "-print_final_stats=1", str(corpus)], read)
    atheris.Fuzz()


def fuzz_each(names: list[str], options: argparse.Namespace) -> bool:
    """Fuzz formats in turn; return whether all held."""
    held = True
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            if write_single(FORMATS[name], Path(folder)) is None:
                continue
        words = [name, "--alone", "--seconds", str(options.seconds), "--seed", str(options.seed)]
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
        [count] = [line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line] or ["?"]
        print(f"{name}: {count} inputs, {'held' if not done.returncode else 'FAILED'}", flush=True)
        if done.returncode:
            print(f"{done.stdout[-3000:]}{done.stderr[-3000:]}", flush=True)
            held = False
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", default=list(FORMATS), help="some of the formats")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=10, help="per format")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if unknown := sorted(set(options.formats) - set(FORMATS)):
        parser.error(f"{unknown[0]!r}: expected one of {', '.join(FORMATS)}")
    if options.alone:
        fuzz(options.formats[0], seconds=options.seconds, seed=options.seed)
    sys.exit(not fuzz_each(options.formats, options))


if __name__ == "__main__":
    main()
