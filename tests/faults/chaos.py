"""Kill verbs again and again, and compare what they write in the end. `make chaos` runs this.

    python tests/faults/chaos.py [--only VERB,…] [--kills 100] [--seed 0] [--save PAGE.md]

A command is killed (SIGKILL) up to five times in a row, then runs to its end. Two of three kills fall into a save: the
process dies in a write, an fsync, a rename or an open of one of its files. The others fall at random moments. What is
written in the end has the bytes of a command that nobody killed.

A server is killed while clients ask it; one that is started again gives the same answers.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from preload import preload  # noqa: E402

preload()

from verbs import DEADLY, KINDS, VERBS, UnfitVerbError, content, run, write_inputs  # noqa: E402

from elmokit import cli  # noqa: E402

IN_A_ROW = 5
CALLS = KINDS[:4]  # those of a save
SERVE = "serve"
Report = Callable[[str], None]


class Kills:
    """Counts of one verb."""

    def __init__(self) -> None:
        self.in_saves = self.at_random = self.finished = self.bad = 0

    @property
    def total(self) -> int:
        """Number of kills."""
        return self.in_saves + self.at_random


def kill_verb(name: str, num_kills: int, chance: random.Random, report: Report) -> Kills:
    """Kill a verb until there were enough kills; compare every output that it finishes."""
    verb, kills = VERBS[name], Kills()
    with tempfile.TemporaryDirectory() as parent:
        ready, folder = Path(parent, "ready"), Path(parent, "work")
        ready.mkdir()
        write_inputs(ready, verb)
        shutil.copytree(ready, folder)
        started = time.monotonic()
        whole = run(folder, verb)
        took, expected = time.monotonic() - started, content(folder, verb)
        if whole.code or expected is None:
            raise UnfitVerbError(f"{name} fails without a kill: {whole.stderr}")
        while kills.total < num_kills:
            shutil.rmtree(folder)
            shutil.copytree(ready, folder)
            for _ in range(IN_A_ROW):
                in_save = chance.random() < 2 / 3
                if in_save:
                    kind = KINDS.index(chance.choice(CALLS))
                    point = chance.randint(1, max(1, whole.seen[kind]))
                    ended = run(folder, verb, kind + 1, point, mode=DEADLY)
                else:
                    ended = run(folder, verb, seconds=chance.uniform(0, took))
                if ended.code in (0, 1):
                    break  # the end came before the kill
                kills.in_saves += in_save
                kills.at_random += not in_save
            found = content(folder, verb)
            if found not in (None, expected):
                kills.bad += 1
                report(f"  {name}: a part of an output is there after a kill")
            last = run(folder, verb)
            kills.finished += 1
            if last.code or content(folder, verb) != expected:
                kills.bad += 1
                report(f"  {name}: after its kills it ends with code {last.code} and other bytes: {last.stderr[-300:]}")
    return kills


def kill_server(num_kills: int, chance: random.Random, report: Report) -> Kills:
    """Kill a server while it answers; compare all answers."""
    kills = Kills()
    with tempfile.TemporaryDirectory() as parent, socket.socket() as free:
        folder = Path(parent)
        write_inputs(folder)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        expected = None
        while kills.total < num_kills:
            server = _start_server(folder, port)
            until = None
            while until is None or time.monotonic() < until:
                answer = _ask(port)
                if answer is not None:
                    until = until or time.monotonic() + chance.uniform(0, 0.1)
                    expected = expected or answer
                    if answer != expected:
                        kills.bad += 1
                        report("  serve: another answer than before")
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            kills.at_random += 1
            kills.finished += 1
    return kills


def _start_server(folder: Path, port: int) -> int:
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os._exit(cli.run(["serve", "--model", "lm", "--port", str(port), "--quiet"]))
    return child


def _ask(port: int) -> bytes | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        body = json.dumps({"inputs": ["the old man", "a boat on the river"]})
        connection.request("POST", "/layers", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.read() if answer.status == 200 else None
    except (OSError, http.client.HTTPException):
        time.sleep(0.02)
        return None
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="verbs, separated by commas")
    parser.add_argument("--kills", type=int, default=100, help="kills per verb")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="write the table to this file")
    options = parser.parse_args()
    rows = ["| verb | kills | inside a save | finished and compared | wrong |", "|---|---|---|---|---|"]
    num_bad = 0
    for name in [name for name in options.only.split(",") if name] or [*VERBS, SERVE]:
        chance = random.Random(f"{options.seed} {name}")
        arguments = options.kills, chance, lambda line: print(line, flush=True)
        try:
            kills = kill_server(*arguments) if name == SERVE else kill_verb(name, *arguments)
        except UnfitVerbError as error:
            print(error, flush=True)
            num_bad += 1
            continue
        rows.append(f"| {name} | {kills.total} | {kills.in_saves} | {kills.finished} | {kills.bad} |")
        print(rows[-1], flush=True)
        num_bad += kills.bad
    if options.save is not None:
        options.save.write_text("\n".join(rows) + "\n", encoding="utf-8")
    sys.exit(1 if num_bad else 0)


if __name__ == "__main__":
    main()
