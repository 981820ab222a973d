"""Packing plans against a plain description of them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.model.packing import invert, plan_packing


@given(st.lists(st.integers(0, 7), max_size=9))
def test_plan_equals_a_plain_loop(lengths: list[int]) -> None:
    packing = plan_packing(lengths, torch.device("cpu"))
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    first = [sum(lengths[:row]) for row in range(len(lengths))]
    steps = [[row for row in order if lengths[row] > step] for step in range(max(lengths, default=0))]
    assert packing.rows_B.tolist() == order
    assert packing.batch_sizes == [len(rows) for rows in steps]
    assert packing.forward_N.tolist() == [first[row] + step for step, rows in enumerate(steps) for row in rows]
    assert packing.backward_N.tolist() == [
        first[row] + lengths[row] - 1 - step for step, rows in enumerate(steps) for row in rows
    ]


@given(st.permutations(range(8)))
def test_invert_undoes_a_permutation(permutation: list[int]) -> None:
    values = torch.arange(8) * 10
    there = torch.tensor(permutation)
    assert torch.equal(values[there][invert(there)], values)
