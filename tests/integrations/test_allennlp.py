"""AllenNLP's classes under their old names: the same numbers as the original, and none of its bugs."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from oracle import Oracle
from published import PublishedModel
from torch import nn

from elmokit.embed.elmo import Elmo as NativeElmo
from elmokit.errors import ElmokitWarning, InputError, WeightsError
from elmokit.integrations.allennlp import Elmo, ElmoEmbedder, ElmoTokenEmbedder, ScalarMix, batch_to_ids
from elmokit.weights.source import build_bilm, load_saved

TOLERANCE = 5e-6
SENTENCES = [["The", "bank", "closed", "."], ["Play"], ["Children", "play", "outside"]]
BATCHES = [SENTENCES, SENTENCES[:1], SENTENCES[1:]]  # rows missing from a batch keep their state
NUM_LAYERS, WIDTH = 3, 16  # of the fixture's model


@pytest.fixture
def elmo(published_model: PublishedModel) -> Elmo:
    return Elmo(*published_model.pair, 2, dropout=0.0)


@pytest.fixture
def embedder(published_model: PublishedModel) -> ElmoEmbedder:
    return ElmoEmbedder(*published_model.pair)


def oracle(model: PublishedModel) -> Oracle:
    return Oracle(model.arrays, model.options)


def close(found: Any, expected: Any, *, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(torch.as_tensor(found).detach(), expected, rtol=0, atol=tolerance)


def test_carried_state_and_mix_match_the_oracle(published_model: PublishedModel, elmo: Elmo) -> None:
    expected = oracle(published_model).run_carrying(BATCHES)
    for batch, layers in zip(BATCHES, expected, strict=True):
        out = elmo(batch_to_ids(batch))
        assert set(out) == {"elmo_representations", "mask"}
        first, second = out["elmo_representations"]
        assert out["mask"].dtype == torch.bool
        assert out["mask"].sum(dim=1).tolist() == [len(sentence) for sentence in batch]
        for row, layers_LTD in enumerate(layers):
            close(first[row, : len(batch[row])], layers_LTD.mean(axis=0))
            assert not first[row, len(batch[row]) :].any()
        assert torch.equal(first, second)


def test_state_reset_makes_a_sentence_the_same_every_time(published_model: PublishedModel) -> None:
    elmo = Elmo(*published_model.pair, 1, dropout=0.0, state="reset")
    first, again = (elmo(batch_to_ids(SENTENCES))["elmo_representations"][0] for _ in range(2))
    assert torch.equal(first, again)


def test_a_carried_state_is_forgotten_on_request(elmo: Elmo) -> None:
    first, second = (elmo(batch_to_ids(SENTENCES))["elmo_representations"][0] for _ in range(2))
    elmo.reset_state()
    assert torch.equal(elmo(batch_to_ids(SENTENCES))["elmo_representations"][0], first)
    assert not torch.equal(first, second)


def test_warm_state_is_taken_from_the_native_layer(published_model: PublishedModel) -> None:
    ids = batch_to_ids(SENTENCES)
    native = NativeElmo.from_pretrained(published_model.pair, dropout=0.0, state="warm")
    dropped_in = Elmo(*published_model.pair, 1, dropout=0.0, state="warm")
    close(dropped_in(ids)["elmo_representations"][0], native(ids).mixes[0].detach(), tolerance=1e-6)


def test_a_copy_carries_its_own_state(elmo: Elmo) -> None:
    ids = batch_to_ids(SENTENCES)
    elmo(ids)
    twin = copy.deepcopy(elmo)
    second = elmo(ids)["elmo_representations"][0]
    assert torch.equal(twin(ids)["elmo_representations"][0], second)


def test_only_the_mixes_are_trained_unless_asked(published_model: PublishedModel, elmo: Elmo) -> None:
    elmo(batch_to_ids(SENTENCES))["elmo_representations"][1].square().sum().backward()
    trained = {name for name, parameter in elmo.named_parameters() if parameter.requires_grad}
    expected = {f"scalar_mix_{k}.scalar_parameters.{layer}" for k in range(2) for layer in range(NUM_LAYERS)}
    assert trained == expected | {"scalar_mix_0.gamma", "scalar_mix_1.gamma"}
    assert float(elmo.get_submodule("scalar_mix_1").gamma.grad) != 0
    tuned = Elmo(*published_model.pair, 1, requires_grad=True)
    tuned(batch_to_ids(SENTENCES))["elmo_representations"][0].square().sum().backward()
    assert all(parameter.grad is not None for parameter in tuned.parameters())


def test_given_mix_parameters_are_before_the_softmax_and_frozen(published_model: PublishedModel) -> None:
    elmo = Elmo(*published_model.pair, 1, dropout=0.0, scalar_mix_parameters=[-9e10, 1, -9e10])
    assert not any(parameter.requires_grad for parameter in elmo.parameters())
    found = elmo(batch_to_ids(SENTENCES[:1]))["elmo_representations"][0][0]
    close(found, oracle(published_model).run_bilm(SENTENCES[:1]).layers[0][1])


def test_dropout_is_half_until_eval(published_model: PublishedModel) -> None:
    elmo = Elmo(*published_model.pair, 1)
    ids = batch_to_ids([["bank"] * 100])
    assert 0.4 < (elmo(ids)["elmo_representations"][0] == 0).float().mean() < 0.6
    assert (elmo.eval()(ids)["elmo_representations"][0] != 0).all()


@pytest.mark.parametrize("keep", [False, True])
def test_more_dimensions_come_back_as_they_were(published_model: PublishedModel, keep: bool) -> None:
    elmo = Elmo(*published_model.pair, 1, dropout=0.0, keep_sentence_boundaries=keep, state="reset")
    ids = batch_to_ids([*SENTENCES, []])
    flat, deep = elmo(ids), elmo(ids.view(2, 1, 2, *ids.shape[1:]))
    length = ids.shape[1] + 2 * keep
    assert deep["mask"].shape == (2, 1, 2, length)
    assert deep["elmo_representations"][0].shape == (2, 1, 2, length, elmo.get_output_dim())
    assert torch.equal(deep["elmo_representations"][0].flatten(0, 2), flat["elmo_representations"][0])
    assert torch.equal(deep["mask"].flatten(0, 2), flat["mask"])


def test_kept_boundaries_stand_around_each_sentence(published_model: PublishedModel) -> None:
    ids = batch_to_ids(SENTENCES)
    without = Elmo(*published_model.pair, 1, dropout=0.0)(ids)
    kept = Elmo(*published_model.pair, 1, dropout=0.0, keep_sentence_boundaries=True)(ids)
    assert kept["mask"].sum(dim=1).tolist() == [len(sentence) + 2 for sentence in SENTENCES]
    for row, sentence in enumerate(SENTENCES):
        inside = kept["elmo_representations"][0][row, 1 : len(sentence) + 1]
        assert torch.equal(inside, without["elmo_representations"][0][row, : len(sentence)])
        assert kept["elmo_representations"][0][row, len(sentence) + 1].any()


def test_layer_norm_counts_the_boundaries_as_allennlp_does(published_model: PublishedModel) -> None:
    elmo = Elmo(*published_model.pair, 1, do_layer_norm=True, dropout=0.0, keep_sentence_boundaries=True)
    bilm = build_bilm(load_saved(published_model.pair))
    with torch.no_grad():
        padded = bilm(batch_to_ids(SENTENCES))
    real_BT = padded.mask_BT.numpy()
    expected_BTD = np.zeros((*real_BT.shape, WIDTH))
    for layer_BTD in padded.layers_BLTD.numpy().swapaxes(0, 1).astype(np.float64):
        values = layer_BTD[real_BT]  # with <S> and </S>; bilm-tf leaves them out
        expected_BTD[real_BT] += (values - values.mean()) / values.std() / NUM_LAYERS
    close(elmo(batch_to_ids(SENTENCES))["elmo_representations"][0], expected_BTD)


def test_layer_norm_depends_on_the_batch_here_and_not_in_the_native_layer(published_model: PublishedModel) -> None:
    together, alone = batch_to_ids(SENTENCES), batch_to_ids(SENTENCES[:1])
    dropped_in = Elmo(*published_model.pair, 1, do_layer_norm=True, dropout=0.0, state="reset")
    gap = dropped_in(together)["elmo_representations"][0][0] - dropped_in(alone)["elmo_representations"][0][0]
    assert gap.abs().max() > 0.01
    native = NativeElmo.from_pretrained(published_model.pair, dropout=0.0, layer_norm="token")
    close(native(together).mixes[0][0], native(alone).mixes[0][0].detach(), tolerance=1e-5)


def test_a_cached_vocabulary_changes_no_number(published_model: PublishedModel, elmo: Elmo) -> None:
    cached = Elmo(*published_model.pair, 1, dropout=0.0, vocab_to_cache=["bank", "play"])
    ids = batch_to_ids(SENTENCES)
    assert torch.equal(cached(ids)["elmo_representations"][0], elmo(ids)["elmo_representations"][0])


CACHED = ["@@PADDING@@", "bank", "play", "Straße", "closed"]


@pytest.fixture
def cached(published_model: PublishedModel) -> Elmo:
    return Elmo(*published_model.pair, 1, dropout=0.0, vocab_to_cache=CACHED, state="reset")


def test_word_inputs_name_the_words_of_a_cached_vocabulary(cached: Elmo) -> None:
    word_ids = torch.tensor([[2, 1, 4], [3, 0, 0]])
    found = cached(torch.zeros(2, 3, 50, dtype=torch.long), word_inputs=word_ids)
    expected = cached(batch_to_ids([["play", "bank", "closed"], ["Straße"]]))
    assert torch.equal(found["elmo_representations"][0], expected["elmo_representations"][0])
    assert found["mask"].tolist() == [[True, True, True], [True, False, False]]
    assert found["elmo_representations"][0].abs().sum() > 1


def test_word_inputs_win_over_the_characters_and_give_the_shape(cached: Elmo) -> None:
    word_ids = torch.tensor([[[2, 1]], [[3, 0]]])
    found = cached(batch_to_ids([["other", "words", "here"]]), word_inputs=word_ids)
    expected = cached(batch_to_ids([["play", "bank"], ["Straße"]]))["elmo_representations"][0]
    assert torch.equal(found["elmo_representations"][0], expected[:, None])
    assert found["mask"].shape == (2, 1, 2)


def test_word_inputs_outside_the_vocabulary_are_read_from_the_characters(cached: Elmo) -> None:
    ids = batch_to_ids([["other", "words"]])
    found = cached(ids, word_inputs=torch.tensor([[5, 1]]))["elmo_representations"][0]
    assert torch.equal(found, cached(ids)["elmo_representations"][0])
    with pytest.raises(InputError, match="the id 5; expected 0 to 4"):
        cached(torch.zeros_like(ids), word_inputs=torch.tensor([[5, 1]]))
    with pytest.raises(InputError, match=r"shape \(2,\)"):
        cached(ids, word_inputs=torch.tensor([1, 2]))


def test_word_inputs_without_a_cached_vocabulary_are_ignored_with_a_warning(elmo: Elmo) -> None:
    ids = batch_to_ids(SENTENCES)
    elmo.reset_state()
    expected = elmo(ids)["elmo_representations"][0]
    elmo.reset_state()
    with pytest.warns(ElmokitWarning, match="has no vocab_to_cache"):
        found = elmo(ids, word_inputs=torch.ones(ids.shape[:2], dtype=torch.long))["elmo_representations"][0]
    assert torch.equal(found, expected)


def test_a_cached_vocabulary_is_no_part_of_the_saved_weights(cached: Elmo, published_model: PublishedModel) -> None:
    assert cached.state_dict().keys() == Elmo(*published_model.pair, 1).state_dict().keys()


def test_the_token_embedder_reads_word_inputs(published_model: PublishedModel, cached: Elmo) -> None:
    embedder = ElmoTokenEmbedder(*published_model.pair, dropout=0.0, vocab_to_cache=CACHED, state="reset")
    word_ids, dummy = torch.tensor([[2, 1]]), torch.zeros(1, 2, 50, dtype=torch.long)
    expected = cached(batch_to_ids([["play", "bank"]]))["elmo_representations"][0]
    assert torch.equal(embedder(dummy, word_ids), expected)


def test_a_bilm_can_be_given_in_place_of_files(published_model: PublishedModel, elmo: Elmo) -> None:
    shared = Elmo(None, None, 1, dropout=0.0, module=build_bilm(load_saved(published_model.pair)))
    ids = batch_to_ids(SENTENCES)
    assert torch.equal(shared(ids)["elmo_representations"][0], elmo(ids)["elmo_representations"][0])


def test_characters_of_a_batch_are_padded_with_zeros() -> None:
    ids = batch_to_ids([["é"], [], ["a", "<S>"]])
    assert (ids.shape, ids.dtype) == ((3, 2, 50), torch.long)
    assert ids[0, 0, :5].tolist() == [259, 0xC3 + 1, 0xA9 + 1, 260, 261]
    assert ids[2, 1, :3].tolist() == [259, 257, 260]
    assert not ids[:2].flatten(0, 1)[1:].any()


def test_token_embedder_is_one_mix_and_a_projection(published_model: PublishedModel, elmo: Elmo) -> None:
    plain = ElmoTokenEmbedder(*published_model.pair, dropout=0.0)
    narrow = ElmoTokenEmbedder(*published_model.pair, dropout=0.0, projection_dim=5)
    assert (plain.get_output_dim(), narrow.get_output_dim()) == (WIDTH, 5)
    assert {"_projection.weight", "_elmo.scalar_mix_0.gamma"} <= set(narrow.state_dict())
    ids = batch_to_ids(SENTENCES)
    expected = elmo(ids)["elmo_representations"][0]
    assert torch.equal(plain(ids), expected)
    projection = narrow.get_submodule("_projection")
    close(narrow(ids), (expected @ projection.weight.T + projection.bias).detach())


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 4), (2, 1, 3, 4)])
def test_scalar_mix_takes_a_list_of_any_shape(shape: tuple[int, ...]) -> None:
    mix = ScalarMix(3, initial_scalar_parameters=[1.0, 2.0, 0.5])
    with torch.no_grad():
        mix.gamma.fill_(0.5)
    tensors = [torch.randn(shape) for _ in range(3)]
    weights = np.exp([1.0, 2.0, 0.5]) / np.exp([1.0, 2.0, 0.5]).sum()
    close(mix(tensors), 0.5 * sum(weight * tensor.numpy() for weight, tensor in zip(weights, tensors, strict=True)))


def test_scalar_mix_trains_with_the_names_and_shapes_of_allennlp() -> None:
    # Normalized layers of equal weight would be at a minimum of the squares below.
    mix = ScalarMix(2, do_layer_norm=True, initial_scalar_parameters=[0.0, 1.0])
    assert {name: tuple(value.shape) for name, value in mix.state_dict().items()} == {
        "gamma": (1,),
        "scalar_parameters.0": (1,),
        "scalar_parameters.1": (1,),
    }
    mask = torch.tensor([[True, True, False]])
    mixed = mix([torch.randn(1, 3, 4), torch.randn(1, 3, 4)], mask)
    assert not mixed[0, 2].any()
    mixed.square().sum().backward()
    assert all(float(parameter.grad) != 0 for parameter in mix.parameters())
    assert not any(parameter.requires_grad for parameter in ScalarMix(2, trainable=False).parameters())


@pytest.mark.parametrize("make", [Elmo, ElmoTokenEmbedder, ElmoEmbedder])
@pytest.mark.parametrize(
    ("options_file", "weight_file", "message"),
    [
        (None, None, "options_file is missing.*pass the paths of both"),
        ("options.json", None, "weight_file is missing"),
        (
            "https://example.org/options.json",
            "weights.hdf5",
            "the address 'https://example.org/options.json'.*Put options.json",
        ),
        ("absent.json", "absent.hdf5", "absent.json: no such file"),
    ],
)
def test_missing_files_and_urls_are_rejected(
    make: type, options_file: str | None, weight_file: str | None, message: str
) -> None:
    mixes = (1,) if make is Elmo else ()
    with pytest.raises(WeightsError, match=message):
        make(options_file, weight_file, *mixes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda elmo: elmo(torch.ones(3, 4, dtype=torch.long)), r"shape \(3, 4\)"),
        (lambda _: Elmo(None, None, 1, module=nn.Linear(1, 1)), "module is a Linear"),
        (lambda elmo: Elmo("options.json", None, 1, module=elmo.bilm), "pass None for the files"),
        (lambda elmo: Elmo(None, None, 1, module=elmo.bilm, scalar_mix_parameters=[1.0]), "1 initial weights for 3"),
        (lambda elmo: Elmo(None, None, 0, module=elmo.bilm), "num_output_representations 0"),
        (lambda elmo: Elmo(None, None, 1, module=elmo.bilm, state="zero"), "state 'zero'"),
        (lambda _: ScalarMix(3)([torch.ones(1, 2)] * 2), "2 tensors for a mix of 3 layers"),
        (lambda _: batch_to_ids(["The bank"]), "'The bank'"),
        (lambda elmo: elmo([["The", "bank"]]), r"inputs is a list; expected .* batch_to_ids\(sentences\)"),
        (lambda elmo: elmo(torch.ones(1, 2, 50)), r"inputs is torch.float32 of shape \(1, 2, 50\)"),
    ],
)
def test_bad_arguments_are_rejected(elmo: Elmo, call: Callable[[Elmo], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(elmo)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda embedder: embedder.embed_sentence("The bank"), "'The bank'.*list of tokens"),
        (lambda embedder: embedder.embed_batch(["The bank"]), "'The bank'.*list of tokens"),
        (lambda embedder: embedder.embed_batch("The bank"), "batch is 'The bank'; expected a list of sentences"),
        (lambda embedder: embedder.embed_batch(None), "batch is 'None'; expected a list of sentences"),
        (lambda embedder: list(embedder.embed_sentences([1, 2])), "a sentence is '1'; expected a list of tokens"),
        (lambda embedder: embedder.embed_file("notes.txt", "out.hdf5"), "'notes.txt'; expected an open file"),
    ],
)
def test_strings_are_not_taken_for_tokens_or_files(
    embedder: ElmoEmbedder, call: Callable[[ElmoEmbedder], object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        call(embedder)


def test_a_gpu_that_is_not_there_is_rejected(published_model: PublishedModel) -> None:
    missing = torch.cuda.device_count()
    with pytest.raises(InputError, match=f"cuda_device {missing}, but torch finds {missing} GPUs"):
        ElmoEmbedder(*published_model.pair, cuda_device=missing)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_gives_the_same_vectors(published_model: PublishedModel, embedder: ElmoEmbedder) -> None:
    on_gpu = ElmoEmbedder(*published_model.pair, cuda_device=0)
    layers, mask = on_gpu.batch_to_embeddings(SENTENCES)
    assert layers.device == mask.device == torch.device("cuda:0")
    close(layers.cpu(), embedder.batch_to_embeddings(SENTENCES)[0], tolerance=1e-4)
