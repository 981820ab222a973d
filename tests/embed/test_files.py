"""Embedding files: the same vectors as from memory, whole files only, and exact resume."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from published import PublishedModel
from safetensors.numpy import load_file

from elmokit.embed.embedder import Embedder
from elmokit.embed.files import WINDOW_LINES, WINDOW_TOKENS, Progress, Shard, embed_files, parse_shard
from elmokit.errors import InputError, OutputError
from elmokit.text.lines import find_inputs

TOLERANCE = 1e-5
WORDS = "the bank closed at noon because river water rose over its lower steps".split()


@pytest.fixture(scope="module")
def embedder(published_model: PublishedModel) -> Embedder:
    return Embedder.from_pretrained(published_model.pair)


@pytest.fixture(scope="module")
def long_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short lines enough for two windows and a bit."""
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, size=rng.integers(0, 3))) for _ in range(2 * WINDOW_LINES + 100)]
    path = tmp_path_factory.mktemp("text") / "long.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def stop_after(num_lines: int) -> Callable[[Progress], None]:
    """Interrupt a job, as Ctrl-C does, once so many lines are done."""

    def watch(progress: Progress) -> None:
        if progress.lines >= num_lines:
            raise KeyboardInterrupt

    return watch


def test_files_give_the_vectors_of_the_embedder(tmp_path, embedder):
    (tmp_path / "a.txt").write_text("The bank closed.\n\nShe left, alone.")
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("A river.\n")
    report = embed_files(embedder, [tmp_path / "a.txt", tmp_path / "b.txt.gz"], tmp_path / "out.hdf5")
    assert (report.lines, report.tokens) == (4, 4 + 0 + 5 + 3)
    expected = embedder.embed_layers(["The bank closed.", "", "She left, alone.", "A river."])
    with h5py.File(tmp_path / "out.hdf5") as found:
        assert sorted(found) == ["0", "1", "2", "3"]
        for number, layers_LTD in enumerate(expected):
            assert found[str(number)].shape == layers_LTD.shape
            np.testing.assert_allclose(found[str(number)], layers_LTD, atol=TOLERANCE)


@pytest.mark.parametrize("layers", ["all", "mean", 1, (0.5, 0.0, 2.0)])
@pytest.mark.parametrize("pool", [None, "mean", "max"])
def test_layers_and_tokens_are_picked_as_asked(tmp_path, embedder, layers, pool):
    text = tmp_path / "a.txt"
    text.write_text("the bank closed\n\n")
    embed_files(embedder, [text], tmp_path / "out.hdf5", layers=layers, pool=pool, tokenized=True)
    expected = embedder.embed_layers([["the", "bank", "closed"]])[0]
    match layers:
        case "mean":
            expected = expected.mean(axis=0)
        case int():
            expected = expected[layers]
        case tuple():
            expected = 0.5 * expected[0] + 2 * expected[2]
    if pool is not None:
        expected = expected.mean(axis=-2) if pool == "mean" else expected.max(axis=-2)
    with h5py.File(tmp_path / "out.hdf5") as found:
        np.testing.assert_allclose(found["0"], expected, atol=TOLERANCE)
        shape = expected.shape if pool else (*expected.shape[:-2], 0, expected.shape[-1])
        assert found["1"].shape == shape
        assert not np.any(found["1"])


def test_tokenized_lines_keep_their_tokens(tmp_path, embedder):
    text = tmp_path / "a.txt"
    text.write_text("closed.  (again)\t<S>\n")
    embed_files(embedder, [text], tmp_path / "out.jsonl", tokenized=True)
    assert json.loads((tmp_path / "out.jsonl").read_text())["tokens"] == ["closed.", "(again)", "<S>"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["out.safetensors", "out.npy", "out.hdf5", "out.jsonl"])
