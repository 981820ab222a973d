"""Classification with labels of one's own: files, labels, and a few texts memorized."""

from pathlib import Path

import pytest
from task_models import predict
from toy_inputs import batch_of, make_columns, make_model, overfit

from elmokit.errors import InputError
from elmokit.tasks.classify import TASK

LINES = "sports\tThey won again.\nnews\tThe bank closed.\n\nsports\tShe scored twice!\nnews\tRates rose.\n"


def read(tmp_path: Path, text: str):
    (tmp_path / "texts.tsv").write_text(text, "utf-8")
    return TASK.read(tmp_path / "texts.tsv")


def test_a_line_is_a_label_and_a_tokenized_text(tmp_path: Path) -> None:
    texts = read(tmp_path, LINES)
    assert (texts[0].tokens, texts[0].label) == (("They", "won", "again", "."), "sports")
    assert TASK.learn_labels(texts).classes == ("news", "sports")
    assert TASK.unknown_labels(texts, TASK.learn_labels(texts)) == set()


@pytest.mark.parametrize("line", ["no label here", "label\t", "\ttext"])
def test_a_line_without_a_label_or_text_is_rejected(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"texts.tsv, line 2: .* has no label; expected a label, a tab and a text"):
        read(tmp_path, f"sports\tWon.\n{line}\n")


def test_one_label_is_no_classification(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only the label 'sports'; expected two labels or more"):
        TASK.learn_labels(read(tmp_path, "sports\tWon.\n"))


@pytest.mark.slow  # the network is that of sst
def test_a_few_texts_are_memorized(tmp_path: Path) -> None:
    texts = read(tmp_path, LINES)
    labels, columns = TASK.learn_labels(texts), make_columns(TASK, texts, place="both")
    model = make_model(TASK, columns, labels, hidden_dim=6, head_dims=(8, 6))
    overfit(model, batch_of(TASK, texts, labels, columns), steps=80, learning_rate=0.02)
    found = predict(TASK, model, columns, labels, texts, batch_size=2)
    assert [choice.label for choice in found] == [text.label for text in texts]
    assert TASK.score(texts, found) == {"accuracy": 1.0}
    assert TASK.show(texts[0], found[0]).startswith("sports (")
