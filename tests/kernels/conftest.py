"""The kernels of every instruction set that this machine can run."""

import pytest
import torch
from instruction_sets import LIBRARY, runnable

from elmokit.kernels.library import Kernels


@pytest.fixture(autouse=True)
def _same_numbers_every_run() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=runnable() or [pytest.param("none", marks=pytest.mark.skip("built without kernels"))])
def compiled(request: pytest.FixtureRequest) -> Kernels:
    return Kernels(LIBRARY, request.param)
