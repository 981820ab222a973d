"""ELMo as a layer: what is trained, what is masked, what depends on the batch."""

from pathlib import Path

import pytest
import torch
from published import PublishedModel, make_published
from torch import nn

from elmokit.embed.elmo import Elmo
from elmokit.embed.embedder import Embedder
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.text.chars import pad_sentences

SENTENCES = [["The", "bank", "closed", "."], ["Play"], ["Children", "play", "outside"]]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]


def char_ids(sentences: list[list[str]]) -> torch.Tensor:
    return torch.from_numpy(pad_sentences(sentences, max_chars=50))


def test_mixes_are_the_embedders_layers_mixed(published_model: PublishedModel) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, num_mixes=2, dropout=0.0)
    with torch.no_grad():
        elmo.mixes[1].weights.copy_(torch.tensor([3.0, 0.0, -1.0]))
    out = elmo(char_ids(SENTENCES))
    layers = Embedder.from_pretrained(published_model.pair).embed_layers(SENTENCES)
    assert out.mask_BT.tolist() == [[True] * 4, [True] + [False] * 3, [True] * 3 + [False]]
    for mix, vectors in zip(elmo.mixes, out.mixes, strict=True):
        for row, layers_LTD in enumerate(layers):
            expected = torch.einsum("l,ltd->td", mix.weights.softmax(0), torch.from_numpy(layers_LTD))
            torch.testing.assert_close(vectors[row, : len(SENTENCES[row])], expected, atol=1e-5, rtol=0)
            assert not vectors[row, len(SENTENCES[row]) :].any()


def test_padding_and_batch_mates_never_change_a_vector(published_model: PublishedModel) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, dropout=0.0)
    together = elmo(char_ids(SENTENCES)).mixes[0]
    for row, sentence in enumerate(SENTENCES):
        alone = elmo(char_ids([sentence])).mixes[0][0]
        torch.testing.assert_close(together[row, : len(sentence)], alone, atol=1e-5, rtol=0)


def test_boundaries_are_kept_on_request(published_model: PublishedModel) -> None:
    ids = char_ids(SENTENCES)
    with_boundaries = Elmo.from_pretrained(published_model.pair, dropout=0.0, keep_boundaries=True)(ids)
    without = Elmo.from_pretrained(published_model.pair, dropout=0.0)(ids)
    assert with_boundaries.mask_BT.sum(dim=1).tolist() == [6, 3, 5]
    torch.testing.assert_close(with_boundaries.mixes[0][0, 1:5], without.mixes[0][0])
    assert with_boundaries.mixes[0][1, 2].any()  # the end of the one-word sentence
    assert not with_boundaries.mixes[0][1, 3:].any()


@pytest.mark.parametrize("device", DEVICES)
def test_a_frozen_bilm_gets_no_gradient_and_the_mixes_learn(published_model: PublishedModel, device: str) -> None:
    torch.manual_seed(0)
    elmo = Elmo.from_pretrained(published_model.pair, num_mixes=2, dropout=0.1)
    model = nn.ModuleDict({"elmo": elmo, "head": nn.Linear(2 * elmo.width, 2)}).to(device)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = []
    for _ in range(30):
        out = elmo(char_ids(SENTENCES).to(device))
        first_word = torch.cat(out.mixes, dim=2)[:, 0]
        loss = nn.functional.cross_entropy(model["head"](first_word), torch.tensor([0, 1, 0], device=device))
        optimizer.zero_grad()
        (loss + elmo.penalty(0.001)).backward()
        optimizer.step()
        losses.append(loss.item())
    after = model.state_dict()
    assert losses[-1] < losses[0] / 2
    assert all(parameter.grad is None for parameter in elmo.bilm.parameters())
    assert all(torch.equal(before[name], after[name]) for name in before if ".bilm." in name)
    assert all(not torch.equal(before[name], after[name]) for name in before if ".mixes." in name)


def test_with_requires_grad_every_parameter_of_the_bilm_gets_one(published_model: PublishedModel) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, requires_grad=True, dropout=0.0)
    elmo(char_ids(SENTENCES)).mixes[0].square().sum().backward()
    for name, parameter in elmo.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_dropout_is_off_in_eval(published_model: PublishedModel) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, dropout=0.5)
    ids = char_ids(SENTENCES)
    assert not torch.equal(elmo(ids).mixes[0], elmo(ids).mixes[0])
    elmo.eval()
    assert torch.equal(elmo(ids).mixes[0], elmo(ids).mixes[0])


