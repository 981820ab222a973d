"""CoVe's encoder against ``nn.LSTM``, and against padding and batch order."""

import pytest
import torch
from torch import nn

from elmokit.encoders.cove import CoVeEncoder, from_published
from elmokit.errors import WeightsError

INPUT_DIM, HIDDEN_DIM = 5, 4


@pytest.fixture
def published() -> nn.LSTM:
    torch.manual_seed(0)
    return nn.LSTM(INPUT_DIM, HIDDEN_DIM, num_layers=2, bidirectional=True, batch_first=True)


def test_published_weights_give_the_outputs_of_the_published_module(published: nn.LSTM) -> None:
    encoder = from_published(published.state_dict(), source="cove.pth")
    inputs_BTE = torch.randn(3, 6, INPUT_DIM)
    expected_BTD, (hidden, cell) = published(inputs_BTE)
    found = encoder(inputs_BTE, torch.ones(3, 6, dtype=torch.bool))
    torch.testing.assert_close(found.layers_LBTD[1], expected_BTD)
    torch.testing.assert_close(found.hidden_LBD[1], torch.cat([hidden[2], hidden[3]], dim=1))
    torch.testing.assert_close(found.cell_LBD[0], torch.cat([cell[0], cell[1]], dim=1))


def test_padding_and_batch_order_never_change_a_vector(published: nn.LSTM) -> None:
    encoder = from_published(published.state_dict(), source="cove.pth")
    lengths = [3, 6, 1, 4]
    inputs_BTE = torch.randn(4, 6, INPUT_DIM)
    mask_BT = torch.arange(6) < torch.tensor(lengths)[:, None]
    found = encoder(inputs_BTE, mask_BT)
    order = torch.tensor([2, 0, 3, 1])
    other = encoder(inputs_BTE[order], mask_BT[order])
    for row, length in enumerate(lengths):
        alone = encoder(inputs_BTE[row : row + 1, :length], torch.ones(1, length, dtype=torch.bool))
        torch.testing.assert_close(found.layers_LBTD[:, row, :length], alone.layers_LBTD[:, 0])
        torch.testing.assert_close(found.hidden_LBD[:, row], alone.hidden_LBD[:, 0])
        assert (found.layers_LBTD[:, row, length:] == 0).all()
    torch.testing.assert_close(other.layers_LBTD, found.layers_LBTD[:, order])


def test_other_tensors_are_rejected_by_name(published: nn.LSTM) -> None:
    tensors = dict(published.state_dict())
    with pytest.raises(WeightsError, match=r"cove\.pth: bias_hh_l1 has shape \(3,\); expected \(16,\)"):
        from_published(tensors | {"bias_hh_l1": torch.zeros(3)}, source="cove.pth")
    del tensors["weight_ih_l1_reverse"]
    with pytest.raises(WeightsError, match=r"cove\.pth: no tensor 'weight_ih_l1_reverse' in it"):
        from_published(tensors, source="cove.pth")


def test_dropout_is_between_the_layers() -> None:
    torch.manual_seed(0)
    encoder = CoVeEncoder(INPUT_DIM, HIDDEN_DIM, dropout=0.5)
    inputs_BTE, mask_BT = torch.randn(2, 5, INPUT_DIM), torch.ones(2, 5, dtype=torch.bool)
    first, second = encoder(inputs_BTE, mask_BT), encoder(inputs_BTE, mask_BT)
    torch.testing.assert_close(first.layers_LBTD[0], second.layers_LBTD[0])
    assert (first.layers_LBTD[1] != second.layers_LBTD[1]).any()
