"""Texts of every data format, found by name or content."""

import lzma
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.plain_text import read_texts, reject_data_files

FILES: dict[str, tuple[str, list[str]]] = {
    "notes.txt": ("One line.\n\nAnother\n", ["One line.", "Another"]),
    "wrapped.txt": (
        "The old sea-\nfaring men came\nto me.\n\nThen they left.\n",
        ["The old sea-", "faring men came", "to me.", "Then they left.", "The old sea-faring men came to me."],
    ),
    "gap.tsv": ("id-1\tAda saw Bo.\t7\n", ["id-1", "Ada saw Bo.", "7"]),
    "a.conll": ("Ada B-PER\nslept O\n\nBo B-PER\n", ["Ada slept", "Bo"]),
    "b.conll": ("#begin document (a); part 000\na 0 0 Ada NNP * - - - - * -\n\n#end document\n", ["Ada"]),
    "c.v4_gold_conll": ("#begin document (a); part 000\na 0 0 Ada NNP * - - - - * -\n\n#end document\n", ["Ada"]),
    "d.conllu": ("1\tAda\tAda\tPROPN\tNNP\t_\t0\troot\t_\t_\n\n", ["Ada"]),
    "snli.jsonl": ('{"gold_label": "-", "sentence1": "Ada", "sentence2": "Bo"}\n', ["Ada", "Bo"]),
    "blimp.jsonl": (
        '{"UID": "u", "linguistics_term": "t", "sentence_good": "Good.", "sentence_bad": "Bad."}\n',
        ["Good.", "Bad."],
    ),
    "squad.json": (
        '{"data": [{"paragraphs": [{"context": "A text.", "qas": [{"id": "0", "question": "Who?", "answers": []},'
        ' {"id": "1", "question": "What?", "answers": []}]}]}]}',
        ["A text.", "Who?", "What?"],
    ),
    "sst.txt": ("(3 (2 It) (4 rose))\n", ["It rose"]),
    "trees.ptb": ("(TOP (S (NP (PRP It)) (VP (VBD rose))))\n", ["It rose"]),
    "brackets.txt": ("(Reuters) It rose.\n", ["(Reuters) It rose."]),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("is_packed", [False, True])
def test_texts_come_without_annotation(tmp_path: Path, name: str, is_packed: bool) -> None:
    content, expected = FILES[name]
    path = tmp_path / (f"{name}.xz" if is_packed else name)
    path.write_bytes(lzma.compress(content.encode()) if is_packed else content.encode())
    assert list(read_texts(path)) == expected


def test_word_senses_need_their_keys_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "toy.data.xml"
    instance = '<instance id="d0.s0.t0" lemma="river" pos="NOUN">river</instance>'
    path.write_text(f'<corpus><text><sentence><wf lemma="the" pos="DET">The</wf>{instance}</sentence></text></corpus>')
    with pytest.raises(InputError, match=r"toy\.data\.xml: its keys are missing; expected toy\.gold\.key\.txt"):
        list(read_texts(path))
    (tmp_path / "toy.gold.key.txt").write_text("d0.s0.t0 river%1:17:00::\n")
    assert list(read_texts(path)) == ["The river"]


def test_a_missing_file_is_an_error_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_texts(tmp_path / "absent.txt")


DATA = {
    "a.txt": '{"gold_label": "neutral", "sentence1": "A"}\n',
    "b.txt": "-DOCSTART- -X- O O\n",
    "c.txt": "Ada B-PER\nslept O\n",
    "d.txt": "(TOP (S (NP (NNP Ada)) (VP (VBD slept))))\n",
    "e.txt": "(3 (2 It) (4 shines))\n",
    "f.jsonl": "{}\n",
    "g.txt": "#begin document (a); part 000\n",
    "h.txt": "# sent_id = 1\n",
    "i.txt": "{\n",
    "j.txt": "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n",
    "k.txt": "Ada NNP S-PER\nslept VBD O\n",
    "l.txt": "Ada\tU-PER\nslept\tO\n",
    "m.txt": "1\tAda\tAda\tPROPN\tNNP\t_\t2\tnsubj\t_\t_\n",
    "n.txt": "bc/cctv 0 0 Ada NNP (TOP(S(NP*) - - - - * -\n",
    "q.txt": "Oslo B-location\nand O\n",
    "o.txt": "The\tDT\ncat\tNN\n",
    "p.txt": "good\tIt shines .\nbad\tIt rains .\n",
}
PROSE = ["Ada slept.\n", "(see (a) and (b))\n", "(He left.)\n", "a\tb\n", "Ada saw B-movies\n", "", "\n# Title\n"]
PROSE += ["Ada saw B-movies\nand slept\n", "1990 was\ta year\n\tof rain\n", "Vitamin O\nis none\n", "2 3 4 (5)\n"]


@pytest.mark.parametrize("name", DATA)
def test_labeled_data_is_not_taken_for_prose(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(DATA[name], "utf-8")
    with pytest.raises(InputError, match=rf"{name}: is labeled data, .*elmokit task text TASK {name}"):
        reject_data_files([str(tmp_path / name)])


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_accepted(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text, "utf-8")
    reject_data_files([str(tmp_path / "a.txt"), "-"])