def test_carry_remembers_until_it_is_reset(published_model: PublishedModel) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, dropout=0.0, state="carry")
    ids = char_ids(SENTENCES)
    first, second = elmo(ids).mixes[0], elmo(ids).mixes[0]
    assert (first - second).abs().max() > 1e-3
    elmo.reset_state()
    assert torch.equal(elmo(ids).mixes[0], first)


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_other_policies_do_not_remember(published_model: PublishedModel, state: str) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, dropout=0.0, state=state)
    ids = char_ids(SENTENCES)
    assert torch.equal(elmo(ids).mixes[0], elmo(ids).mixes[0])


def test_an_empty_sentence_is_all_padding(published_model: PublishedModel) -> None:
    out = Elmo.from_pretrained(published_model.pair, dropout=0.0)(char_ids([["a", "b"], []]))
    assert not out.mixes[0][1].any()
    assert not out.mask_BT[1].any()


def test_no_sentences_give_no_vectors(published_model: PublishedModel) -> None:
    out = Elmo.from_pretrained(published_model.pair)(torch.zeros(0, 3, 50, dtype=torch.long))
    assert out.mixes[0].shape == (0, 3, 16)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.long), r"shape \(2, 3\)"),
        (torch.ones(2, 3, 49, dtype=torch.long), r"\(words, 50\)"),
        (torch.tensor([[[1] * 50, [0] * 50, [1] * 50]]), "pad on the right"),
    ],
)
def test_ids_of_a_wrong_shape_are_refused(published_model: PublishedModel, ids: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Elmo.from_pretrained(published_model.pair)(ids)


def test_char_ids_are_as_long_as_the_model_reads(tmp_path: Path) -> None:
    model = make_published(tmp_path, max_chars=12)
    elmo = Elmo.from_pretrained(model.pair, dropout=0.0)
    ids = elmo.char_ids(SENTENCES)
    assert torch.equal(ids, torch.from_numpy(pad_sentences(SENTENCES, max_chars=12)))
    assert elmo(ids).mixes[0].shape == (3, 4, 16)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(2, 3, 50), "float32; expected integers"),
        (torch.zeros(2, 3, 50, dtype=torch.bool), "bool; expected integers"),
        (SENTENCES, r"got a list; expected a tensor .* elmo.char_ids"),
    ],
)
def test_what_is_not_ids_is_rejected(published_model: PublishedModel, ids: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Elmo.from_pretrained(published_model.pair)(ids)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_saved_elmo_gives_the_same_vectors(
    published_model: PublishedModel, tmp_path: Path, requires_grad: bool
) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, dropout=0.0, requires_grad=requires_grad)
    if requires_grad:
        with torch.no_grad():
            elmo.bilm.forward_lstm.layers[0].bias += 0.1
    elmo.save_pretrained(tmp_path / "saved")
    loaded = Elmo.from_pretrained(tmp_path / "saved", dropout=0.0)
    ids = elmo.char_ids(SENTENCES)
    torch.testing.assert_close(loaded(ids).mixes[0], elmo(ids).mixes[0], atol=1e-5, rtol=0)


def replicate(module: nn.Module) -> nn.Module:
    """What `nn.DataParallel` makes of a module on each GPU: the weights are plain tensors, and no parameters."""
    replica = module._replicate_for_data_parallel()
    for name, child in module.named_children():
        replica._modules[name] = replicate(child)
    for name, parameter in module.named_parameters(recurse=False):
        setattr(replica, name, parameter * 1.0)
    return replica


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_a_replica_of_data_parallel_gives_the_same_vectors_and_gradients(
    published_model: PublishedModel, state: State
) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, dropout=0.0, requires_grad=True, state=state)
    gradients = []
    for module in (elmo, replicate(elmo)):
        elmo.zero_grad()
        module(char_ids(SENTENCES)).mixes[0].square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in elmo.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[0].items():
        assert expected is not None
        torch.testing.assert_close(gradients[1][name], expected)


def test_weights_learn_where_biases_are_frozen(published_model: PublishedModel) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, dropout=0.0)
    weight = elmo.bilm.forward_lstm.layers[0].recurrent_weight.requires_grad_(True)
    elmo(char_ids(SENTENCES)).mixes[0].sum().backward()
    assert weight.grad is not None
    assert weight.grad.any()


@pytest.mark.parametrize("state", ["reset", "warm", "carry"])
def test_it_can_be_cast_after_it_was_used(published_model: PublishedModel, state: State) -> None:
    elmo = Elmo.from_pretrained(published_model.pair, dropout=0.0, state=state)
    before = elmo(char_ids(SENTENCES)).mixes[0]
    elmo.reset_state()
    after = elmo.double()(char_ids(SENTENCES)).mixes[0]
    assert after.dtype == torch.float64
    torch.testing.assert_close(after.float(), before, atol=1e-5, rtol=0)
