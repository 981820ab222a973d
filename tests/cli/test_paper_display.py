"""Display of the paper's runs: results as they come, and the time left by the pace so far."""

from dataclasses import replace

from elmokit.cli.paper_display import PaperDisplay
from elmokit.cli.progress import Progress
from elmokit.paper.engine import Failed, Recorded, Skipped
from elmokit.paper.plan import TASK, TUNING, PaperRun
from elmokit.paper.run_file import RunRecord
from elmokit.tasks.progress import TaskPlan

RUNS = [PaperRun(TASK, "snli", "elmo", seed) for seed in range(4)]
RESULT = {"metric": "f1", "dev": {"f1": 0.5}, "test": {"f1": 0.4}, "seconds": 60.0}
RECORD = RunRecord("id", RUNS[0], {}, {}, "toy", RESULT, {})


def test_the_display_tells_results_and_the_time_left(capfd):
    display = PaperDisplay(RUNS, dict.fromkeys(RUNS, 120.0), Progress(None), workers=2)
    display.report(RUNS[0], TaskPlan(0, 9, 0.0, 10, 4, 7, "f1"))
    display.report(RUNS[0], Recorded(RECORD, is_new=True))
    display.report(RUNS[1], Recorded(RECORD, is_new=False))
    tuning = {"before": {"perplexity": 90.0}, "after": {"perplexity": 30.0}, "seconds": 60.0}
    display.report(RUNS[2], Recorded(replace(RECORD, run=PaperRun(TUNING, "sst", "bilm"), result=tuning), is_new=True))
    display.report(RUNS[3], Failed("no luck"))
    assert capfd.readouterr().err.splitlines() == [
        "elmokit: snli, elmo, seed 0: started",
        # Half the expected seconds: 3 runs of 120 s at half the time, two at a time.
        "elmokit: snli, elmo, seed 0: f1 dev 50.00, test 40.00, after 0:01:00; 1 of 4 runs, about 0:01:30 left",
        "elmokit: snli, elmo, seed 2: perplexity 90.0 to 30.0, after 0:01:00; 3 of 4 runs, about 0:00:30 left",
        "elmokit: failed: no luck",
    ]
    assert display.failed == RUNS[3:]
    display.report(RUNS[3], Skipped("no encoder"))
    assert display.skipped == {"no encoder": RUNS[3:]}
