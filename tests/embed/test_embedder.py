"""What users rely on: the same sentence gives the same vectors, whatever stands around it."""

import lzma
import pydoc
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published import PublishedModel, make_published

from elmokit.embed import embedder as embedder_module
from elmokit.embed import reading
from elmokit.embed.embedder import Embedder
from elmokit.errors import ElmokitWarning, InputError
from elmokit.text.tokens import tokenize
from elmokit.weights.source import load_saved

TOLERANCE = 1e-5
SENTENCES = [["The", "bank", "closed", "."], ["Play"], [], ["Children", "play", "outside", "the", "bank"]]


@pytest.fixture(params=["reset", "warm"])
def embedder(request: pytest.FixtureRequest, published_model: PublishedModel) -> Embedder:
    return Embedder.from_pretrained(published_model.pair, state=request.param)


def test_arrays_are_unpadded_float32_with_the_token_layer_twice(embedder: Embedder) -> None:
    arrays = embedder.embed_layers(SENTENCES)
    assert [array.shape for array in arrays] == [(3, 4, 16), (3, 1, 16), (3, 0, 16), (3, 5, 16)]
    assert all(array.dtype == np.float32 for array in arrays)
    np.testing.assert_array_equal(arrays[0][0, :, :8], arrays[0][0, :, 8:])
    np.testing.assert_allclose(arrays[0][0, 1], arrays[3][0, 4], atol=TOLERANCE)  # "bank" has one token vector
    assert np.abs(arrays[0][1, 1] - arrays[3][1, 4]).max() > 1e-2  # and one other vector a context


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sentences=st.lists(st.lists(st.text(max_size=60), max_size=6), min_size=1, max_size=7),
    batch_size=st.integers(1, 8),
    data=st.data(),
)
def test_no_batch_order_or_batch_mate_changes_a_vector(
    embedder: Embedder, sentences: list[list[str]], batch_size: int, data: st.DataObject
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = [embedder.embed_layers([sentence])[0] for sentence in sentences]
        order = data.draw(st.permutations(range(len(sentences))))
        shuffled = [sentences[index] for index in order]
        together = embedder.embed_layers(shuffled, batch_size=batch_size)
        again = embedder.embed_layers(shuffled, batch_size=batch_size)
    for place, index in enumerate(order):
        np.testing.assert_allclose(together[place], alone[index], atol=TOLERANCE, rtol=0)
        np.testing.assert_array_equal(together[place], again[place])


def test_real_text_gives_the_same_vectors_in_any_batch(data_dir: Path) -> None:
    folder = data_dir / "fixtures" / "bilm_skip"
    with lzma.open(data_dir / "lm" / "wiki.dev.txt.xz", "rt", encoding="utf-8") as lines:
        sentences = [tokenize(line) for line, _ in zip(lines, range(40), strict=False)]
    for state in ("reset", "warm"):
        embedder = Embedder.from_pretrained((folder / "options.json", folder / "lm_weights.hdf5"), state=state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = embedder.embed_layers(sentences, batch_size=1)
            for batch_size in (7, 64):
                found = embedder.embed_layers(sentences[::-1], batch_size=batch_size)[::-1]
                for left, right in zip(expected, found, strict=True):
                    np.testing.assert_allclose(right, left, atol=TOLERANCE, rtol=0)


def test_a_window_is_only_a_way_to_read(published_model: PublishedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Embedder.from_pretrained(published_model.pair)
    expected = embedder.embed_layers(SENTENCES)
    monkeypatch.setattr(reading, "WINDOW", 2)
    for left, right in zip(expected, embedder.embed_layers(iter(SENTENCES), batch_size=1), strict=True):
        np.testing.assert_allclose(right, left, atol=TOLERANCE, rtol=0)


def test_iteration_reads_no_further_than_one_window(
    published_model: PublishedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "WINDOW", 2)
    read = []

    def endless():
        while True:
            read.append(1)
            yield ["word"]

    vectors = Embedder.from_pretrained(published_model.pair).iter_layers(endless(), batch_size=2)
    for _ in range(5):
        next(vectors)
    assert len(read) <= 6


def test_strings_are_tokenised_and_lists_taken_as_they_are(embedder: Embedder) -> None:
    from_text = embedder.embed_layers(["The bank closed."])[0]
    from_tokens = embedder.embed_layers([["The", "bank", "closed", "."]])[0]
    np.testing.assert_array_equal(from_text, from_tokens)
    assert embedder.embed_layers([["The bank closed."]])[0].shape[1] == 1
    [(_, unordered)] = embedder.iter_unordered(["The bank closed."])
    np.testing.assert_array_equal(unordered, from_tokens)
    with pytest.raises(InputError, match=r"a token is 3, of type int"):
        list(embedder.iter_unordered([["The", 3]]))


def test_tokens_are_one_layer_or_the_mean(embedder: Embedder) -> None:
    layers = embedder.embed_layers(SENTENCES)[0]
    np.testing.assert_array_equal(embedder.embed_tokens(SENTENCES, layer=1)[0], layers[1])
    np.testing.assert_array_equal(embedder.embed_tokens(SENTENCES, layer=-1)[0], layers[2])
    np.testing.assert_allclose(embedder.embed_tokens(SENTENCES)[0], layers.mean(axis=0), atol=1e-6)
    assert embedder.embed_tokens(SENTENCES)[2].shape == (0, 16)


def test_a_text_is_pooled_over_the_tokens_of_all_its_sentences(embedder: Embedder) -> None:
    tokens = embedder.embed_tokens([["It", "closed", "."], ["We", "play", "."]])
    expected = np.concatenate(tokens)
    texts = ["It closed. We play.", "", "It closed."]
    mean = embedder.encode(texts)
    np.testing.assert_allclose(mean[0], expected.mean(axis=0), atol=TOLERANCE)
    np.testing.assert_allclose(embedder.encode(texts, pooling="max")[0], expected.max(axis=0), atol=TOLERANCE)
    assert not mean[1].any()
    np.testing.assert_allclose(mean[2], tokens[0].mean(axis=0), atol=TOLERANCE)
    np.testing.assert_allclose(embedder.encode(texts[0]), mean[0], atol=TOLERANCE)
    unit = embedder.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), [1, 0, 1], atol=1e-6)
    assert embedder.encode([]).shape == (0, 16)


def test_embed_gives_tokens_offsets_and_layers(embedder: Embedder) -> None:
    text = "It  closed\u2014\u201cquietly\u201d\u2026"
    raw, listed = embedder.embed([text, ["It", "closed"]])
    assert raw.tokens == embedder.tokenize(text)
    assert [text[start:stop] for start, stop in raw.offsets][:4] == ["It", "closed", "\u2014", "\u201c"]
    np.testing.assert_allclose(raw.layers, embedder.embed_layers([text])[0], atol=TOLERANCE)
    assert (listed.tokens, listed.offsets, listed.layers.shape) == (["It", "closed"], None, (3, 2, 16))
    assert embedder.embed([]) == []


def test_encode_takes_the_arguments_of_sentence_transformers(embedder: Embedder) -> None:
    texts = ["It closed.", "We play."]
    expected = embedder.encode(texts)
    tensor = embedder.encode(texts, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), expected)
    rows = embedder.encode(texts, convert_to_numpy=False)
    assert [type(row) for row in rows] == [torch.Tensor, torch.Tensor]
    np.testing.assert_array_equal(rows[1].numpy(), expected[1])
    assert embedder.encode(texts[0], convert_to_tensor=True).shape == (16,)
    np.testing.assert_array_equal(embedder.encode(texts, truncate_dim=4), expected[:, :4])
    short = embedder.encode(texts, truncate_dim=4, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), [1, 1], atol=1e-6)
    np.testing.assert_array_equal(embedder.encode(["closed."], prompt="It "), embedder.encode(["It closed."]))
    np.testing.assert_array_equal(embedder.encode(texts, device="cpu", chunk_size=7, show_progress_bar=None), expected)
    with pytest.raises(TypeError, match="convert_to_list"):
        embedder.encode(texts, convert_to_list=True)


