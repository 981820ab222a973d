"""What a task model reads of a token: nothing but what the recipe says, whatever stands beside it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy import TEXT, toy_model

from elmokit.embed.embedder import Embedder
from elmokit.embed.layer_store import LayerStore
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.model.bilm import BiLM
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.inputs import EncodedTokens, TokenEncoder, mix_weights
from elmokit.tasks.recipe import CharSettings, ElmoSettings, TaskRecipe, WordSettings

SENTENCES = [line.split() for line in TEXT.splitlines()]
WORDS = WordSettings(file="v.txt", trained=True)
CHARS = CharSettings(char_dim=4, filters=((2, 5), (4, 6)), min_count=5)
WORD_DIM, CHAR_DIM, ELMO_DIM, NUM_LAYERS = 7, 11, 12, 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    torch.manual_seed(0)
    bilm = BiLM(toy_model())
    for parameter in bilm.parameters():
        nn.init.normal_(parameter, std=0.5)
    opened = LayerStore.open(tmp_path_factory.mktemp("layers"), Embedder(bilm))
    opened.add(SENTENCES)
    return opened


def make_columns(recipe: TaskRecipe, store: LayerStore) -> ColumnMaker:
    known = sorted({token for tokens in SENTENCES[::2] for token in tokens})
    vectors = StaticVectors(known, np.random.default_rng(1).normal(size=(len(known), WORD_DIM)))
    return ColumnMaker(
        recipe,
        learn_inputs(SENTENCES[:8], recipe),
        vectors=None if recipe.words.file is None else vectors,
        layers=None if recipe.elmo.model is None or recipe.elmo.place == "none" else store,
    )


def make_encoder(columns: ColumnMaker, *, stir: bool = True) -> TokenEncoder:
    """An encoder in evaluation; ``stir`` moves every parameter that is learned, so that each of them matters."""
    torch.manual_seed(2)
    encoder = TokenEncoder(columns.sizes(), columns.recipe.chars, columns.recipe.elmo)
    if stir:
        with torch.no_grad():
            for name, parameter in encoder.named_parameters():
                parameter.add_(torch.randn(parameter.shape))
                if name in ("learned", "char_cnn.embedding.weight"):
                    parameter[0] = 0
    return encoder.eval()


def recipe_of(**elmo: object) -> TaskRecipe:
    return TaskRecipe(task="toy", words=WORDS, chars=CHARS, elmo=ElmoSettings(**({"model": "toy"} | elmo)))


def parameters_of(encoder: TokenEncoder) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in encoder.named_parameters()}


# The arms of a comparison


@pytest.mark.parametrize(
    ("place", "mixes"), [("input", ["input_mix"]), ("output", ["output_mix"]), ("both", ["input_mix", "output_mix"])]
)
def test_the_elmo_arm_adds_exactly_the_mixes_parameters(store: LayerStore, place: str, mixes: list[str]):
    baseline = make_encoder(make_columns(recipe_of(place="none"), store), stir=False)
    with_elmo = make_encoder(make_columns(recipe_of(place=place), store), stir=False)
    expected = {f"{mix}.weights": (NUM_LAYERS,) for mix in mixes} | {f"{mix}.gamma": () for mix in mixes}
    assert parameters_of(with_elmo) == parameters_of(baseline) | expected
    assert parameters_of(baseline).keys().isdisjoint(expected)
    for name, parameter in baseline.named_parameters():
        assert torch.equal(parameter, with_elmo.get_parameter(name)), f"{name} begins elsewhere"


@pytest.mark.parametrize(
    ("place", "input_dim", "output_dim"),
    [("none", 18, 0), ("input", 18 + ELMO_DIM, 0), ("output", 18, ELMO_DIM), ("both", 18 + ELMO_DIM, ELMO_DIM)],
)
def test_widths_are_those_of_what_comes_out(store: LayerStore, place: str, input_dim: int, output_dim: int):
    columns = make_columns(recipe_of(place=place), store)
    encoder = make_encoder(columns)
    encoded = encoder(columns.make(SENTENCES[:3]))
    assert (encoder.input_dim, encoder.output_dim) == (input_dim, output_dim)
    assert encoded.inputs_BTE.shape == (3, 10, input_dim)
    assert (encoded.elmo_BTD is None) == (output_dim == 0)
    if encoded.elmo_BTD is not None:
        assert encoded.elmo_BTD.shape == (3, 10, output_dim)


def test_only_the_last_layer_has_gamma_alone(store: LayerStore):
    columns = make_columns(recipe_of(place="both", layers="last"), store)
    encoder = make_encoder(columns, stir=False)
    learned = [name for name, _ in encoder.named_parameters() if "mix" in name]
    assert learned == ["input_mix.gamma", "output_mix.gamma"]
    column = columns.make(SENTENCES[:2])
    assert column.layers_LND is not None
    with torch.no_grad():
        encoder.input_mix.gamma.fill_(2.5)
    encoded = encoder(column)
    assert encoded.elmo_BTD is not None
    mask_BT = column.mask_BT
    torch.testing.assert_close(encoded.inputs_BTE[:, :, -ELMO_DIM:][mask_BT], 2.5 * column.layers_LND[-1])
    torch.testing.assert_close(encoded.elmo_BTD[mask_BT], column.layers_LND[-1])
    assert not encoded.elmo_BTD[~mask_BT].any()


def test_gamma_is_learned_only_if_the_recipe_says_so(store: LayerStore):
    fixed = make_encoder(make_columns(recipe_of(learn_gamma=False), store), stir=False)
    assert not fixed.input_mix.gamma.requires_grad
    assert fixed.input_mix.weights.requires_grad


# What comes out


def oracle(columns: ColumnMaker, encoder: TokenEncoder, store: LayerStore, tokens: list[str]) -> np.ndarray:
    """The inputs of one sentence at the input, word by word, in plain numpy."""
    vectors, vocab, state = columns.vectors, columns.vocab, encoder.state_dict()
    weights_L = np.exp(state["input_mix.weights"].numpy())
    layers_LTD = store.join([tokens]).numpy()
    mixed_TD = state["input_mix.gamma"].numpy() * np.tensordot(weights_L / weights_L.sum(), layers_LTD, axes=1)
    rows = []
    for token, elmo_D in zip(tokens, mixed_TD, strict=True):
        static_D = vectors.vectors_VD[vectors.words.index(token)] if token in vectors.words else np.zeros(WORD_DIM)
        offset_D = state["learned"][vocab.words.index(token) + 1].numpy() if token in vocab.words else 0
        ids = [vocab.chars.index(char) + 2 if char in vocab.chars else 1 for char in token]
        chars_KE = state["char_cnn.embedding.weight"].numpy()[ids + [0] * 3]
        spelled = []
        for number, (width, _) in enumerate(columns.recipe.chars.filters):
            kernel_FEK = state[f"char_cnn.convs.{number}.weight"].numpy()
            answers = [
                np.einsum("fek,ke->f", kernel_FEK, chars_KE[start : start + width]) for start in range(len(token))
            ]
            spelled.append(np.maximum(np.max(answers, axis=0) + state[f"char_cnn.convs.{number}.bias"].numpy(), 0))
        rows.append(np.concatenate([static_D + offset_D, *spelled, elmo_D]))
    return np.stack(rows)


def test_a_tokens_vector_is_what_a_plain_loop_gives(store: LayerStore):
    columns = make_columns(recipe_of(), store)
    encoder = make_encoder(columns)
    encoded = encoder(columns.make(SENTENCES))
    for inputs_TE, tokens in zip(encoded.inputs_BTE.detach().numpy(), SENTENCES, strict=True):
        np.testing.assert_allclose(
            inputs_TE[: len(tokens)], oracle(columns, encoder, store, tokens), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("layer_norm", ["none", "token"])
def test_padding_never_changes_a_tokens_vector(store: LayerStore, layer_norm: str):
    columns = make_columns(recipe_of(place="both", layer_norm=layer_norm), store)
    encoder = make_encoder(columns)
    together: EncodedTokens = encoder(columns.make(SENTENCES))
    assert together.elmo_BTD is not None
    for row, tokens in enumerate(SENTENCES):
        alone = encoder(columns.make([tokens]))
        torch.testing.assert_close(together.inputs_BTE[row, : len(tokens)], alone.inputs_BTE[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(together.elmo_BTD[row, : len(tokens)], alone.elmo_BTD[0], rtol=1e-5, atol=1e-6)
        assert not together.inputs_BTE[row, len(tokens) :].any()
        assert not together.elmo_BTD[row, len(tokens) :].any()


def test_the_output_mix_is_apart_from_the_input_mix(store: LayerStore):
    columns = make_columns(recipe_of(place="both"), store)
    encoder = make_encoder(columns, stir=False)
    column = columns.make(SENTENCES[:4])
    before = encoder(column)
    torch.testing.assert_close(before.inputs_BTE[:, :, -ELMO_DIM:], before.elmo_BTD)
    with torch.no_grad():
        encoder.output_mix.weights.copy_(torch.tensor([2.0, 0.0, -1.0]))
        encoder.output_mix.gamma.fill_(3.0)
    after = encoder(column)
    assert torch.equal(after.inputs_BTE, before.inputs_BTE)
    assert not torch.allclose(after.elmo_BTD, before.elmo_BTD)


def test_dropout_falls_on_elmo_alone(store: LayerStore):
    columns = make_columns(recipe_of(place="both", dropout=0.5), store)
    encoder = make_encoder(columns).train()
    evaluated = make_encoder(columns)(columns.make(SENTENCES))
    trained = encoder(columns.make(SENTENCES))
    others = slice(0, WORD_DIM + CHAR_DIM)
    torch.testing.assert_close(trained.inputs_BTE[:, :, others], evaluated.inputs_BTE[:, :, others])
    for dropped, whole in (
        (trained.inputs_BTE[:, :, -ELMO_DIM:], evaluated.inputs_BTE[:, :, -ELMO_DIM:]),
        (trained.elmo_BTD, evaluated.elmo_BTD),
    ):
        kept = dropped != 0
        assert 0.4 < float(kept.sum() / (whole != 0).sum()) < 0.6
        torch.testing.assert_close(dropped[kept], 2 * whole[kept])


# Learning


def learn(encoder: TokenEncoder, columns: ColumnMaker, *, steps: int) -> None:
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.1)
    for _ in range(steps):
        encoded = encoder(columns.make(SENTENCES))
        loss = (encoded.inputs_BTE - 1).square().sum() + encoder.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_the_learned_row_of_all_other_words_stays_zero(store: LayerStore):
    columns = make_columns(recipe_of(), store)
    encoder = make_encoder(columns, stir=False).train()
    before = encoder.vectors_VD.clone()
    learn(encoder, columns, steps=3)
    assert not encoder.learned[0].any()
    assert encoder.learned[1:].all()
    assert torch.equal(encoder.vectors_VD, before)  # they are shared, and never change


def test_what_is_saved_leaves_out_the_static_vectors(store: LayerStore):
    encoder = make_encoder(make_columns(recipe_of(), store))
    assert "vectors_VD" not in encoder.state_dict()


@pytest.mark.parametrize(("place", "num_mixes"), [("none", 0), ("input", 1), ("output", 1), ("both", 2)])
def test_the_penalty_is_lambda_times_the_squared_weights_of_all_mixes(store: LayerStore, place: str, num_mixes: int):
    encoder = make_encoder(make_columns(recipe_of(place=place, penalty=0.1), store))
    weights = [parameter for name, parameter in encoder.named_parameters() if name.endswith("mix.weights")]
    assert len(weights) == num_mixes
    expected = sum(0.1 * float(weight) ** 2 for weights_L in weights for weight in weights_L.detach())
    assert float(encoder.penalty().detach()) == pytest.approx(expected)
    assert encoder.penalty().shape == ()


def test_the_penalty_draws_weights_together_and_leaves_gamma(store: LayerStore):
    encoder = make_encoder(make_columns(recipe_of(place="both", penalty=0.1), store))
    encoder.penalty().backward()
    for mix in (encoder.input_mix, encoder.output_mix):
        torch.testing.assert_close(mix.weights.grad, 0.2 * mix.weights.detach())
        assert mix.gamma.grad is None


def test_padding_gets_no_gradient(store: LayerStore):
    columns = make_columns(recipe_of(place="both"), store)

    def gradients(sentences: list[list[str]]) -> dict[str, Tensor]:
        encoder = make_encoder(columns)
        encoded = encoder(columns.make(sentences))
        (encoded.inputs_BTE.square().sum() + encoded.elmo_BTD.square().sum()).backward()
        return {name: parameter.grad for name, parameter in encoder.named_parameters()}

    alone = [gradients([tokens]) for tokens in SENTENCES]
    for name, gradient in gradients(SENTENCES).items():
        torch.testing.assert_close(gradient, sum(part[name] for part in alone), rtol=1e-4, atol=1e-4)


def test_the_type_layer_is_the_token_vector_once(store):
    columns = make_columns(TaskRecipe(task="toy", elmo=ElmoSettings(model="toy", place="both", layers="type")), store)
    encoder = make_encoder(columns)
    encoded = encoder(columns.make(SENTENCES[:1]))
    token_layer_ND = store.join(SENTENCES[:1])[0]
    assert torch.equal(token_layer_ND[:, : ELMO_DIM // 2], token_layer_ND[:, ELMO_DIM // 2 :])
    assert (encoder.input_dim, encoder.output_dim) == (ELMO_DIM // 2, ELMO_DIM // 2)
    expected_ND = encoder.input_mix.gamma * token_layer_ND[:, : ELMO_DIM // 2]
    torch.testing.assert_close(encoded.inputs_BTE[0], expected_ND)
    assert encoder.input_mix.weights is None


@pytest.mark.parametrize("mix", ["dimension", "gated"])
def test_other_mixes_start_at_the_scalar_mix_and_are_trained(mix: str, store: LayerStore):
    columns = make_columns(recipe_of(place="both", mix=mix), store)
    column = columns.make(SENTENCES)
    encoder = make_encoder(columns, stir=False)
    scalar = make_encoder(make_columns(recipe_of(place="both"), store), stir=False)
    scalar.load_state_dict(
        {name: value for name, value in encoder.state_dict().items() if "mix" not in name}, strict=False
    )
    torch.testing.assert_close(encoder(column).elmo_BTD, scalar(column).elmo_BTD)
    assert mix_weights(SimpleNamespace(tokens=encoder))["input"].weights == pytest.approx([1 / 3] * 3)


def test_the_gate_moves_elmo_between_its_places(store: LayerStore):
    columns = make_columns(recipe_of(place="both", gate_places=True), store)
    encoder, column = make_encoder(columns, stir=False), columns.make(SENTENCES)
    even = encoder(column)
    plain = make_encoder(make_columns(recipe_of(place="both"), store), stir=False)
    torch.testing.assert_close(even.elmo_BTD, plain(column).elmo_BTD)
    with torch.no_grad():
        encoder.place_gate.bias.fill_(100.0)
    moved = encoder(column)
    assert not moved.elmo_BTD.any()
    torch.testing.assert_close(moved.inputs_BTE[:, :, -ELMO_DIM:], 2 * even.inputs_BTE[:, :, -ELMO_DIM:])
    assert even.elmo_BTD.any()


def test_each_token_has_its_own_gate(store: LayerStore):
    columns = make_columns(recipe_of(place="both", gate_places=True), store)
    encoder, column = make_encoder(columns, stir=False), columns.make(SENTENCES)
    even = encoder(column)
    with torch.no_grad():
        encoder.place_gate.weight.normal_()
        encoder.place_gate.bias.fill_(0.5)
    found = encoder(column)
    means_ND = column.layers_LND.mean(dim=0)
    gates_N = 2 / (1 + torch.exp(-(means_ND @ encoder.place_gate.weight[0] + 0.5)))
    assert gates_N.std() > 0.01
    mask_BT = column.mask_BT
    torch.testing.assert_close(found.elmo_BTD[mask_BT], (2 - gates_N)[:, None] * even.elmo_BTD[mask_BT])
    inputs_BTD, even_BTD = (one.inputs_BTE[:, :, -ELMO_DIM:] for one in (found, even))
    torch.testing.assert_close(inputs_BTD[mask_BT], gates_N[:, None] * even_BTD[mask_BT])
    assert not found.elmo_BTD[~mask_BT].any()


def test_switches_that_do_not_fit_are_rejected():
    with pytest.raises(ValueError, match="gate_places needs both places, but place is input"):
        ElmoSettings(gate_places=True)
    with pytest.raises(ValueError, match="mix gated needs all layers, but layers is last"):
        ElmoSettings(mix="gated", layers="last")
