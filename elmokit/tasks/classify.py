"""Classification of texts with labels of your own: the network of `elmokit.tasks.sst` on labeled lines."""

from collections.abc import Sequence
from pathlib import Path

from elmokit.errors import InputError
from elmokit.readers.labeled import read_labeled_texts
from elmokit.tasks.classification import Choice, ClassLabels, ClassTarget, Distribution
from elmokit.tasks.sst import Phrase, SSTTask
from elmokit.tasks.task import Task, read_words
from elmokit.text.rules import RAW_ENGLISH, TextRules


class ClassifyTask(SSTTask):
    """Texts with one label each, any labels. A text is read as one sequence, however many sentences it has."""

    name = "classify"

    def read_training(self, path: Path) -> list[Phrase]:
        """Read the texts of a file."""
        return self.read(path)

    def read(self, path: Path) -> list[Phrase]:
        """Read the texts of a file."""
        read = [Phrase(tuple(RAW_ENGLISH.tokens(one.text)), one.label) for one in read_labeled_texts(path)]
        if not read:
            raise InputError(f"{path}: no texts; expected a label, a tab and a text per line")
        return read

    def read_text(self, text: str, rules: TextRules = RAW_ENGLISH) -> list[Phrase]:
        """Return a line as one text."""
        return [Phrase(read_words(text, rules), None)]

    def learn_labels(self, examples: Sequence[Phrase]) -> ClassLabels:
        """Return the labels that occur, sorted."""
        found = sorted({example.label for example in examples if example.label is not None})
        if len(found) < 2:
            raise InputError(f"the training data has only the label {found[0]!r}; expected two labels or more")
        return ClassLabels(classes=tuple(found))


TASK: Task[Phrase, ClassLabels, ClassTarget, Distribution, Choice] = ClassifyTask()
