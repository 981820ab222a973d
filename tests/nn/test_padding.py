"""Padded batches to packed rows and back, against a plain description of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.nn.padding import plan_padded, sequence_lengths


@given(st.lists(st.integers(1, 6), min_size=1, max_size=7), st.integers(0, 2))
def test_packing_equals_a_plain_loop_and_goes_back(lengths: list[int], extra: int) -> None:
    num_steps = max(lengths) + extra
    mask = torch.arange(num_steps) < torch.tensor(lengths)[:, None]
    batch = torch.arange(1, mask.numel() + 1).view(*mask.shape, 1) * torch.tensor([1, 100])
    packing = plan_padded(mask)
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    steps = [[row for row in order if lengths[row] > step] for step in range(max(lengths))]
    forward = torch.stack([batch[row, step] for step, rows in enumerate(steps) for row in rows])
    backward = torch.stack([batch[row, lengths[row] - 1 - step] for step, rows in enumerate(steps) for row in rows])
    assert packing.batch_sizes == [len(rows) for rows in steps]
    assert torch.equal(packing.pack(batch), forward)
    assert torch.equal(packing.turn(forward), backward)
    assert torch.equal(packing.turn(backward), forward)
    assert torch.equal(packing.unpack(forward), batch * mask[:, :, None])
    assert sequence_lengths(mask).tolist() == lengths


def test_a_batch_of_another_shape_than_the_mask_is_rejected() -> None:
    packing = plan_padded(torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(InputError, match=r"\(2, 4, 1\) with a mask of \(2, 3\)"):
        packing.pack(torch.zeros(2, 4, 1))