def test_an_interrupted_job_ends_with_the_bytes_of_an_unbroken_one(tmp_path, embedder, long_text, name):
    whole, broken = tmp_path / "whole" / name, tmp_path / "broken" / name
    whole.parent.mkdir()
    broken.parent.mkdir()
    embed_files(embedder, [long_text], whole, layers="mean", tokenized=True)
    # In the first window, in the second, and at the last line, when nothing is left but to finish.
    for stop in (500, WINDOW_LINES + 500, 2 * WINDOW_LINES + 100):
        with pytest.raises(KeyboardInterrupt):
            embed_files(embedder, [long_text], broken, layers="mean", tokenized=True, progress=stop_after(stop))
        assert not broken.exists()
    seen: list[Progress] = []
    report = embed_files(embedder, [long_text], broken, layers="mean", tokenized=True, progress=seen.append)
    assert report.resumed_lines == 2 * WINDOW_LINES
    assert seen[0].lines == 2 * WINDOW_LINES
    assert sorted(path.name for path in broken.parent.iterdir()) == sorted(path.name for path in whole.parent.iterdir())
    for path in whole.parent.iterdir():
        assert (broken.parent / path.name).read_bytes() == path.read_bytes()
    assert report.tokens == sum(len(line.split()) for line in long_text.read_text().splitlines())


