"""Train named entity recognition on twelve invented sentences, in some seconds, and ask the model.

The biLM is the English one that comes with elmokit. Real use needs thousands of sentences; the calls stay the same.
"""

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from elmokit import train_task

SETTINGS = {"model.hidden_dims": (30, 20), "model.dropout": 0.2, "training.batch_size": 4, "training.epochs": 8}

with TemporaryDirectory() as name:
    folder = Path(name)
    for part, verb in (("train", "saw"), ("dev", "met"), ("test", "left")):
        # CoNLL-2003's columns: one token per line, its tag last, a blank line after every sentence.
        pairs = product(("Ada", "Bo", "Cleo", "Dan"), ("Oslo", "Paris", "Quito"))
        sentences = [f"{person} B-PER\n{verb} O\n{place} B-LOC\nat O\nnoon O\n. O\n" for person, place in pairs]
        (folder / f"{part}.conll").write_text("\n".join(sentences), "utf-8")

    model = train_task(
        "ner",
        train=folder / "train.conll",
        dev=folder / "dev.conll",
        settings=SETTINGS | {"training.learning_rate": 0.02},
        run_dir=folder / "run",
    )
    print(f"test F1 {model.evaluate(folder / 'test.conll')['f1']:.2f}")
    for prediction in model.predict(["Dan left Quito at noon.", "Ada saw Oslo ."]):
        print(prediction)
