"""The file of runs: no record is lost."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elmokit.paper.plan import PaperRun
from elmokit.paper.run_file import RunFile, RunRecord


def record(seed: int) -> RunRecord:
    return RunRecord(f"id-{seed}", PaperRun("task", "snli", "elmo", seed), {}, {}, "en-small", {}, {})


def test_records_of_several_writers_are_all_kept(tmp_path: Path) -> None:
    files = [RunFile(tmp_path / "runs.jsonl") for _ in range(4)]

    def add(seed: int) -> None:
        files[seed % 4].add(record(seed))

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(add, range(60)))
    found = RunFile(tmp_path / "runs.jsonl").read()
    assert sorted(found) == sorted(f"id-{seed}" for seed in range(60))
    assert [path.name for path in tmp_path.iterdir()] == ["runs.jsonl"]


def test_a_record_is_added_once(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "runs.jsonl")
    for _ in range(2):
        file.add(record(3))
    assert file.read() == {"id-3": record(3)}
    assert len((tmp_path / "runs.jsonl").read_text("utf-8").splitlines()) == 1
