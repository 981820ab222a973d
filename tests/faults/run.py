"""Let every verb that writes meet a failing disk and failing memory, one call at a time. `make faults` runs this.

    python tests/faults/run.py [--only VERB,…] [--kinds write,…] [--most 200] [--save PAGE.md]

SQLite's way: a verb runs once without a fault, which counts its writes, fsyncs, renames, opens, mmaps and large
allocations. Then it runs anew for each of them, and that one fails (shim.c); the first 200 of each kind, then every
k-th so that at most 100 more follow. After each run

- the exit code is 0 or 1, and an error is one line without a traceback;
- the output is the old one or the whole new one;
- the same command without a fault ends with the same bytes as an undisturbed run.

A fork of a process that has imported everything makes a run cheap.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from preload import preload  # noqa: E402

preload()

from verbs import KINDS, LASTING, ONCE, VERBS, Ended, UnfitVerbError, Verb, content, run, write_inputs  # noqa: E402

LATER = 100  # points of a kind after the first ones


def complaint(folder: Path, verb: Verb, ended: Ended, old: str | None, new: str) -> str | None:
    """Return what is wrong after a run with a fault, and after the same command without one."""
    if ended.code not in (0, 1):
        return f"exit code {ended.code}: {ended.stderr.strip()[-300:]}"
    if "Traceback" in ended.stderr or "--debug" in ended.stderr:
        return f"untyped error: {ended.stderr.strip()[-300:]}"
    if ended.code == 1 and not ended.stderr.strip():
        return "failed without a message"
    found = content(folder, verb)
    if found not in (old, new) or (ended.code == 0 and found != new):
        return "the output is neither the old one nor the whole new one"
    again = run(folder, verb)
    if again.code != 0:
        return f"the same command fails afterwards: {again.stderr.strip()[-300:]}"
    return None if content(folder, verb) == new else "the same command ends with other bytes"


def points(total: int, most: int) -> list[int]:
    """Return the calls that fail: the first ones, then every k-th."""
    step = max(1, -(-(total - most) // LATER))
    return [*range(1, min(total, most) + 1), *range(most + step, total + 1, step)]


def try_verb(name: str, kinds: list[str], most: int, report: Callable[[str], None]) -> dict[str, tuple[int, int]]:
    """Return, per kind, the number of points tried and of complaints."""
    verb = VERBS[name]
    results = {}
    with tempfile.TemporaryDirectory() as parent:
        ready, folder = Path(parent, "ready"), Path(parent, "work")
        ready.mkdir()
        write_inputs(ready, verb)
        old = None
        if verb.replaces:
            ended = run(ready, verb)
            old = content(ready, verb)
        shutil.copytree(ready, folder)
        ended = run(folder, verb)
        new = content(folder, verb)
        if ended.code or new is None:
            raise UnfitVerbError(f"{name} fails without a fault: {ended.stderr}")
        for kind in kinds:
            total = ended.seen[KINDS.index(kind)]
            tried = bad = 0
            for point in points(total, most):
                shutil.rmtree(folder)
                shutil.copytree(ready, folder)
                mode = LASTING if kind == "write" and point % 2 == 0 else ONCE
                found = run(folder, verb, KINDS.index(kind) + 1, point, mode=mode)
                wrong = complaint(folder, verb, found, old, new)
                tried += 1
                if wrong is not None:
                    bad += 1
                    report(f"  {name}: {kind} {point} of {total}: {wrong}")
            results[kind] = (tried, bad)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="verbs, separated by commas")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of calls, separated by commas")
    parser.add_argument("--most", type=int, default=200, help="points of each kind before every k-th")
    parser.add_argument("--save", type=Path, help="write the table to this file")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    rows = [f"| verb | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    num_bad = 0
    for name in [name for name in options.only.split(",") if name] or VERBS:
        try:
            results = try_verb(name, kinds, options.most, lambda line: print(line, flush=True))
        except UnfitVerbError as error:
            print(error, flush=True)
            num_bad += 1
            continue
        num_bad += sum(bad for _, bad in results.values())
        cells = [f"{tried}{f' ({bad} wrong)' if bad else ''}" for tried, bad in results.values()]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    if options.save is not None:
        options.save.write_text("\n".join(rows) + "\n", encoding="utf-8")
    sys.exit(1 if num_bad else 0)


if __name__ == "__main__":
    main()
