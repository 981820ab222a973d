"""Overlap of a test set with a biLM's training text: counts, and scores by overlap."""

import contextlib
import io
import json
import lzma
import re
import runpy
import shutil
import tarfile
from pathlib import Path

import pytest
from toy_datasets import write_home

from elmokit import cli
from elmokit.readers.plain_text import read_texts
from elmokit.text.exclusion import Exclusion
from elmokit.text.preparation import prepare_corpus

SCRIPT = Path(__file__).parents[2] / "scripts" / "lm_overlap.py"
LATE = "It was very late that evening , and nobody in the house was awake ."
OSLO = "Ada saw the old harbour of Oslo from her window for the last time ."
ROME = "Bo met three of the oldest families of Rome in the course of a week ."


def paragraph(number: int, *sentences: str) -> dict[str, object]:
    """Return a paragraph with one question whose answer is all of it, so nearly every prediction overlaps."""
    context = " ".join(sentence.replace(" ,", ",").replace(" .", ".") for sentence in sentences)
    answers = [{"text": context, "answer_start": 0}]
    return {"context": context, "qas": [{"id": str(number), "question": "Where was it?", "answers": answers}]}


PARAGRAPHS = [paragraph(0, LATE, OSLO), paragraph(1, ROME), paragraph(2, ROME, OSLO, LATE)]


def write_questions(path: Path, paragraphs: list[dict[str, object]]) -> None:
    text = json.dumps({"version": "1.1", "data": [{"title": "tales", "paragraphs": paragraphs}]})
    path.write_bytes(lzma.compress(text.encode()))


WORDS = "1\tNothing\tnothing\tPRON\tNN\t_\t0\troot\t_\t_\n\n"
SENSES = """<corpus><text><sentence><wf lemma="nothing" pos="NOUN">Nothing</wf>
<instance id="d0.s0.t0" lemma="river" pos="NOUN">river</instance></sentence></text></corpus>"""
PAIR = {"UID": "u", "linguistics_term": "t", "sentence_good": OSLO, "sentence_bad": ROME}
OTHER_SETS = {  # beside those of Table 1
    **{f"pos/en_ewt-ud-{part}.conllu.xz": WORDS for part in ("dev", "test")},
    **{f"pos/la_perseus-ud-{part}.conllu.xz": WORDS for part in ("train", "test")},
    "coref/gap-test.tsv.xz": f"ID\tText\ntest-1\tWhere? {LATE} {OSLO}\n",
    "wsd/senseval2/senseval2.data.xml": SENSES,
    "wsd/senseval2/senseval2.gold.key.txt": "d0.s0.t0 river%1:17:00::\n",
    **{f"mt/{name}.xz": "nichts\n" for name in ("multi30k.val.tok.de", "multi30k.test_2016_flickr.tok.de")},
    **{f"mt/europarl.{part}.en.xz": "nothing\n" for part in ("val", "test")},
    "lexsub/lst_all.preprocessed.xz": f"old.a\t1\t3\t{OSLO.lower()}\n",
    "sts/sts-dev.csv.xz": f"news\tx\t2012\t0\t5.0\t{OSLO}\t{ROME}\n",
    "lm/novels.dev.txt.xz": OSLO.replace("harbour of", "harbour\nof") + "\n",
    "lm/wiki.test.txt.xz": f"{LATE}\n{ROME}\n",
}


def write_other_sets(data: Path) -> None:
    for name, text in OTHER_SETS.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(lzma.compress(text.encode()) if name.endswith(".xz") else text.encode())
    (data / "blimp").mkdir()
    with tarfile.open(data / "blimp" / "blimp.tar.xz", "w:xz") as archive:
        content = json.dumps(PAIR).encode()
        member = tarfile.TarInfo("./u.jsonl")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


