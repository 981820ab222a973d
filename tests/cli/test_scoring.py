"""The verbs perplexity, score and finetune: their output, their files and their errors."""

import io
import json
import math
from pathlib import Path

import pytest
import torch
from commands import start_command
from terminal import run_on_terminal
from toy import TEXT, toy_model

from elmokit import cli
from elmokit.model.language_model import LanguageModel
from elmokit.score.perplexity import measure
from elmokit.score.saved_lm import load_language_model, save_language_model
from elmokit.score.scoring import Scorer
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import SPECIAL_WORDS, Vocab

SENTENCES = [line.split() for line in TEXT.splitlines()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a model folder with an output layer, whose vocabulary has half of the text's words."""
    vocab = Vocab([*SPECIAL_WORDS, *list(dict.fromkeys(TEXT.split()))[::2]])
    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("model") / "ours"
    save_language_model(LanguageModel.untrained(toy_model(), len(vocab)), vocab, folder)
    return str(folder)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with the text in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def table(printed: str) -> list[dict[str, str]]:
    """Return tab-separated rows by their headings."""
    headings, *rows = (line.split("\t") for line in printed.splitlines())
    return [dict(zip(headings, row, strict=True)) for row in rows]


# perplexity


def test_perplexity_is_what_the_library_measures(folder, model, capfd):
    assert cli.run(["perplexity", model, "text.txt", "--tokenized", "--all-states", "--json"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["state"] for line in lines] == ["reset", "warm", "carry"]
    loaded = load_language_model(model)
    corpus = prepare_corpus(["text.txt"], folder / "prepared", rules=TextRules(tokenized=True), max_chars=12)
    for line in lines:
        found = measure(loaded.model, corpus, loaded.vocab, state=line["state"], warm=loaded.start_state)
        assert line["forward"] == pytest.approx(found.forward)
        assert line["backward"] == pytest.approx(found.backward)
        assert line["arithmetic_mean"] == pytest.approx(found.arithmetic_mean)
        assert line["geometric_mean"] == pytest.approx(found.geometric_mean)
        assert (line["num_targets"], line["num_unknown"]) == (140, found.num_unknown)
    assert lines[0]["forward"] != lines[1]["forward"]


def test_perplexity_is_a_table_of_the_warm_state(model, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["perplexity", model, "text.txt", "--tokenized", "--max-tokens", "19"]) == 0
    out, err = capfd.readouterr()
    headings, row = out.splitlines()
    assert headings.split() == ["state", "forward", "backward", "mean", "geometric", "mean", "targets", "unknown"]
    assert row.startswith("warm ")
    assert row.split()[-2] == "21"  # two sentences, of ten and of nine words
    assert err == ""


def test_split_makes_sentences_of_paragraphs(folder, model, capfd):
    (folder / "paragraph.txt").write_text("The fish were fast. The man was patient.\n")
    targets = []
    for options in ([], ["--split"]):
        assert cli.run(["perplexity", model, "paragraph.txt", "--json", *options]) == 0
        targets.append(json.loads(capfd.readouterr().out)["num_targets"])
    assert targets == [11, 12]


def test_carry_on_a_short_text_is_warned_of(model, capfd):
    assert cli.run(["perplexity", model, "text.txt", "--tokenized", "--state", "carry"]) == 0
    err = capfd.readouterr().err
    assert err.startswith("elmokit: warning: state carry has 140 targets in 256 rows")
    assert err.count("\n") == 1


# score


def test_score_in_a_pipe_is_tab_separated_and_skips_blank_lines(folder, model, capfd):
    (folder / "a.txt").write_text("the fish were fast\n\n \nhe took a zebra\n")
    assert cli.run(["score", "a.txt", "text.txt", "-m", model, "--tokenized"]) == 0
    rows = table(capfd.readouterr().out)
    assert [row["line"] for row in rows[:3]] == ["0", "3", "4"]
    assert len(rows) == 2 + len(SENTENCES)
    expected = Scorer.from_pretrained(model).score([row["sentence"].split() for row in rows])
    assert [row["sentence"] for row in rows[:2]] == ["the fish were fast", "he took a zebra"]
    for row, score in zip(rows, expected, strict=True):
        assert float(row["perplexity"]) == pytest.approx(score.perplexity, abs=0.006)
        assert float(row["forward_total"]) == pytest.approx(score.forward_total, abs=1e-3)
        assert float(row["backward_total"]) == pytest.approx(score.backward_total, abs=1e-3)
        assert int(row["unknown"]) == score.unknown.sum()


def test_raw_text_is_tokenized_and_standard_input_is_read(model, capfd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The fish, fast.\n")))
    assert cli.run(["score", "-", "-m", model, "--json", "--state", "reset"]) == 0
    found = json.loads(capfd.readouterr().out)
    [expected] = Scorer.from_pretrained(model, state="reset").score(["The fish, fast."])
    assert found["tokens"] == ["The", "fish", ",", "fast", "."]
    assert found["forward_total"] == pytest.approx(expected.forward_total, abs=1e-4)


def test_tokens_add_up_to_the_sentence(model, capfd):
    assert cli.run(["score", "text.txt", "-m", model, "--tokenized", "--tokens"]) == 0
    rows = [row for row in table(capfd.readouterr().out) if row["line"] == "1"]
    [expected] = Scorer.from_pretrained(model).score([SENTENCES[1]])
    assert [row["token"] for row in rows] == ["<S>", *SENTENCES[1], "</S>"]
    assert (rows[0]["forward_logprob"], rows[-1]["backward_logprob"]) == ("", "")
    assert sum(float(row["forward_logprob"]) for row in rows[1:]) == pytest.approx(expected.forward_total, abs=1e-2)
    assert sum(float(row["backward_logprob"]) for row in rows[:-1]) == pytest.approx(expected.backward_total, abs=1e-2)
    assert [row["unknown"] == "1" for row in rows[1:-1]] == expected.unknown.tolist()


def test_json_has_all_and_top_k_hides_the_specials(model, capfd):
    num_words = len(load_language_model(model).vocab) - len(SPECIAL_WORDS)
    assert cli.run(["score", "text.txt", "-m", model, "--tokenized", "--json", "--top-k", str(num_words)]) == 0
    first = json.loads(capfd.readouterr().out.splitlines()[0])
    scorer = Scorer.from_pretrained(model)
    [score] = scorer.score([SENTENCES[0]])
    [places] = scorer.predict([SENTENCES[0]], top_k=num_words + 3)
    assert first["forward_logprobs"] == pytest.approx(score.forward_logprobs.tolist(), abs=1e-4)
    assert first["backward_logprobs"] == pytest.approx(score.backward_logprobs.tolist(), abs=1e-4)
    assert first["unknown"] == score.unknown.tolist()
    for name in ("end_logprob", "start_logprob", "backward_total", "forward_perplexity", "backward_perplexity"):
        assert first[name] == pytest.approx(getattr(score, name), abs=1e-3)
    for found, place in zip(first["places"], places, strict=True):
        for side in ("forward", "backward", "both"):
            expected = {one.word: one.logprob for one in getattr(place, side) if one.word not in SPECIAL_WORDS}
            assert {one["word"]: one["logprob"] for one in found[side]} == pytest.approx(expected, abs=1e-4)
            logprobs = [one["logprob"] for one in found[side]]
            assert logprobs == sorted(logprobs, reverse=True)


def test_top_k_in_a_pipe_is_one_row_per_candidate(model, capfd):
    assert cli.run(["score", "text.txt", "-m", model, "--tokenized", "--top-k", "2"]) == 0
    rows = table(capfd.readouterr().out)
    assert [(row["place"], row["token"], row["rank"]) for row in rows[:3]] == [
        ("1", "the", "1"),
        ("1", "the", "2"),
        ("2", "old", "1"),
    ]
    assert len(rows) == 2 * len(TEXT.split())


def test_a_text_of_many_windows_keeps_its_order(folder, model, capfd):
    (folder / "long.txt").write_text(TEXT * 70)  # 8,750 words
    assert cli.run(["score", "long.txt", "-m", model, "--tokenized"]) == 0
    rows = table(capfd.readouterr().out)
    assert [int(row["line"]) for row in rows] == list(range(70 * len(SENTENCES)))
    assert {row["perplexity"] for row in rows[:: len(SENTENCES)]} == {rows[0]["perplexity"]}


def test_a_terminal_shows_one_line_per_sentence_in_80_columns(folder, model, monkeypatch):
    (folder / "a.txt").write_text("the fish \x1b[31m were fast\n" + "the river " * 50 + "\n")
    lines = run_on_terminal(["score", "a.txt", "-m", model, "--tokenized"], monkeypatch)
    assert lines[1].split() == ["line", "perplexity", "forward", "backward", "unknown", "sentence"]
    assert lines[4:6] == ["", "total             log10  perplexity  log10 w/o OOV  perplexity w/o OOV"]
    assert max(map(len, lines)) <= 80
    assert lines[3].rstrip().endswith("…")
    assert "the fish \N{REPLACEMENT CHARACTER}[31m were fast" in lines[2]  # no text can change the terminal


@pytest.mark.parametrize(
    ("option", "heading"), [(["--tokens"], "token forward backward"), (["--top-k", "3"], "token from the left from")]
)
def test_a_terminal_shows_one_table_per_sentence(model, monkeypatch, option, heading):
    lines = run_on_terminal(["score", "text.txt", "-m", model, "--tokenized", *option], monkeypatch)
    assert lines[0].startswith("line 0, perplexity ")
    assert " ".join(lines[1].split()).startswith(heading)
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("line ") for line in lines) == len(SENTENCES)


@pytest.mark.long
def test_score_answers_each_line_of_a_pipe_before_the_next(model):
    process = start_command("score", "-", "-m", model, "--tokenized", "--json", has_input=True)
    for number, sentence in enumerate(SENTENCES[:3]):
        process.stdin.write(" ".join(sentence) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())  # hangs if it waits for more input
        assert (answer["line"], answer["tokens"]) == (number, sentence)
    process.communicate()
    assert process.returncode == 0


def test_totals_are_those_of_all_sentences_with_and_without_oov(model, capfd):
    assert cli.run(["score", "text.txt", "-m", model, "--tokenized", "--totals", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    scores = Scorer.from_pretrained(model).score(SENTENCES)
    forward = sum(score.forward_total for score in scores)
    oov = sum(score.forward_logprobs[score.unknown].sum() for score in scores)
    num_oov = sum(int(score.unknown.sum()) for score in scores)
    assert (found["sentences"], found["tokens"], found["oov"]) == (15, 125, num_oov)
    assert found["forward_log10"] == pytest.approx(forward / math.log(10), rel=1e-5)
    assert found["forward_perplexity"] == pytest.approx(math.exp(-forward / 140), rel=1e-5)
    assert found["forward_perplexity_without_oov"] == pytest.approx(
        math.exp((oov - forward) / (140 - num_oov)), rel=1e-5
    )
    assert cli.run(["score", "text.txt", "-m", model, "--tokenized", "--totals"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == f"15 sentences, 125 tokens, {num_oov} out-of-vocabulary"


def test_totals_follow_the_table_on_a_terminal(model, monkeypatch):
    lines = run_on_terminal(["score", "text.txt", "-m", model, "--tokenized"], monkeypatch)
    assert lines[-1].startswith("15 sentences, 125 tokens, ")


NBEST = """0 ||| the old man fished ||| lm: -3 ||| -1.5
0 ||| the old zebra ||| lm: -2 ||| -9.5
1 ||| fish ||| lm: -2 ||| -2.0
"""


def test_nbest_adds_the_score_as_a_field_and_finds_the_best(folder, model, capfd):
    (folder / "list.txt").write_text(NBEST)
    assert cli.run(["score", "list.txt", "-m", model, "--nbest"]) == 0
    lines = capfd.readouterr().out.splitlines()
    texts = [line.split(" ||| ")[1] for line in lines]
    scores = Scorer.from_pretrained(model).score([text.split() for text in texts])
    assert [line.rpartition(" ||| ")[0] for line in lines] == NBEST.splitlines()
    assert [float(line.rpartition(" ||| ")[2]) for line in lines] == pytest.approx(
        [(score.forward_total + score.backward_total) / 2 / math.log(10) for score in scores], abs=1e-5
    )
    assert cli.run(["score", "list.txt", "-m", model, "--nbest", "--best"]) == 0
    assert [line.split(" ||| ")[1] for line in capfd.readouterr().out.splitlines()] == ["the old zebra", "fish"]
    assert cli.run(["score", "list.txt", "-m", model, "--nbest", "--best", "--lm-weight", "0.1"]) == 0
    assert capfd.readouterr().out.startswith("0 ||| the old man fished ||| ")


@pytest.mark.parametrize("option", [[], ["--json"], ["--totals"], ["--nbest"]])
def test_score_warns_of_an_empty_input(folder, model, capfd, option):
    (folder / "empty.txt").write_text("\n")
    assert cli.run(["score", "empty.txt", "-m", model, *option]) == 0
    assert capfd.readouterr().err.startswith("elmokit: warning: no ")


TUNE = ["-o", "tuned"]
FAILURES = {
    "no folder": (["score", "text.txt", "-m", "nowhere"], "nowhere: does not exist; expected the folder of a model"),
    "no output layer": (["score", "text.txt", "-m", "PUBLISHED"], "has no output layer"),
    "two tables": (["score", "text.txt", "-m", "MODEL", "--tokens", "--top-k", "2"], "--tokens and --top-k are two"),
    "best of nothing": (["score", "text.txt", "-m", "MODEL", "--best"], "add --nbest"),
    "weight of nothing": (["score", "a", "-m", "MODEL", "--nbest", "--lm-weight", "2"], "add --nbest --best"),
    "no list": (["score", "text.txt", "-m", "MODEL", "--nbest"], "expected id ||| hypothesis"),
    "list as JSON": (["score", "text.txt", "-m", "MODEL", "--nbest", "--json"], "--nbest prints the lines of the list"),
    "too many words": (["score", "text.txt", "-m", "MODEL", "--top-k", "999"], "--top-k 999; expected at most"),
    "no language": (["score", "text.txt", "-m", "MODEL", "--language", "xx"], "xx"),
    "no text": (["score", "none.txt", "-m", "MODEL"], "none.txt: no such file"),
    "not UTF-8": (["perplexity", "MODEL", "latin.txt"], "latin.txt, line 2: byte 0xe9"),
    "empty text": (["perplexity", "MODEL", "empty.txt"], "no sentence in empty.txt"),
    "stream": (["perplexity", "MODEL", "-"], "standard input cannot be prepared"),
    "a file": (["perplexity", "text.txt", "text.txt"], "text.txt: is a file; expected the folder of a model"),
    "two wishes": (["perplexity", "MODEL", "text.txt", "--state", "warm", "--all-states"], "choose one of the two"),
    "tuned from nothing": (["finetune", "nowhere", "text.txt", *TUNE], "nowhere: does not exist"),
    "half a pair": (
        ["finetune", "options.json", "text.txt", *TUNE],
        "then the text: elmokit finetune options.json weights.hdf5 TEXT",
    ),
    "a pair alone": (["finetune", "options.json", "a.hdf5", *TUNE], "no text; name one or more files"),
    "new words": (["finetune", "MODEL", "text.txt", *TUNE, "--vocab-size", "9"], "keeps its words; leave out"),
    "no rows": (["finetune", "MODEL", "text.txt", *TUNE, "--rows", "0"], "training.num_rows = 0: "),
    "in use": (["finetune", "MODEL", "text.txt", "-o", "used"], "used: is a folder with files in it"),
    "not a model": (
        ["finetune", "MODEL", "text.txt", "-o", "used", "--force"],
        "used: exists and is not an elmokit model",
    ),
}


@pytest.mark.parametrize(("args", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_line_and_exit_code_1(folder, model, published_model, capfd, args, message):
    (folder / "latin.txt").write_bytes(b"cafe\ncaf\xe9\n")
    (folder / "empty.txt").touch()
    (folder / "used").mkdir()
    (folder / "used" / "thesis.tex").write_text("years")
    before = sorted(folder.rglob("*"))
    names = {"MODEL": model, "PUBLISHED": str(published_model.options_path.parent)}
    assert cli.run([names.get(arg, arg) for arg in args]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("elmokit: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    "args",
    [
        ["perplexity", "x"],
        ["perplexity", "x", "y", "--workers", "0"],
        ["score", "a", "-m", "b", "--state", "carry"],
        ["finetune", "x", "y"],
        ["finetune", "x", "y", "-o", "z", "--workers", "0"],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(capfd, args):
    assert cli.run(args) == 2
    assert capfd.readouterr().err.count("\n") == 1
