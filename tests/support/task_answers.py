"""Answers of every task as the server sends them, from predictions written by hand."""

from typing import Any

from elmokit.readers.conll2012 import Mention
from elmokit.readers.ptb import Constituent, ParsedSentence
from elmokit.tasks.classification import Choice
from elmokit.tasks.names import get_task
from elmokit.tasks.squad import FoundAnswer

PARAGRAPH = "Oslo is the capital of Norway. It was founded in 1040."
TYPED = {
    "ner": "Ada Lovelace wrote to Babbage .",
    "srl": "She *sold* the boat to her brother .",
    "coref": "Ada lost her hat . She found it .",
    "parse": "The old man sat down .",
    "sst": "A warm and funny film .",
    "squad": f"{PARAGRAPH}\tWhat is the capital of Norway?",
}
PREDICTIONS = {
    "ner": ("B-PER", "I-PER", "O", "O", "B-PER", "O"),
    "srl": ("B-ARG0", "B-V", "B-ARG1", "I-ARG1", "B-ARG2", "I-ARG2", "I-ARG2", "O"),
    "coref": ((Mention(0, 0, 1), Mention(0, 2, 3), Mention(1, 0, 1)), (Mention(0, 2, 4), Mention(1, 2, 3))),
    "parse": ParsedSentence(
        ("The", "old", "man", "sat", "down", "."),
        ("DT", "JJ", "NN", "VBD", "RP", "."),
        (Constituent("S", 0, 6), Constituent("NP", 0, 3), Constituent("VP", 3, 5), Constituent("PRT", 4, 5)),
    ),
    "sst": Choice("positive", {"negative": 0.08, "neutral": 0.2, "positive": 0.72}),
    "squad": FoundAnswer("Oslo", 0, 4, 0.93),
}


def answer_of(name: str) -> list[dict[str, Any]]:
    """Return what ``/tasks/NAME`` answers for the typed text."""
    task = get_task(name)
    [example] = task.read_text(TYPED[name])
    prediction = PREDICTIONS[name]
    return [{"input": 0, "shown": task.show(example, prediction), "prediction": task.to_json(example, prediction)}]
