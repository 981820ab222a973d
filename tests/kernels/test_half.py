"""Products of float16 rows with a vector: every instruction set against float64."""

import numpy as np
import pytest
import torch
from kernel_paths import OFF, kernel_path, runnable_paths

from elmokit.errors import InputError
from elmokit.kernels import half, library

COMPILED = [path for path in runnable_paths() if path != OFF]
every_path = pytest.mark.parametrize("path", COMPILED or [pytest.param("", marks=pytest.mark.skip("not compiled"))])


@every_path
def test_every_finite_half_is_read_exactly(path):
    rows_ND = np.arange(2**16, dtype=np.uint16).view(np.float16)
    rows_ND = rows_ND[np.isfinite(rows_ND)][:, None]
    with kernel_path(path):
        found_N = half.multiply_rows(library.load(), torch.from_numpy(rows_ND), torch.ones(1))
    np.testing.assert_array_equal(found_N.numpy(), rows_ND[:, 0].astype(np.float32))


@every_path
@pytest.mark.parametrize(("num_rows", "width"), [(0, 8), (3, 0), (1, 1), (5, 7), (9, 33), (4, 256), (40_001, 24)])
def test_products_are_those_of_float64(path, num_rows, width):
    chance = np.random.default_rng(width)
    rows_ND = chance.normal(size=(num_rows + 1, width)).astype(np.float16)[1:]  # misaligned if the width is odd
    vector_D = chance.normal(size=width).astype(np.float32)
    with kernel_path(path):
        found_N = half.multiply_rows(library.load(), torch.from_numpy(rows_ND), torch.from_numpy(vector_D)).numpy()
    expected_N = rows_ND.astype(np.float64) @ vector_D.astype(np.float64)
    np.testing.assert_allclose(found_N, expected_N, atol=1e-6 * max(1, width))


@every_path
def test_a_product_depends_on_its_row_alone(path, monkeypatch):
    monkeypatch.setattr(half, "ROWS_PER_THREAD", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    rows_ND, vector_D = torch.randn(11, 40).half(), torch.randn(40)
    with kernel_path(path):
        together_N = half.multiply_rows(library.load(), rows_ND, vector_D)
        alone = [half.multiply_rows(library.load(), row_D[None], vector_D) for row_D in rows_ND]
    assert torch.equal(together_N, torch.cat(alone))


@every_path
@pytest.mark.parametrize(
    ("rows_ND", "vector_D"),
    [
        (torch.ones(2, 3), torch.ones(3)),
        (torch.ones(2, 3).half(), torch.ones(4)),
        (torch.ones(2, 3).half(), torch.ones(3).double()),
        (torch.ones(3, 2).half().T, torch.ones(3)),
        (torch.ones(3).half(), torch.ones(3)),
    ],
)
def test_wrong_shapes_and_types_are_rejected(path, rows_ND, vector_D):
    with kernel_path(path), pytest.raises(InputError, match="a kernel got"):
        half.multiply_rows(library.load(), rows_ND, vector_D)
