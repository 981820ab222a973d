"""Task runs in words: epochs, rates and the best score."""

from elmokit.cli.task_display import RunInWords, print_scores
from elmokit.tasks.progress import DevScores, Finished, LayersRead, TaskPlan, TaskStep
from elmokit.tasks.recipe import TaskRecipe


def test_a_run_in_a_line_tells_epoch_loss_speed_time_and_the_best_score():
    words = RunInWords(TaskRecipe(task="ner"))
    words.update(TaskPlan(100, 500, seconds=50.0, num_examples=80, num_dev=9, num_parameters=7, metric="f1"))
    words.update(TaskStep(120, 4.8, 1.25, 3.0, 0.001, examples_per_second=1234.5, seconds=70.0))
    assert words.text == "epoch 4.80/20, loss 1.250, 1,234 examples/s, 0:06:20 left at most"
    words.update(DevScores(125, 5.0, {"f1": 0.5, "recall": 1.0}, is_best=True))
    assert words.text == "epoch 5.00/20, loss 1.250, 1,234 examples/s, 0:06:20 left at most, best dev f1 50.00"
    worse = DevScores(150, 6.0, {"f1": 0.25}, is_best=False)
    words.update(worse)
    assert words.text.startswith("epoch 6.00/20, ")
    assert words.text.endswith("best dev f1 50.00")
    assert words.describe_scores(worse).startswith("epoch 6.00/20, dev f1 25.00 (best dev f1 50.00), loss 1.250, ")
    assert words.share == 150 / 500
    words.update(Finished(500, 125, {"f1": 0.5}, None, 99.0, 0))
    assert words.finished is not None


def test_a_run_that_is_resumed_knows_its_best_score():
    words = RunInWords(TaskRecipe(task="ner"))
    words.update(TaskPlan(100, 500, 50.0, num_examples=80, num_dev=9, num_parameters=7, metric="f1", best=0.75))
    worse = DevScores(150, 6.0, {"f1": 0.25}, is_best=False)
    words.update(worse)
    assert words.describe_scores(worse) == "epoch 6.00/20, dev f1 25.00 (best dev f1 75.00)"


def test_a_files_name_is_shown_as_it_is(capfd):
    print_scores({"dev[old].conll": {"f1": 0.5}})
    assert capfd.readouterr().out.splitlines()[0].split() == ["score", "dev[old].conll"]


def test_reading_has_a_rate_of_its_own_for_every_text(monkeypatch):
    clock = iter([10.0, 14.0, 100.0, 102.0, 900.0, 902.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    words = RunInWords(TaskRecipe(task="ner"))
    for entry, text in (
        (LayersRead(1_000, 9_000), "the biLM reads: 1,000 of 9,000 tokens"),
        (LayersRead(5_000, 9_000), "the biLM reads: 5,000 of 9,000 tokens, 1,000 tokens/s, 0:00:04 left"),
        (LayersRead(10, 50), "the biLM reads: 10 of 50 tokens"),
        (LayersRead(50, 50), "the biLM reads: 50 of 50 tokens, 20 tokens/s, 0:00:00 left"),
        (LayersRead(50, 90), "the biLM reads: 50 of 90 tokens"),  # as many as before, of another text
        (LayersRead(60, 90), "the biLM reads: 60 of 90 tokens, 5 tokens/s, 0:00:06 left"),
    ):
        words.update(entry)
        assert words.text == text
