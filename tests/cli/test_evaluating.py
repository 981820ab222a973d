"""The verb evaluate: its tables, its JSON and its errors, against the library."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from lm_oracle import make_pair
from published import make_published
from toy import TEXT

from elmokit import cli
from elmokit.analysis.blimp import score_blimp
from elmokit.analysis.lexsub import score_substitutes
from elmokit.analysis.pos_probe import PosData, probe_pos, untrained_like
from elmokit.analysis.sts import score_sts
from elmokit.analysis.wsd import learn_senses, score_senses
from elmokit.cli.evaluating import CONTROL_SEED
from elmokit.embed.embedder import Embedder
from elmokit.readers.blimp import read_blimp
from elmokit.readers.conllu import read_conllu
from elmokit.readers.lexsub import read_lexsub
from elmokit.readers.sts import read_sts
from elmokit.readers.wsd import read_sense_index, read_wsd
from elmokit.score.saved_lm import save_language_model
from elmokit.score.scoring import Scorer

SENTENCES = [line.split() for line in TEXT.splitlines()]
POS = ["evaluate", "pos", "--train", "train.conllu", "--dev", "dev.conllu", "--test", "test.conllu"]
WSD = ["evaluate", "wsd", "a.data.xml", "b.data.xml", "--train", "a.data.xml", "--index", "index.sense"]
SENSE_XML = """<corpus><text><sentence><wf lemma="the" pos="DET">the</wf>
<instance id="d0.s0.t0" lemma="river" pos="NOUN">{}</instance></sentence></text></corpus>"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a small language model."""
    home = tmp_path_factory.mktemp("model")
    pair = make_pair(make_published(home / "published", dim=8, projection_dim=4))
    save_language_model(pair.model, pair.vocab, home / "lm")
    return str(home / "lm")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a little of every data set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for part, lines in {"train": SENTENCES[:9], "dev": SENTENCES[9:12], "test": SENTENCES[12:]}.items():
        (tmp_path / f"{part}.conllu").write_text("".join(map(conllu, lines)))
    (tmp_path / "all.conllu").write_text("".join(map(conllu, SENTENCES[:12])))
    pairs = [
        {"UID": f"u{number % 2}", "linguistics_term": "t", "sentence_good": good, "sentence_bad": f"{good} fish river"}
        for number, good in enumerate(TEXT.splitlines()[:6])
    ]
    (tmp_path / "blimp.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (tmp_path / "lst_all.preprocessed").write_text(f"old.a\t1\t1\t{' '.join(SENTENCES[0])}\n")
    (tmp_path / "lst_all.gold").write_text("old.a 1 :: river 2;gnu 1;\n")
    (tmp_path / "lst.gold.candidates").write_text("old.a::boat;river;gnu;very big\n")
    lines = TEXT.splitlines()
    rows = [f"g\tf\ty\t{n}\t{n / 2}\t{lines[n]}\t{lines[-n - 1]}" for n in range(6)]
    (tmp_path / "sts.csv").write_text("\n".join(rows))
    for name, word in {"a": "river", "b": "rivers"}.items():
        (tmp_path / f"{name}.data.xml").write_text(SENSE_XML.format(word))
        (tmp_path / f"{name}.gold.key.txt").write_text("d0.s0.t0 river%1:17:01::\n")
    (tmp_path / "index.sense").write_text("river%1:17:00:: 09411430 1 30\n")
    return tmp_path


def conllu(tokens: list[str]) -> str:
    """Return a sentence whose tags separate short words from long ones."""
    rows = [[word, "_", "_", "LONG" if len(word) > 3 else "SHORT", "_", "0", "_", "_", "_"] for word in tokens]
    return "".join("\t".join([str(number), *row]) + "\n" for number, row in enumerate(rows, start=1)) + "\n"


def run_json(args: list[str], capfd: pytest.CaptureFixture[str]) -> list[dict]:
    assert cli.run([*args, "--json"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return [json.loads(line) for line in out.splitlines()]


def run_table(args: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    assert cli.run(args) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def test_blimp_is_judged_in_three_directions(model, capfd):
    expected = score_blimp(Scorer.from_pretrained(model), read_blimp("blimp.jsonl"))
    [found] = run_json(["evaluate", "blimp", "blimp.jsonl", "-m", model], capfd)
    assert found == json.loads(json.dumps(asdict(expected)))
    out = run_table(["evaluate", "blimp", "blimp.jsonl", "-m", model], capfd)
    models = ["[5-gram]", "[LSTM]", "[Transformer-XL]", "[GPT-2]"]
    assert out.splitlines()[0].split() == ["accuracy,", "%", "forward", "backward", "both", *models]
    overall = [f"{100 * expected.by_direction[name].overall:.1f}" for name in ("forward", "backward", "both")]
    assert out.splitlines()[1].split()[2:] == [*overall, "61.2", "69.8", "69.6", "83.0"]
    assert "ties, counted as wrong" in out
    assert "[published] (Warstadt et al. 2020" in out


def test_substitutes_are_ranked(model, capfd):
    names = ("lst_all.preprocessed", "lst_all.gold", "lst.gold.candidates")
    expected = score_substitutes(Scorer.from_pretrained(model), read_lexsub(*names))
    [found] = run_json(["evaluate", "lexsub", ".", "-m", model], capfd)
    assert found == asdict(expected)
    out = run_table(["evaluate", "lexsub", ".", "-m", model], capfd)
    assert out.splitlines()[0].split() == ["GAP,", "%", "words", "forward", "backward", "both"]
    assert "published (Arefyev et al. 2020" in out


def test_sentence_vectors_are_correlated_per_layer_and_pooling(model, capfd):
    (Path.cwd() / "text.txt").write_text("\n".join(TEXT.splitlines() * 10))
    found = run_json(["evaluate", "sts", "sts.csv", "-m", model, "--fit", "text.txt"], capfd)
    assert [(one["layer"], one["pooling"]) for one in found] == [
        *((layer, pooling) for layer in (0, 1, 2, "mean") for pooling in ("mean", "max")),
        *((layer, "fitted") for layer in (0, 1, 2, "mean")),
    ]
    embedder, pairs = Embedder.from_pretrained(model), list(read_sts("sts.csv"))
    for one in found[:8]:
        expected = score_sts(
            lambda texts, one=one: embedder.encode(texts, layer=one["layer"], pooling=one["pooling"]), pairs
        )
        assert one["spearman"] == pytest.approx(expected.spearman, abs=1e-6)
        assert one["pearson"] == pytest.approx(expected.pearson, abs=1e-4)
    out = run_table(["evaluate", "sts", "sts.csv", "-m", model], capfd)
    assert len(out.splitlines()) == 1 + 8 + 1
    assert "published (Reimers and Gurevych 2019" in out


def test_senses_are_scored_per_set_and_together(model, capfd):
    found = run_json([*WSD, "-m", model], capfd)
    embedder = Embedder.from_pretrained(model)
    senses = learn_senses(embedder, list(read_wsd("a.data.xml", "a.gold.key.txt")))
    first = read_sense_index("index.sense")
    for one, name in zip(found, "ab", strict=False):
        expected = score_senses(embedder, senses, first, list(read_wsd(f"{name}.data.xml", f"{name}.gold.key.txt")))
        assert one == {"set": name, **json.loads(json.dumps(asdict(expected)))}
    assert found[-1] == {"set": "all", "num_instances": 2, "first_sense": 0.0, "layers": [1.0] * 3, "num_unseen": 0}
    out = run_table([*WSD, "-m", model], capfd)
    assert out.splitlines()[0].split()[:5] == ["F1,", "%", "words", "unseen", "first"]
    assert "Peters et al. 2018, Table 5" in out


def test_tags_are_probed_per_layer_and_with_a_control(model, capfd):
    lines = run_json([*POS, "-m", model, "--control"], capfd)
    data = PosData(*(list(read_conllu(f"{part}.conllu")) for part in ("train", "dev", "test")))
    embedder = Embedder.from_pretrained(model)
    probed = {"given": embedder, "untrained": untrained_like(embedder, seed=CONTROL_SEED)}
    expected = [(name, one) for name, bilm in probed.items() for one in probe_pos(bilm, data)]
    assert len(lines) == 2 * 4
    for line, (name, result) in zip(lines, expected, strict=True):
        assert (line["bilm"], line["layer"], line["strength"]) == (name, result.layer, result.strength)
        assert (line["dev_accuracy"], line["test_accuracy"]) == (result.dev_accuracy, result.test_accuracy)
        assert [trial["dev_accuracy"] for trial in line["trials"]] == [one.dev_accuracy for one in result.trials]


def test_a_treebank_without_dev_set_gives_its_last_tenth(model, capfd):
    def numbers(args: list[str]) -> list[tuple[float, float]]:
        return [(one["dev_accuracy"], one["test_accuracy"]) for one in run_json([*args, "-m", model], capfd)]

    (Path.cwd() / "most.conllu").write_text("".join(map(conllu, SENTENCES[:11])))
    (Path.cwd() / "last.conllu").write_text(conllu(SENTENCES[11]))
    ends = ["--test", "test.conllu"]
    given = numbers(["evaluate", "pos", "--train", "most.conllu", "--dev", "last.conllu", *ends])
    assert numbers(["evaluate", "pos", "--train", "all.conllu", *ends]) == given


def test_the_probe_prints_one_row_per_layer(model, capfd):
    lines = run_table([*POS, "-m", model], capfd).splitlines()
    assert "not comparable" in lines[0]
    assert lines[2].split() == ["encoder", "layer", "dev", "test", "strength", "seconds"]
    rows = [line.split() for line in lines[3:]]
    assert [row[:2] for row in rows] == [["given", "0"], ["given", "1"], ["given", "2"], ["given", "mean"]]
    assert all(row[2].endswith("%") and row[3].endswith("%") for row in rows)


FAILURES = {
    "the old name": (["probe", "pos", "--train", "x"], "probe is now a part of evaluate; write elmokit evaluate pos"),
    "no treebank": ([*POS[:-1], "none.conllu", "-m", "MODEL"], "none.conllu: no such file"),
    "not a treebank": ([*POS[:-1], "blimp.jsonl", "-m", "MODEL"], "blimp.jsonl, line 1: 1 columns"),
    "empty treebank": ([*POS[:-1], "empty.conllu", "-m", "MODEL"], "the test part has no tokens"),
    "an empty column": ([*POS, "--column", "upos", "-m", "MODEL"], "only the tag '_' in the column upos"),
    "no pairs": (["evaluate", "blimp", "empty.conllu"], "no minimal pairs in it"),
    "no model": (["evaluate", "blimp", "blimp.jsonl", "-m", "nowhere"], "nowhere: does not exist"),
    "no substitutes": (["evaluate", "lexsub", "nowhere"], "nowhere: has no lst_all.preprocessed"),
    "no keys": (["evaluate", "wsd", "c.data.xml", *WSD[4:]], "c.data.xml: its keys are missing"),
    "no senses": (["evaluate", "wsd", "sts.csv", *WSD[4:]], "sts.csv: expected a file NAME.data.xml"),
    "no similarities": (["evaluate", "sts", "blimp.jsonl"], "blimp.jsonl, line 1: found"),
}


@pytest.mark.parametrize(("args", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_line_and_exit_code_1(folder, model, capfd, args, message):
    (folder / "empty.conllu").touch()
    (folder / "c.data.xml").touch()
    assert cli.run([{"MODEL": model}.get(arg, arg) for arg in args]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("elmokit: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("args", [["evaluate", "pos", "--train", "train.conllu"], ["evaluate", "colours"]])
def test_wrong_usage_is_one_line_and_exit_code_2(capfd, args):
    assert cli.run(args) == 2
    assert capfd.readouterr().err.count("\n") == 1
