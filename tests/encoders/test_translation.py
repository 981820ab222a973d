"""The translation model against finite differences, a plain loop, and padding."""

import pytest
import torch

from elmokit.encoders.cove import CoVeEncoder
from elmokit.encoders.translation import AttentionDecoder, TranslationModel

INPUT_DIM, HIDDEN_DIM, NUM_WORDS = 3, 2, 7


@pytest.fixture
def model() -> TranslationModel:
    torch.manual_seed(0)
    encoder = CoVeEncoder(INPUT_DIM, HIDDEN_DIM)
    decoder = AttentionDecoder(NUM_WORDS, 2 * HIDDEN_DIM, embedding_dim=3, dropout=0.0)
    return TranslationModel(encoder, decoder).double()


def make_batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
    torch.manual_seed(1)
    mask_BT = torch.tensor([[True, True, True, True], [True, True, False, False]])
    inputs_BTE = torch.randn(2, 4, INPUT_DIM, dtype=torch.double)
    return inputs_BTE, mask_BT, torch.tensor([[1, 4, 2, 0, 0], [1, 3, 5, 6, 2]]), [3, 5]


@pytest.mark.long
def test_gradients_equal_finite_differences(model: TranslationModel) -> None:
    batch = make_batch()
    model.target_losses(*batch).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        flat, grad = parameter.data.view(-1), parameter.grad.view(-1)
        for index in range(0, flat.numel(), max(1, flat.numel() // 5)):
            kept = float(flat[index])
            sums = []
            for shift in (1e-5, -1e-5):
                flat[index] = kept + shift
                sums.append(float(model.target_losses(*batch).sum().detach()))
            flat[index] = kept
            assert (sums[0] - sums[1]) / 2e-5 == pytest.approx(float(grad[index]), abs=1e-7), name


@pytest.mark.parametrize("mixed", [False, True])
def test_the_training_loss_is_the_sum_of_all_targets_with_its_gradients(mixed: bool, model: TranslationModel) -> None:
    model = model.float() if mixed else model
    inputs_BTE, *others = make_batch()
    inputs_BTE = inputs_BTE.to(next(model.parameters()).dtype)
    found = []
    for loss in (
        lambda: model.loss(inputs_BTE, *others) / 2,
        lambda: model.target_losses(inputs_BTE, *others).sum() / 2,
    ):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            value = loss()
        value.backward()
        found.append({"loss": value.detach(), **{name: one.grad.clone() for name, one in model.named_parameters()}})
    tolerance = {"rtol": 0.05, "atol": 0.02} if mixed else {}
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], **tolerance)


def test_padding_and_batch_order_never_change_a_loss(model: TranslationModel) -> None:
    inputs_BTE, mask_BT, words_BS, lengths = make_batch()
    together = model.target_losses(inputs_BTE, mask_BT, words_BS, lengths)
    first = model.target_losses(inputs_BTE[:1], mask_BT[:1], words_BS[:1, :3], [3])
    second = model.target_losses(inputs_BTE[1:, :2], mask_BT[1:, :2], words_BS[1:], [5])
    torch.testing.assert_close(together, torch.cat([first, second]))
    torch.testing.assert_close(
        model.target_losses(inputs_BTE.flip(0), mask_BT.flip(0), words_BS.flip(0), lengths[::-1]),
        torch.cat([second, first]),
    )


def test_attention_follows_its_equations(model: TranslationModel) -> None:
    inputs_BTE, mask_BT, words_BS, _ = make_batch()
    source, decoder = model.encoder(inputs_BTE, mask_BT), model.decoder
    found_BSD = decoder(words_BS[1:, :2], _row(source, 1), mask_BT[1:])
    context_TD = source.layers_LBTD[1, 1, :2]
    lower = source.hidden_LBD[0, 1:], source.cell_LBD[0, 1:]
    upper = source.hidden_LBD[1, 1:], source.cell_LBD[1, 1:]
    fed_1D = torch.zeros(1, 4, dtype=torch.double)
    for step in range(2):
        lower = decoder.lower(torch.cat([decoder.embedding.weight[words_BS[1, step]][None], fed_1D], dim=1), lower)
        upper = decoder.upper(lower[0], upper)
        weights_T = torch.stack([upper[0][0] @ decoder.attention.weight @ x_D for x_D in context_TD]).softmax(dim=0)
        read_1D = (weights_T[:, None] * context_TD).sum(dim=0)[None]
        fed_1D = torch.tanh(torch.cat([read_1D, upper[0]], dim=1) @ decoder.combine.weight.T)
        torch.testing.assert_close(found_BSD[0, step], fed_1D[0])


def _row(source, row: int):
    kind = type(source)
    return kind(
        source.layers_LBTD[:, row : row + 1], source.hidden_LBD[:, row : row + 1], source.cell_LBD[:, row : row + 1]
    )
