"""The fast path gives what the plain model gives."""

import lzma
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from kernel_paths import OFF, kernel_path
from numpy.typing import NDArray
from published import PublishedModel

from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError
from elmokit.kernels.library import Kernels, available
from elmokit.kernels.stack import Precision
from elmokit.model.directions import direction_executor
from elmokit.text.chars import pad_sentences
from elmokit.text.tokens import tokenize
from elmokit.weights.source import build_bilm, load_saved

TOLERANCE = 1e-5
SENTENCES = [["The", "bank", "closed"], [], ["a"], ["naïve", "Ελλάδα", "\ud800", "x" * 99, "the", "bank", "closed"]] * 3


@pytest.fixture(autouse=True)
def _words_may_be_cut() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(was|were) cut")
        yield


@pytest.fixture
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def plain_layers(pair: tuple[Path, Path], sentences: list[list[str]]) -> list[NDArray[np.float32]]:
    """The layers as `BiLM.forward` gives them to a task model: padded, all characters, no threads, no cache."""
    bilm = build_bilm(load_saved(pair))
    with torch.no_grad():
        padded = bilm(torch.from_numpy(pad_sentences(sentences, max_chars=bilm.config.char_encoder.max_chars)))
    layers_BLTD = padded.layers_BLTD.numpy()
    return [layers_BLTD[row, :, 1 : len(sentence) + 1] for row, sentence in enumerate(sentences)]


def assert_close(found: list[NDArray[np.float32]], expected: list[NDArray[np.float32]]) -> None:
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("batch_size", [1, 2, 5, 64])
def test_engine_equals_the_plain_model(published_model: PublishedModel, batch_size: int) -> None:
    embedder = Embedder.from_pretrained(published_model.pair, state="reset")
    expected = plain_layers(published_model.pair, SENTENCES)
    assert_close(embedder.embed_layers(SENTENCES, batch_size=batch_size), expected)
    assert_close(embedder.embed_layers(SENTENCES, batch_size=batch_size), expected)  # now with every word known
    embedder.forget_words()
    assert_close(embedder.embed_layers(SENTENCES, batch_size=batch_size), expected)


@pytest.mark.long
@pytest.mark.usefixtures("_two_threads")
def test_a_thread_for_each_direction_changes_nothing(published_model: PublishedModel) -> None:
    embedder = Embedder.from_pretrained(published_model.pair, state="reset")
    assert_close(embedder.embed_layers(SENTENCES), plain_layers(published_model.pair, SENTENCES))
    assert torch.get_num_threads() == 2
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(torch.get_num_threads).result() == 2  # nor does it change other threads


@pytest.mark.usefixtures("_two_threads")
def test_a_direction_s_thread_works_alone() -> None:
    # With helpers of their own there would be more threads than cores, and all of torch would wait for its turn.
    executor = direction_executor()
    assert executor is not None
    large = torch.randn(300, 300)
    both = threading.Barrier(2)

    def work(_: int) -> int:
        both.wait()  # so that each thread does one
        (large @ large).tanh()
        return torch.get_num_threads()

    with executor:
        assert list(executor.map(work, range(2))) == [1, 1]


def test_engine_equals_the_plain_model_on_real_text(data_dir: Path) -> None:
    folder = data_dir / "fixtures" / "bilm_skip"
    pair = folder / "options.json", folder / "lm_weights.hdf5"
    with lzma.open(data_dir / "lm" / "wiki.test.txt.xz", "rt", encoding="utf-8") as lines:
        sentences = [tokenize(line) for line, _ in zip(lines, range(64), strict=False)]
    embedder = Embedder.from_pretrained(pair, state="reset")
    assert_close(embedder.embed_layers(sentences), plain_layers(pair, sentences))


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_ten_callers_at_once_get_what_one_gets(published_model: PublishedModel, precision: str) -> None:
    embedder = Embedder.from_pretrained(published_model.pair, precision=precision)
    texts = [[[f"word{caller}", "the", f"bank{row}"] for row in range(5)] for caller in range(10)]
    expected = [embedder.embed_layers(text) for text in texts]
    embedder.forget_words()
    with ThreadPoolExecutor(10) as callers:
        for _ in range(3):
            for found, wanted in zip(callers.map(embedder.embed_layers, texts), expected, strict=True):
                assert_close(found, wanted)


def test_eight_bits_are_nearly_the_same(published_model: PublishedModel) -> None:
    exact = Embedder.from_pretrained(published_model.pair).embed_layers(SENTENCES)
    rounded = Embedder.from_pretrained(published_model.pair, precision="int8").embed_layers(SENTENCES)
    np.testing.assert_allclose(rounded[0][0], exact[0][0], atol=TOLERANCE)  # the token layer is not rounded
    cosines = [
        np.sum(left * right, axis=-1) / (np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1))
        for left, right in zip(exact, rounded, strict=True)
    ]
    assert np.concatenate(cosines, axis=1).mean() > 0.998
    assert np.abs(exact[0] - rounded[0]).max() > 1e-6


