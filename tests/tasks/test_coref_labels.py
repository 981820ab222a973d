"""Labels and targets of coreference, and data that has none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from coref_stories import stories, story

from elmokit.errors import InputError
from elmokit.readers.conll2012 import Mention
from elmokit.tasks.coref import TASK, CorefLabels


def test_a_file_without_coreference_is_rejected(tmp_path: Path) -> None:
    row = "\t".join(["tale", "0", "0", "Ann", *["_"] * 8, "(0)"])
    (tmp_path / "tale.conll").write_text(f"#begin document (tale); part 0\n{row}\n\n#end document\n")
    with pytest.raises(InputError, match=r"tale\.conll: no coreferent mentions in 1 documents; .* last column"):
        TASK.read(tmp_path / "tale.conll")


def test_data_without_coreference_is_rejected_to_learn_from() -> None:
    with pytest.raises(InputError, match="no coreferent mentions in 2 documents"):
        TASK.learn_labels([story("ann left"), story("ben stayed")])


def test_one_genre_alone_is_none() -> None:
    examples = [story("[1 i ] saw", "[1 me ]", name=f"bc/{number}") for number in range(2)]
    assert TASK.learn_labels(examples) == CorefLabels()


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        (((Mention(0, 0, 1), Mention(0, 2, 4)),), r"'story': Mention\(sentence=0, start=2, end=4\) is not inside"),
        (((Mention(0, 0, 1), Mention(1, 0, 1)),), "is not inside"),
        (((Mention(0, 1, 1), Mention(0, 0, 1)),), "is not inside"),
        (((Mention(0, 0, 1), Mention(0, 1, 2)), (Mention(0, 1, 2), Mention(0, 2, 3))), "is in two clusters"),
    ],
)
def test_mentions_that_cannot_be_are_rejected_by_name(clusters: Any, message: str) -> None:
    document = replace(story("ann saw her"), clusters=clusters)
    with pytest.raises(InputError, match=message):
        TASK.collate([document], CorefLabels(), labeled=True)
    assert TASK.collate([document], CorefLabels(), labeled=False).documents[0].gold_G3 is None


def test_no_label_is_unknown() -> None:
    assert TASK.unknown_labels(stories(2), CorefLabels()) == set()