@pytest.fixture(scope="module")
def data_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write every data set."""
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    write_questions(folder / "data" / "squad" / "test-small.json.xz", PARAGRAPHS)
    write_other_sets(folder / "data")
    return folder


@pytest.fixture(scope="module")
def home(data_home: Path) -> Path:
    """Make a finished row of questions about three paragraphs."""
    given = {"--data": "data", "--elmo": "bilm", "--vectors": "data/glove.txt", "--recipes": "recipes"}
    options = [str(word) for name, path in given.items() for word in (name, data_home / path)]
    run_dir = str(data_home / "table1")
    options += ["--only", "squad,task", "--seeds", "1", "--workers", "1", "--keep-models", "--results", str(data_home)]
    assert cli.run(["reproduce", "table1", *options, "--run-dir", run_dir]) == 0
    return data_home


def rows_of(page: str, first: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(f"| {first} |")]


def call(*args: object) -> str:
    """Run the script in this process, and return its output."""
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setattr("sys.argv", [str(word) for word in (SCRIPT, *args)])
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return output.getvalue()


def write_page(home: Path, *lines: str) -> str:
    (home / "lm.txt").write_text("\n".join(lines))
    call(home / "data", home / "lm.txt", "--runs", home / "table1", "-o", home / "page.md")
    return (home / "page.md").read_text("utf-8")


def counts_of(page: str) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    return {row[1]: row[2:] for row in rows if "/" in row[1]}


@pytest.mark.long
def test_every_set_is_counted_without_runs(data_home: Path) -> None:
    (data_home / "lm.txt").write_text(f"{OSLO.upper()}\n{LATE}\n")
    call(data_home / "data", data_home / "lm.txt", "-o", data_home / "page.md")
    page = (data_home / "page.md").read_text("utf-8")
    counts = counts_of(page)
    assert counts["lm/novels.dev.txt.xz"] == ["1", "1", "100.0%"]  # the sentence is wrapped
    assert counts["lm/wiki.test.txt.xz"][:2] == ["3", "1"]  # two lines, and the paragraph that they make
    assert counts["coref/gap-test.tsv.xz"][:2] == ["3", "2"]
    for name in ("blimp/blimp.tar.xz", "sts/sts-dev.csv.xz"):
        assert counts[name] == ["2", "1", "50.0%"]
    assert counts["lexsub/lst_all.preprocessed.xz"] == ["1", "1", "100.0%"]
    assert counts["ner/wikigold.conll.xz"] == ["0", "0", "-"]
    assert "Scores by overlap" not in page


@pytest.mark.long
def test_a_text_prepared_with_the_printed_exclusion_has_seen_nothing(data_home: Path) -> None:
    setting = call(data_home / "data", "--list")
    files = json.loads(setting.removeprefix("data.exclude="))
    assert all(Path(name).is_file() for name in files)
    assert {Path(name).parts[-2] for name in files} >= {"squad", "lm", "blimp", "senseval2", "mt"}
    (data_home / "lm.txt").write_text(f"{OSLO}\n{LATE}\nSomething else altogether, which is long enough.\n")
    exclusion = Exclusion(tuple(files), read_texts)
    prepare_corpus([data_home / "lm.txt"], data_home / "text", exclude=exclusion)
    prepare_corpus([data_home / "lm.txt"], data_home / "all")
    for folder, expected in (("text", {"0"}), ("all", {"0", "1", "2"})):
        call(data_home / "data", data_home / folder, "-o", data_home / "page.md")
        found = {row[1] for row in counts_of((data_home / "page.md").read_text("utf-8")).values()}
        assert found == expected


def test_the_recipe_lists_every_set() -> None:
    recipe = (SCRIPT.parents[1] / "recipes" / "en-medium.toml").read_text("utf-8")
    listed = re.findall(r'"([a-z]+/[^"]+)"', recipe[recipe.index("# Excluded, below DATA:") :])
    patterns = [name for names in runpy.run_path(str(SCRIPT))["TEST_SETS"].values() for name in names]
    assert listed == patterns


@pytest.mark.slow
def test_seen_sentences_are_counted_and_scored_separately(home, capfd):
    page = write_page(home, "Something else altogether, which is long enough.", OSLO.upper().replace(" .", "!"))
    counts, *scores = rows_of(page, "SQuAD, a part")
    assert counts[1:] == ["3", "1", "33.3%", "3", "2", "1"]
    assert rows_of(page, "SST-5")[-1][1:4] == ["0", "0", "-"]
    assert [row[1:3] for row in scores] == [["all", "3"], ["nothing seen", "1"], ["half or more seen", "1"]]
    for row, paragraphs in zip(scores, (PARAGRAPHS, PARAGRAPHS[1:2], PARAGRAPHS[:1]), strict=True):
        write_questions(home / "part.json.xz", paragraphs)
        for cell, arm in zip(row[3:], ("baseline", "untrained", "elmo"), strict=True):
            (model,) = map(str, (home / "table1" / "squad" / arm).glob("seed-0-*/model"))
            capfd.readouterr()
            assert cli.run(["task", "evaluate", "squad", model, str(home / "part.json.xz"), "--json"]) == 0
            assert cell == f"{100 * json.loads(capfd.readouterr().out)['f1']:.2f} (1)"
    assert len({row[3] for row in scores}) == len(scores)
    assert "- command: python scripts/lm_overlap.py data lm.txt --runs table1 -o page.md\n" in page
    assert str(home) not in page


@pytest.mark.slow
def test_a_row_that_was_not_seen_is_not_scored(home):
    page = write_page(home, "Something else altogether, which is long enough.", "Rome")
    assert [row[2:] for row in rows_of(page, "SQuAD, a part")] == [["0", "0.0%", "3", "0", "0"]]


@pytest.mark.slow
def test_a_part_without_examples_has_no_score(home, tmp_path):
    shutil.copytree(home, tmp_path / "home")
    write_questions(tmp_path / "home" / "data" / "squad" / "test-small.json.xz", PARAGRAPHS[2:])
    page = write_page(tmp_path / "home", OSLO)
    _, *scores = rows_of(page, "SQuAD, a part")
    assert [row[2:] for row in scores[1:]] == [["0", "-", "-", "-"]] * 2