@pytest.mark.filterwarnings("ignore::elmokit.errors.ElmokitWarning")  # int8 gains nothing there
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("int8", 1e-3)])
def test_without_kernels_vectors_are_the_same(
    published_model: PublishedModel, precision: Precision, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMOKIT_INT8_INPUTS", "16")  # torch rounds weights alone; CPUs with VNNI round inputs to 8 bits
    expected = Embedder.from_pretrained(published_model.pair, precision=precision).embed_layers(SENTENCES)
    with kernel_path(OFF):
        assert not available()
        found = Embedder.from_pretrained(published_model.pair, precision=precision).embed_layers(SENTENCES)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, atol=tolerance, rtol=0)


@pytest.mark.skipif(not available(), reason="built without kernels")
def test_bfloat16_is_nearly_the_same_and_refused_where_it_would_be_slow(
    published_model: PublishedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the CPU has no such instructions, the test has them emulated."""
    monkeypatch.setattr(Kernels, "has_bf16", True)
    exact = Embedder.from_pretrained(published_model.pair).embed_layers(SENTENCES)
    rounded = Embedder.from_pretrained(published_model.pair, precision="bf16").embed_layers(SENTENCES)
    cosines = [
        np.sum(left * right, axis=-1) / (np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1))
        for left, right in zip(exact, rounded, strict=True)
    ]
    assert np.concatenate(cosines, axis=1).mean() > 0.9999
    assert np.abs(exact[0] - rounded[0]).max() > 1e-6
    monkeypatch.setattr(Kernels, "has_bf16", False)
    with pytest.raises(InputError, match="AVX512_BF16"):
        Embedder.from_pretrained(published_model.pair, precision="bf16")


def test_other_precisions_are_refused(published_model: PublishedModel) -> None:
    with pytest.raises(InputError, match="precision 'int4'"):
        Embedder.from_pretrained(published_model.pair, precision="int4")


@pytest.mark.skipif(not available(), reason="torch alone may round a word otherwise beside other words")
def test_a_word_is_the_same_to_the_last_bit_beside_any_words(published_model: PublishedModel) -> None:
    """Else a job that goes on after a break, with an empty cache, would not end with the same bytes."""
    embedder = Embedder.from_pretrained(published_model.pair)
    words = [f"word{number}" * (number % 5) for number in range(60)]
    expected = {word: embedder.embed_layers([[word]])[0][0] for word in words}
    draw = np.random.default_rng(0)
    for _ in range(50):
        embedder.forget_words()
        text = [words[index] for index in draw.permutation(60)[: draw.integers(1, 60)]]
        for word, vector in zip(text, embedder.embed_layers([text])[0][0], strict=True):
            np.testing.assert_array_equal(vector, expected[word][0])


def test_an_embedder_in_eight_bits_leaves_the_model_alone(published_model: PublishedModel) -> None:
    bilm = build_bilm(load_saved(published_model.pair)).requires_grad_()
    exact = Embedder(bilm)
    before = exact.embed_layers(SENTENCES)
    Embedder(bilm, precision="int8").embed_layers(SENTENCES)
    assert_close(exact.embed_layers(SENTENCES), before)
    assert all(parameter.requires_grad for parameter in bilm.parameters())


def test_weights_swapped_behind_its_back_are_seen_by_a_plain_model(published_model: PublishedModel) -> None:
    bilm = build_bilm(load_saved(published_model.pair))
    ids = torch.from_numpy(pad_sentences([["The", "bank"]], max_chars=50))
    with torch.no_grad():
        before = bilm(ids).layers_BLTD
        for parameter in bilm.parameters():
            parameter.data.mul_(0.5)
        assert (bilm(ids).layers_BLTD - before).abs().max() > 0.01


def test_packed_weights_follow_when_the_weights_change(published_model: PublishedModel) -> None:
    bilm, plain = (build_bilm(load_saved(published_model.pair)) for _ in range(2))
    bilm.pack_weights()
    ids = torch.from_numpy(pad_sentences([["The", "bank"]], max_chars=50))
    with torch.no_grad():
        bilm(ids)
        for model in (bilm, plain):
            for parameter in model.parameters():
                parameter.mul_(0.5)
        torch.testing.assert_close(bilm(ids).layers_BLTD, plain(ids).layers_BLTD, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_programs_default_device_and_type_change_nothing(published_model: PublishedModel, precision: str) -> None:
    expected = Embedder.from_pretrained(published_model.pair, precision=precision).embed_layers(SENTENCES)
    try:
        torch.set_default_device("meta")  # which has no numbers: whatever lands there is missed
        torch.set_default_dtype(torch.bfloat16)
        found = Embedder.from_pretrained(published_model.pair, precision=precision).embed_layers(SENTENCES)
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)
