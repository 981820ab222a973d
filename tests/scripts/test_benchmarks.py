"""The benchmarks run and measure what they claim."""

import random
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.embed.embedder import Embedder
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import build_bilm

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

FILTERS = ((1, 8), (2, 16), (3, 16))
MODELS = {
    "as published": BiLMConfig(
        char_encoder=CharEncoderConfig(filters=FILTERS), lstm=LSTMConfig(cell_dim=32, proj_dim=16)
    ),
    "clipped often": BiLMConfig(
        char_encoder=CharEncoderConfig(filters=FILTERS),
        lstm=LSTMConfig(cell_dim=32, proj_dim=16, cell_clip=0.4, proj_clip=0.4),
    ),
    "otherwise": BiLMConfig(
        char_encoder=CharEncoderConfig(filters=FILTERS, activation="tanh", num_highway=1, max_chars=20),
        lstm=LSTMConfig(cell_dim=32, proj_dim=16, num_layers=3, cell_clip=None, proj_clip=None, skip_connections=False),
    ),
}


pytestmark = pytest.mark.filterwarnings("ignore:.*(was|were) cut")


@pytest.fixture
def load_benchmark(monkeypatch):
    """Import a file of the benchmarks, which see each other as their commands do."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module


@pytest.fixture(scope="session")
def text_path(tmp_path_factory):
    """Write a text of 100 sentences of 5 to 40 words."""
    draw = random.Random(0)
    letters = "etaoinshrdlu"
    words = ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(200)]
    sentences = [" ".join(draw.choices(words, k=draw.randint(5, 40))).capitalize() + " ." for _ in range(100)]
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("\n".join(sentences), encoding="utf-8")
    return path


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_the_reference_computes_what_we_compute(load_benchmark, text_path, config):
    workload, naive = load_benchmark("workload"), load_benchmark("naive")
    sentences = [*list(workload.read_sentences(text_path))[:9], ["one"], ["a" * 60, "żółw"]]
    tensors = workload.draw_tensors(config)
    ours = Embedder(build_bilm(SavedBiLM(config, tensors)), state="reset")
    with pytest.warns(match="cut"):
        expected = ours.embed_layers(sentences)
    found = naive.NaiveBiLM(config, tensors).embed_layers(sentences)
    assert [layers.shape for layers in found] == [layers.shape for layers in expected]
    for theirs, layers in zip(found, expected, strict=True):
        np.testing.assert_allclose(theirs, layers, rtol=0, atol=1e-5)
        assert layers.std() > 0.05  # the model is not one that gives nothing


def test_sorted_batches_have_sentences_of_similar_length_from_short_to_long(load_benchmark):
    workload = load_benchmark("workload")
    draw = random.Random(0)
    sentences = [["w"] * draw.randint(1, 64) for _ in range(64 * 64)]
    short, long = workload.sorted_batches(sentences, 2)
    for batch in (short, long):
        lengths = [len(sentence) for sentence in batch]
        assert len(batch) == workload.SORTED_BATCH
        assert max(lengths) - min(lengths) <= 2
    assert len(short[0]) < 20 < 45 < len(long[0])


def test_the_latency_is_that_of_twenty_words(load_benchmark):
    workload = load_benchmark("workload")
    batches = workload.single_sentences([["short"], ["w"] * 30, ["v"] * 20], 2)
    assert batches == [[["w"] * 20], [["v"] * 20]]


def test_operations_of_the_paper_size_are_those_of_the_paper(load_benchmark):
    assert load_benchmark("gemm").lstm_flops(LSTMConfig()) == pytest.approx(151e6, rel=0.01)


def test_a_stream_has_the_requested_tokens_and_respells_a_short_text(load_benchmark, tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("a b c\nd\n", encoding="utf-8")
    stream = load_benchmark("one_process").stream
    assert list(stream(path, 2)) == [["a", "b"]]
    assert list(stream(path, 10)) == [["a", "b", "c"], ["d"], ["a1", "b1", "c1"], ["d1"], ["a2", "b2"]]


def test_the_cosine_is_one_for_equal_vectors_and_falls_with_the_angle(load_benchmark):
    cosines = load_benchmark("int8_accuracy").cosines
    first_LTD = np.array([[[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]]], dtype=np.float32)
    second_LTD = np.array([[[1.0, 1.0], [0.0, 0.0], [5.0, 0.0]]], dtype=np.float32)
    np.testing.assert_allclose(cosines(first_LTD, second_LTD), [[0.5**0.5, 1.0, 1.0]])


def test_sides_alternate_per_batch_and_rounds_are_separate(load_benchmark):
    inference = load_benchmark("inference")
    calls = []
    sides = {name: lambda batch, name=name: calls.append((name, batch)) for name in ("theirs", "ours")}
    taken = inference.take_turns(lambda: sides, ["first", "second"], rounds=2)
    one_round = [("theirs", "first"), ("ours", "first"), ("theirs", "second"), ("ours", "second")]
    assert calls == one_round * 2
    assert {name: len(seconds) for name, seconds in taken.items()} == {"theirs": 2, "ours": 2}


def test_a_ratio_below_its_goal_is_marked(load_benchmark):
    inference, report = load_benchmark("inference"), load_benchmark("report")
    row = report.Row("paper", "sorted")
    assert inference.ratio_row(row, [1.0, 1.9, 5.0], 2.0).met == "NO"
    assert inference.ratio_row(row, [1.0, 2.1, 5.0], 2.0).met == "yes"
    assert inference.ratio_row(row, [1.0, 2.1, 5.0], 2.0).ratio == "2.10x (1.00x-5.00x)"
    assert inference.ratio_row(row, [1.0, 2.1, 5.0], None).met == ""


@pytest.mark.slow
def test_the_benchmark_saves_the_table_that_it_prints(text_path, tmp_path):
    parts = ["sorted", "unsorted", "sentence", "corpus", "lstm", "accuracy"]
    only = [argument for part in parts for argument in ("--only", part)]
    shown = run("inference.py", text_path, "--size", "tiny", "--rounds", 1, *only, "--save", tmp_path / "kept.md")
    kept = (tmp_path / "kept.md").read_text(encoding="utf-8")
    for row in (
        "batches of 64, sorted; int8, cached words",
        "one sentence of 20 words; fp32, new words",
        "LSTMs alone",
    ):
        assert row in shown
        assert row in kept
    assert kept.count("| tiny |") == 4 + 4 + 4 + 2 + 2 + 3
    assert str(text_path.parent) not in kept


@pytest.mark.slow
def test_load_and_memory_are_measured_in_new_processes(text_path):
    shown = run("inference.py", text_path, "--size", "tiny", "--rounds", 1, "--only", "load", "--only", "memory")
    for row in ("load, hdf5", "load, folder", "peak memory, 2,000 tokens; int8", "growth, 500 to 2,000 tokens"):
        assert row in shown


@pytest.mark.slow
def test_the_peak_of_a_process_is_not_that_of_its_parent():
    ballast = np.ones(100_000_000)  # 800 MB
    code = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import one_process; print(one_process.peak_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < ballast.nbytes


@pytest.mark.slow
def test_int8_accuracy_runs_as_a_command(published_model, text_path):
    shown = run("int8_accuracy.py", published_model.options_path.parent, text_path, "--sentences", 5)
    assert "mean cosine" in shown
    assert "5 sentences" in shown


@pytest.mark.slow
def test_the_pretraining_benchmark_runs_and_both_sides_agree(text_path):
    printed = run("pretrain.py", text_path, "--size", "tiny", "--rounds", "1")
    for row in ("tokens per CPU-second", "LSTMs, share of the GEMM rate", "ms, softmax, clip, optimizer"):
        assert row in printed


@pytest.mark.slow
def test_the_memory_benchmark_prepares_and_trains(text_path):
    small = ["model.char_encoder.filters=[[1, 4]]", "model.lstm.cell_dim=8", "model.lstm.proj_dim=4"]
    few = ["training.num_rows=2", "training.unroll_steps=5"]
    printed = run("text_and_memory.py", text_path, "--megabytes", 0.01, "--changes", *small, *few)
    assert "seconds to prepare" in printed
    assert printed.count("peak memory in MB, training") == 2
