"""Classification of texts with labels of your own: the network of `elmokit.tasks.sst` on labeled lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmokit.config import FrozenConfig
from elmokit.errors import InputError
from elmokit.readers.labeled import read_labeled_texts
from elmokit.tasks.classification import Choice, Classification, ClassLabels, ClassTarget, Distribution
from elmokit.tasks.inputs import TokenEncoder
from elmokit.tasks.sst import Phrase, SSTModel, SSTSettings
from elmokit.tasks.task import Sequences, Task
from elmokit.text.rules import RAW_ENGLISH, TextRules


class ClassifyTask(Classification):
    """Texts with one label each, any labels. A text is read as one sequence, however many sentences it has."""

    name = "classify"
    settings: type[FrozenConfig] = SSTSettings

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
        tokens = tuple(rules.tokens(text))
        if not tokens:
            raise InputError(f"no words in {text[:80]!r}; expected a text")
        return [Phrase(tokens, None)]

    def sequences(self, example: Phrase) -> Sequences:
        """Return the text in one column."""
        return ([example.tokens],)

    def learn_labels(self, examples: Sequence[Phrase]) -> ClassLabels:
        """Return the labels that occur, sorted."""
        found = sorted({example.label for example in examples if example.label is not None})
        if len(found) < 2:
            raise InputError(f"the training data has only the label {found[0]!r}; expected two labels or more")
        return ClassLabels(classes=tuple(found))

    def build(self, settings: SSTSettings, labels: ClassLabels, tokens: TokenEncoder) -> SSTModel:
        """Return a new model."""
        return SSTModel(settings, labels, tokens)

    def show(self, example: Phrase, prediction: Choice) -> str:
        """Return the label and the text: ``sports (81%): They won again .``."""
        return f"{prediction}: {' '.join(example.tokens)}"

    def to_json(self, example: Phrase, prediction: Choice) -> dict[str, Any]:
        """Return tokens, label and probabilities."""
        return {
            "tokens": list(example.tokens),
            "label": prediction.label,
            "probabilities": prediction.probabilities,
        }


TASK: Task[Phrase, ClassLabels, ClassTarget, Distribution, Choice] = ClassifyTask()