def test_the_top_layer_is_minus_one(embedder: Embedder) -> None:
    top = embedder.embed_tokens(SENTENCES, layer=-1)
    for found, expected in zip(top, embedder.embed_tokens(SENTENCES, layer=2), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_repr_names_the_model_and_its_options(published_model: PublishedModel) -> None:
    assert repr(Embedder.from_pretrained(state="reset")).startswith(
        "Embedder('en-small', num_layers=3, width=256, precision='fp32', state='reset'"
    )
    pair = Embedder.from_pretrained(published_model.pair, precision="int8")
    assert f"Embedder({str(published_model.weights_path.resolve())!r}" in repr(pair)
    assert "precision='int8'" in repr(pair)
    assert repr(Embedder(pair.bilm)).startswith("Embedder('in memory', ")


def test_help_shows_no_path_of_this_machine() -> None:
    assert str(Path(embedder_module.__file__).parents[1]) not in pydoc.render_doc(Embedder)


@pytest.mark.parametrize("state", ["warm", "reset"])
def test_a_saved_embedder_gives_the_same_vectors(published_model: PublishedModel, tmp_path: Path, state: str) -> None:
    embedder = Embedder.from_pretrained(published_model.pair, state=state)
    embedder.save_pretrained(tmp_path / "saved", description="A test.")
    loaded = Embedder.from_pretrained(tmp_path / "saved", state=state)
    for found, expected in zip(loaded.embed_layers(SENTENCES), embedder.embed_layers(SENTENCES), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert load_saved(tmp_path / "saved").options == published_model.options


def test_carry_depends_on_what_came_before_until_reset(published_model: PublishedModel) -> None:
    embedder = Embedder.from_pretrained(published_model.pair, state="carry")
    first = embedder.embed_layers(SENTENCES)
    second = embedder.embed_layers(SENTENCES)
    assert np.abs(first[0] - second[0]).max() > 1e-3
    embedder.reset_state()
    for left, right in zip(first, embedder.embed_layers(SENTENCES), strict=True):
        np.testing.assert_array_equal(left, right)


def test_carry_leaves_rows_that_a_smaller_batch_lacks(published_model: PublishedModel) -> None:
    pair = published_model.pair
    one, two = (Embedder.from_pretrained(pair, state="carry") for _ in range(2))
    one.embed_layers([["a"], ["b"]])
    two.embed_layers([["a"], ["b"]])
    two.embed_layers([["c"]])  # row 1 is not touched by a batch of one row
    expected = one.embed_layers([["x"], ["y"]])[1]
    np.testing.assert_allclose(two.embed_layers([["x"], ["y"]])[1], expected, atol=1e-6)


def test_warm_is_near_what_carrying_settles_into(published_model: PublishedModel) -> None:
    pair = published_model.pair
    carried = Embedder.from_pretrained(pair, state="carry")
    for _ in range(10):
        settled = carried.embed_layers([["We", "play", "."]])[0]
    warm, reset = (
        Embedder.from_pretrained(pair, state=state).embed_layers([["We", "play", "."]])[0]
        for state in ("warm", "reset")
    )
    assert np.abs(warm - settled).mean() < np.abs(reset - settled).mean()


def test_cut_words_are_counted_and_reported_once(tmp_path: Path) -> None:
    embedder = Embedder.from_pretrained(make_published(tmp_path, max_chars=10).pair)
    with pytest.warns(UserWarning, match="longer than 8 bytes") as caught:
        embedder.embed_layers([["short", "Достоевский", "Достоевская"]])
    assert len(caught) == 1
    embedder.embed_layers([["internationalisation"]])  # a second warning would fail the test
    assert embedder.num_cut_words == 3


def test_cut_words_are_reported_for_pooled_texts_too(tmp_path: Path) -> None:
    embedder = Embedder.from_pretrained(make_published(tmp_path, max_chars=10).pair)
    with pytest.warns(ElmokitWarning, match="longer than 8 bytes"):
        embedder.encode(["internationalisation"])


def test_raw_text_is_tokenised_by_the_rules_of_its_language(published_model: PublishedModel) -> None:
    english = Embedder.from_pretrained(published_model.pair)
    french = Embedder.from_pretrained(published_model.pair, language="fr")
    assert english.tokenize("L'eau") == ["L", "'eau"]
    assert french.tokenize("L'eau") == ["L'", "eau"]
    assert not np.array_equal(english.embed_layers(["L'eau"])[0], french.embed_layers(["L'eau"])[0])


def test_very_long_words_and_sentences_work(published_model: PublishedModel) -> None:
    embedder = Embedder.from_pretrained(published_model.pair)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert embedder.embed_layers([["x" * 2**20, "\ud800", ""]])[0].shape == (3, 3, 16)
    long = embedder.embed_layers([["word", "another"] * 1_000, ["short"]])
    assert long[0].shape == (3, 2_000, 16)
    np.testing.assert_allclose(long[1], embedder.embed_layers([["short"]])[0], atol=TOLERANCE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.embed_layers("The bank closed."), "one string; give a list"),
        (lambda e: e.embed_layers(None), "sentences is None"),
        (lambda e: e.embed_layers([1, 2]), "a sentence is 1, of type int"),
        (lambda e: e.embed([None]), "a sentence is None"),
        (lambda e: e.encode(5), "sentences is 5"),
        (lambda e: e.embed_layers([["a", 3]]), "3"),
        (lambda e: e.embed_layers([["a", None]]), "None"),
        (lambda e: e.embed_layers([["a"]], batch_size=0), "batch_size 0"),
        (lambda e: e.embed_tokens([["a"]], layer=3), "layer 3"),
        (lambda e: e.embed_tokens([["a"]], layer=-4), "layer -4; expected 'mean', 0 to 2, or -3 to -1"),
        (lambda e: e.embed_tokens([["a"]], layer="top"), "layer 'top'"),
        (lambda e: e.embed_tokens([["a"]], layer=2.0), "layer 2.0"),
        (lambda e: e.encode(["a"], pooling="sum"), "pooling 'sum'"),
        (lambda e: Embedder(e.bilm, state="fresh"), "state 'fresh'"),
        (lambda e: e.encode(["a"], prompt_name="query"), "prompt_name 'query'"),
        (lambda e: e.encode([["a"]], prompt="find: "), "given as tokens"),
        (lambda e: e.encode(["a"], output_value="token_embeddings"), "use embed_tokens"),
        (lambda e: e.encode(["a"], precision="int8"), "precision 'int8'"),
        (lambda e: e.encode(["a"], truncate_dim=0), "truncate_dim 0"),
        (lambda e: e.encode(["a"], device="cuda"), "this Embedder is on 'cpu'"),
        (lambda e: e.start_multi_process_pool([]), "target_devices"),
        (lambda e: Embedder(e.bilm, device="gpu"), "device 'gpu'"),
        (lambda e: Embedder(e.bilm, device="xpu"), "device 'xpu', but torch sees no such device"),
        (lambda e: Embedder(e.bilm, device="mps"), "device 'mps', but torch sees no such device"),
    ],
)
def test_bad_arguments_are_refused_with_their_value(embedder: Embedder, call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(embedder)
