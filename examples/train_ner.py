"""Named entities from a dozen invented sentences, in a few seconds: train, test, ask.

The biLM is the English one that comes with elmokit. Thousands of sentences are what real use needs; the calls stay the
same.
"""

import tempfile
import threading
from itertools import product
from pathlib import Path

from elmokit.config import find_recipe, read_recipe
from elmokit.tasks.evaluation import predict
from elmokit.tasks.loop import train_task
from elmokit.tasks.materials import read_data
from elmokit.tasks.names import get_task
from elmokit.tasks.progress import DevScores, Entry, Finished
from elmokit.tasks.recipe import TaskRecipe
from elmokit.tasks.saved import load_task_model

PEOPLE, PLACES = ("Ada", "Bo", "Cleo", "Dan"), ("Oslo", "Paris", "Quito")
ASKED = ["Dan left Quito at noon.", "Cleo met Ada at noon."]


def write_sentences(path: Path, verb: str) -> None:
    """Write twelve sentences in CoNLL-2003's columns: a token a line, its tag last, a blank line after a sentence."""
    sentences = [
        f"{person} B-PER\n{verb} O\n{place} B-LOC\nat O\nnoon O\n. O\n" for person, place in product(PEOPLE, PLACES)
    ]
    path.write_text("\n".join(sentences), "utf-8")


def report(entry: Entry) -> None:
    match entry:
        case DevScores():
            print(f"epoch {entry.epoch:.0f}: dev F1 {entry.scores['f1']:.2f}")
        case Finished():
            print(f"best weights: step {entry.best_step}; test F1 {(entry.test or {})['f1']:.2f}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {part: folder / f"{part}.conll" for part in ("train", "dev", "test")}
        for path, verb in zip(files.values(), ("saw", "met", "left"), strict=True):
            write_sentences(path, verb)

        changes = ["elmo.model=en-small", "words.trained=false", "model.hidden_dims=[30, 20]"]
        changes += ["model.dropout=0.2", "training.batch_size=4", "training.epochs=8", "training.learning_rate=0.02"]
        recipe = read_recipe(TaskRecipe, find_recipe("ner", folder="tasks"), changes)
        task = get_task("ner")
        data = read_data(task, **files)
        model_dir = train_task(task, recipe, data, folder / "run", report=report, stop=threading.Event())

        assert model_dir is not None  # nobody has set the event that stops a run
        loaded = load_task_model(model_dir)
        examples = task.read_text(ASKED)
        for example, found in zip(
            examples,
            predict(task, loaded.model, loaded.columns, loaded.labels, examples, batch_size=2),
            strict=True,
        ):
            print(task.show(example, found))


if __name__ == "__main__":
    main()
