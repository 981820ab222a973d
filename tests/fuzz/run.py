"""Feed damaged files to everything that reads files. `make fuzz` runs this.

    python tests/fuzz/run.py [FORMAT]... [--mutants 1000] [--minutes 10] [--seed 0] [--save PAGE.md]

Every mutant is read in a worker process with a limit of time and memory. Its number and the seed determine it. The
result of a reading is one of

    typed       one of elmokit's errors: the damage was noticed
    valid       read, with the same value as before, or with another where the format has no checksums
    silent      read with another value although the format has checksums
    traceback   an error that is none of elmokit's
    hang        no result after 10 s
    crash       the process died
    memory      more than 1 GB in addition

The last five end the run with exit code 1; their files are kept in build/fuzz.
"""

import argparse
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

from formats import FORMATS, Format, digest  # noqa: E402
from mutations import mutate_file  # noqa: E402

from elmokit.errors import ElmokitError  # noqa: E402

KEPT = ROOT / "build" / "fuzz"
KINDS = ("typed", "valid", "silent", "traceback", "hang", "crash", "memory")
BAD = KINDS[2:]
SECONDS = 10
MEGABYTES = 1000


def damage(form: Format, folder: Path, rng: np.random.Generator) -> None:
    """Damage one file of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in form.spared)
    path = files[int(rng.integers(len(files)))]
    path.write_bytes(mutate_file(path.name, path.read_bytes(), rng))
    if form.after is not None:
        form.after(folder)


def make_mutant(name: str, number: int, seed: int, folder: Path) -> None:
    """Write mutant ``number`` of a format into an empty folder."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
    FORMATS[name].write(folder)
    damage(FORMATS[name], folder, rng)


def read(form: Format, folder: Path, good: str) -> tuple[str, str]:
    """Read a folder and return the kind of the result, and the error of a traceback."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        same = digest(form.read(folder)) == good
    except ElmokitError:
        kind, shown = "typed", ""
    except MemoryError:
        kind, shown = "memory", "MemoryError"
    except Exception:  # noqa: BLE001  finding these is the purpose
        kind, shown = "traceback", traceback.format_exc()
    else:
        kind, shown = ("silent" if form.has_sums and not same else "valid"), ""
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return ("memory", f"{grown:.0f} MB") if grown > MEGABYTES else (kind, shown)


def work(name: str, numbers: range, seed: int, results: Connection) -> None:
    """Read one mutant after the other and send each result."""
    warnings.simplefilter("ignore")
    form = FORMATS[name]
    with tempfile.TemporaryDirectory() as parent:
        good_folder = Path(parent, "good")
        good_folder.mkdir()
        form.write(good_folder)
        good = digest(form.read(good_folder))
        virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (virtual + 4 * MEGABYTES * 2**20,) * 2)
        results.send(("ready", "", 0))
        for number in numbers:
            folder = Path(parent, str(number))
            folder.mkdir()
            make_mutant(name, number, seed, folder)
            results.send((*read(form, folder, good), number))
            shutil.rmtree(folder)


def fuzz(name: str, num_mutants: int, seed: int, until: float) -> Counter[str]:
    """Read mutants of one format; restart the worker after a hang or a crash."""
    counts: Counter[str] = Counter()
    begin = 0
    while begin < num_mutants and time.monotonic() < until:
        here, there = multiprocessing.Pipe(duplex=False)
        worker = multiprocessing.Process(target=work, args=(name, range(begin, num_mutants), seed, there))
        worker.start()
        there.close()
        if not here.poll(60) or here.recv()[0] != "ready":
            raise SystemExit(f"{name}: the undamaged file cannot be read")
        while begin < num_mutants and time.monotonic() < until:
            if not here.poll(SECONDS):
                kind, shown = "hang", ""
            else:
                try:
                    kind, shown, _ = here.recv()
                except EOFError:
                    kind, shown = "crash", ""
            counts[kind] += 1
            if kind in BAD:
                keep(name, begin, seed, kind, shown)
            begin += 1
            if kind in ("hang", "crash"):
                break
        worker.kill()
        worker.join()
    return counts


def keep(name: str, number: int, seed: int, kind: str, shown: str) -> None:
    """Keep the files of a mutant that was not handled, and say which."""
    folder = KEPT / f"{name.replace(' ', '-')}-{seed}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make_mutant(name, number, seed, folder)
    (folder / "RESULT").write_text(f"{kind}\n{shown}", encoding="utf-8")
    last = shown.strip().splitlines()[-1][:120] if shown else ""
    print(f"  {kind}: {folder.relative_to(ROOT)} {last}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", default=list(FORMATS), help="some of the formats")
    parser.add_argument("--mutants", type=int, default=1000, help="mutants per format")
    parser.add_argument("--minutes", type=float, default=10, help="time limit of the whole run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="write the table to this file")
    options = parser.parse_args()
    names = options.formats
    if unknown := sorted(set(names) - set(FORMATS)):
        parser.error(f"{unknown[0]!r}: expected one of {', '.join(FORMATS)}")
    until = time.monotonic() + 60 * options.minutes
    rows = [f"| format | mutants | {' | '.join(KINDS)} |", "|---" * (len(KINDS) + 2) + "|"]
    total: Counter[str] = Counter()
    for place, name in enumerate(names):
        share = time.monotonic() + (until - time.monotonic()) / (len(names) - place)
        counts = fuzz(name, options.mutants, options.seed, share)
        rows.append(f"| {name} | {counts.total():,} | {' | '.join(f'{counts[kind]:,}' for kind in KINDS)} |")
        print(rows[-1], flush=True)
        total += counts
    rows.append(f"| all | {total.total():,} | {' | '.join(f'{total[kind]:,}' for kind in KINDS)} |")
    print(rows[-1])
    if options.save is not None:
        options.save.write_text("\n".join(rows) + "\n", encoding="utf-8")
    sys.exit(1 if any(total[kind] for kind in BAD) else 0)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