def test_bytes_after_the_last_commit_never_count(tmp_path, embedder, long_text):
    embed_files(embedder, [long_text], tmp_path / "whole.npy", layers=0, tokenized=True)
    with pytest.raises(KeyboardInterrupt):
        embed_files(
            embedder, [long_text], tmp_path / "b.npy", layers=0, tokenized=True, progress=stop_after(WINDOW_LINES + 1)
        )
    for part in ("vectors", "offsets"):
        with (tmp_path / "b.npy.partial" / part).open("ab") as file:
            file.write(bytes(1_000_000))
    report = embed_files(embedder, [long_text], tmp_path / "b.npy", layers=0, tokenized=True)
    assert report.resumed_lines == WINDOW_LINES
    assert (tmp_path / "b.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_a_carried_state_is_resumed_too(tmp_path, published_model, long_text):
    embedder = Embedder.from_pretrained(published_model.pair, state="carry")
    text = tmp_path / "a.txt"
    text.write_text("\n".join(long_text.read_text().splitlines()[:350]))
    embed_files(embedder, [text], tmp_path / "whole.npy", tokenized=True, batch_size=100)
    with pytest.raises(KeyboardInterrupt):
        embed_files(embedder, [text], tmp_path / "b.npy", tokenized=True, batch_size=100, progress=stop_after(250))
    embedder.embed_layers([["other", "text"]] * 3)  # leaves a state behind
    report = embed_files(embedder, [text], tmp_path / "b.npy", tokenized=True, batch_size=100)
    assert report.resumed_lines == 200
    assert (tmp_path / "b.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    embedder.reset_state()
    sentences = [line.split() for line in text.read_text().splitlines()]
    expected = np.concatenate(
        [layers_LTD.swapaxes(0, 1) for layers_LTD in embedder.embed_layers(sentences, batch_size=100)]
    )
    np.testing.assert_allclose(np.load(tmp_path / "b.npy"), expected, atol=2e-3)


@pytest.mark.long
def test_shards_in_order_are_the_whole(tmp_path, embedder, long_text):
    options = {"layers": 2, "tokenized": True}
    embed_files(embedder, [long_text], tmp_path / "out.safetensors", **options)
    embed_files(embedder, [long_text], tmp_path / "out.jsonl", **options)
    for number in (1, 2, 3):
        embed_files(embedder, [long_text], tmp_path / "out.safetensors", shard=Shard(number, 3), **options)
        embed_files(embedder, [long_text], tmp_path / "out.jsonl", shard=Shard(number, 3), **options)
    names = [f"out-0000{number}-of-00003" for number in (1, 2, 3)]
    text = b"".join((tmp_path / f"{name}.jsonl").read_bytes() for name in names)
    assert text == (tmp_path / "out.jsonl").read_bytes()
    vectors = [load_file(tmp_path / f"{name}.safetensors")["vectors"] for name in names]
    assert np.array_equal(np.concatenate(vectors), load_file(tmp_path / "out.safetensors")["vectors"])


@pytest.mark.parametrize("num_lines", [0, 1, 1024, 1025, 10_000])
@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_shards_cover_every_line_once(num_lines, count):
    parts = [Shard(number, count).lines(num_lines, 1024) for number in range(1, count + 1)]
    assert [line for part in parts for line in part] == list(range(num_lines))


def test_another_job_does_not_touch_unfinished_work(tmp_path, embedder, long_text):
    output = tmp_path / "out.npy"
    with pytest.raises(KeyboardInterrupt):
        embed_files(embedder, [long_text], output, tokenized=True, progress=stop_after(WINDOW_LINES + 1))
    with pytest.raises(OutputError, match=r"unfinished output of another job, which differs in layers"):
        embed_files(embedder, [long_text], output, layers="mean", tokenized=True)
    report = embed_files(embedder, [long_text], output, layers="mean", tokenized=True, replace=True)
    assert report.resumed_lines == 0
    assert np.load(output).ndim == 2


def test_a_changed_input_is_another_job(tmp_path, embedder, long_text):
    text = tmp_path / "a.txt"
    text.write_bytes(long_text.read_bytes())
    with pytest.raises(KeyboardInterrupt):
        embed_files(embedder, [text], tmp_path / "out.npy", tokenized=True, progress=stop_after(WINDOW_LINES + 1))
    text.write_bytes(b"x" + long_text.read_bytes())
    with pytest.raises(OutputError, match="differs in inputs"):
        embed_files(embedder, [text], tmp_path / "out.npy", tokenized=True)


def test_another_model_is_another_job(tmp_path, embedder, published_model, long_text):
    with pytest.raises(KeyboardInterrupt):
        embed_files(embedder, [long_text], tmp_path / "o.npy", tokenized=True, progress=stop_after(WINDOW_LINES + 1))
    other = Embedder.from_pretrained(published_model.pair, state="reset")
    with pytest.raises(OutputError, match="differs in model"):
        embed_files(other, [long_text], tmp_path / "o.npy", tokenized=True)


def test_another_start_state_is_another_job(embedder):
    bilm = embedder.bilm
    first, second = (Embedder(bilm, state="warm", warm=warm) for warm in (None, bilm.zero_state(1)))
    assert first.fingerprint() == Embedder(bilm, state="warm").fingerprint()
    assert first.fingerprint() != second.fingerprint()


def test_two_processes_never_work_on_one_output(tmp_path, embedder, long_text):
    def start_again(_: Progress) -> None:
        with pytest.raises(OutputError, match="another process is writing to it"):
            embed_files(embedder, [long_text], tmp_path / "out.npy", tokenized=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_files(embedder, [long_text], tmp_path / "out.npy", tokenized=True, progress=start_again)


def test_nothing_is_left_of_a_job_that_did_nothing(tmp_path, embedder):
    text = tmp_path / "a.txt"
    text.write_text("a\nb\n")
    with pytest.raises(KeyboardInterrupt):
        embed_files(embedder, [text], tmp_path / "out.npy", progress=stop_after(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]


def test_an_existing_output_is_kept(tmp_path, embedder):
    text, output = tmp_path / "a.txt", tmp_path / "out.npy"
    text.write_text("a\n")
    output.write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"exists; name another file, or replace it \(--force\)"):
        embed_files(embedder, [text], output)
    assert output.read_bytes() == b"mine"
    embed_files(embedder, [text], output, replace=True)
    assert np.load(output).shape == (1, 3, 16)
    output.unlink()
    with pytest.raises(OutputError, match=r"out\.offsets\.npy: exists"):
        embed_files(embedder, [text], output)


def test_a_folder_of_someone_else_is_not_emptied(tmp_path, embedder):
    text = tmp_path / "a.txt"
    text.write_text("a\n")
    (tmp_path / "out.npy.partial").mkdir()
    (tmp_path / "out.npy.partial" / "thesis.tex").write_text("years")
    with pytest.raises(OutputError, match=r"contains thesis\.tex"):
        embed_files(embedder, [text], tmp_path / "out.npy", replace=True)
    assert (tmp_path / "out.npy.partial" / "thesis.tex").exists()


@pytest.mark.parametrize("output", ["missing/out.npy", "a.txt/out.npy", "."])
def test_an_output_that_cannot_be_written_is_found_before_the_model_runs(tmp_path, embedder, output):
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(OutputError):
        embed_files(
            embedder, [tmp_path / "a.txt"], tmp_path / output, file_format="npy", progress=lambda _: pytest.fail("ran")
        )


def test_text_that_cannot_be_read_is_found_before_the_model_runs(tmp_path, embedder):
    text = tmp_path / "a.txt"
    text.write_bytes(b"good\nbad \xff\n")
    with pytest.raises(InputError, match=r"a\.txt, line 2: byte 0xff"):
        embed_files(embedder, [text], tmp_path / "out.npy", progress=lambda _: pytest.fail("ran"))
    assert not (tmp_path / "out.npy.partial").exists()


def test_a_pipe_is_read_once_and_not_resumed(tmp_path, embedder):
    reading, writing = os.pipe()
    os.write(writing, b"the bank\nclosed\n")
    os.close(writing)
    report = embed_files(embedder, [f"/dev/fd/{reading}"], tmp_path / "out.npy")
    os.close(reading)
    assert (report.lines, report.tokens) == (2, 3)
    with pytest.raises(InputError, match="a stream has no shards"):
        embed_files(embedder, ["-"], tmp_path / "b.npy", shard=Shard(1, 2))


def test_a_link_stays_a_link(tmp_path, embedder):
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "out.npy").symlink_to(tmp_path / "far" / "real.npy")
    embed_files(embedder, [tmp_path / "a.txt"], tmp_path / "out.npy", pool="mean")
    assert (tmp_path / "out.npy").is_symlink()
    assert np.load(tmp_path / "far" / "real.npy").shape == (1, 3, 16)


def test_a_window_ends_before_it_has_too_many_tokens(tmp_path, embedder):
    text, output = tmp_path / "a.txt", tmp_path / "out.npy"
    text.write_text("\n".join([" ".join(WORDS * 10)] * 260))  # 260 times 130 tokens: more than a window holds
    in_one_window = WINDOW_TOKENS // 130
    with pytest.raises(KeyboardInterrupt):
        embed_files(embedder, [text], output, layers=0, tokenized=True, progress=stop_after(in_one_window + 1))
    report = embed_files(embedder, [text], output, layers=0, tokenized=True)
    assert report.resumed_lines == in_one_window
    assert np.load(tmp_path / "out.offsets.npy").tolist() == [130 * i for i in range(261)]


def test_cut_words_are_counted_for_each_job(tmp_path, embedder):
    (tmp_path / "a.txt").write_text("short " + "x" * 1_000_000 + "\n")
    for name in ("first.npy", "second.npy"):
        report = embed_files(embedder, [tmp_path / "a.txt"], tmp_path / name)
        assert (report.tokens, report.cut_words) == (2, 1)


def test_patterns_name_their_files_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "c.md", "odd[1].txt"):
        (tmp_path / name).touch()
    assert find_inputs([f"{tmp_path}/[ab].txt"]) == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    assert find_inputs([tmp_path / "odd[1].txt", "-"]) == [f"{tmp_path}/odd[1].txt", "-"]
    with pytest.raises(InputError, match="no file has such a name"):
        find_inputs([f"{tmp_path}/*.tex"])


@pytest.mark.parametrize("pattern", ["d*", "d*/"])
def test_a_pattern_of_directories_alone_is_refused_with_what_it_found(tmp_path, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    for name in ("docs", "data"):
        (tmp_path / name).mkdir()
    message = r"^d\*/?: no file has such a name, only directories such as data/?; .* for example d\*/\*$"
    for inputs in ([pattern], ["a.txt", pattern]):
        with pytest.raises(InputError, match=message):
            find_inputs(inputs)
    assert find_inputs(["*a*"]) == ["a.txt"]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "-1/2", "1/0"])
def test_a_shard_that_cannot_be_is_refused(text):
    with pytest.raises(InputError, match=r"shard .* such as"):
        parse_shard(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 3}, "layer 3; expected"),
        ({"layers": (0.5, 0.5)}, "2 mix weights"),
        ({"pool": "sum"}, "pooling 'sum'"),
        ({"batch_size": 0}, "batch_size 0"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path, embedder, options, message):
    with pytest.raises(InputError, match=message):
        embed_files(embedder, [tmp_path / "a.txt"], tmp_path / "out.npy", **options)
