"""A biLM as a module: what its views share."""

import torch
from toy import toy_model

from elmokit.model.bilm import BiLM


def test_a_view_shares_weights_but_neither_gradients_nor_packing() -> None:
    bilm = BiLM(toy_model()).train()
    view = bilm.view()
    view.pack_weights("int8")
    assert [tensor.data_ptr() for tensor in view.state_dict().values()] == [
        tensor.data_ptr() for tensor in bilm.state_dict().values()
    ]
    assert not any(parameter.requires_grad for parameter in view.parameters())
    assert all(parameter.requires_grad for parameter in bilm.parameters())
    assert (view.training, bilm.training) == (False, True)
    ids = torch.randint(1, 262, (2, 3, 12))
    with torch.no_grad():
        expected = BiLM(toy_model())
        expected.load_state_dict(bilm.state_dict())
        assert torch.equal(bilm(ids).layers_BLTD, expected(ids).layers_BLTD)
        assert not torch.equal(view(ids).layers_BLTD, expected(ids).layers_BLTD)  # in eight bits
