"""Dropout that depends on its key alone."""

import torch

from elmokit.pretrain.dropout import RowDropout


def drop(rate: float, rows: range, *, num_rows: int = 8, key: tuple[int, ...] = (3,)) -> RowDropout:
    return RowDropout(rate, num_rows=num_rows, rows=rows, key=key)


def test_the_rate_is_dropped_and_the_rest_scaled_to_keep_the_mean() -> None:
    dropped = drop(0.1, range(8))(torch.ones(20 * 8, 512))
    is_zero = dropped == 0
    assert abs(is_zero.float().mean() - 0.1) < 0.004  # four standard errors
    torch.testing.assert_close(dropped[~is_zero], torch.full_like(dropped[~is_zero], 1 / 0.9))
    # No row, step or column has more of it than another.
    for dim in (0, 1):
        assert (is_zero.float().mean(dim=dim) - 0.1).abs().max() < 0.11


def test_no_rate_leaves_the_inputs_alone() -> None:
    inputs = torch.randn(16, 3)
    assert drop(0.0, range(8))(inputs) is inputs


def test_a_process_drops_the_same_of_its_rows_as_one_process_that_has_them_all() -> None:
    whole, part = drop(0.5, range(8)), drop(0.5, range(2, 5))
    for width in (6, 4):  # each call is another mask
        from_whole = whole(torch.ones(5 * 8, width)).view(5, 8, width)[:, 2:5]
        assert torch.equal(part(torch.ones(5 * 3, width)).view(5, 3, width), from_whole)


def test_every_call_and_every_key_drops_something_else() -> None:
    one, same, other = drop(0.5, range(8)), drop(0.5, range(8)), drop(0.5, range(8), key=(3, 1))
    ones = torch.ones(40, 6)
    first, second = one(ones), one(ones)
    assert not torch.equal(first, second)
    assert torch.equal(same(ones), first)
    assert not torch.equal(other(ones), first)


def test_gradients_pass_where_the_inputs_did() -> None:
    inputs = torch.ones(40, 6, requires_grad=True)
    dropped = drop(0.5, range(8))(inputs)
    dropped.sum().backward()
    assert torch.equal(inputs.grad, dropped.detach())
