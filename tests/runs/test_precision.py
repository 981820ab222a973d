"""``auto`` takes bfloat16 only where the device has it, and where it is right."""

from collections.abc import Iterator

import pytest
import torch

from elmokit.kernels import native_bf16
from elmokit.kernels.library import Kernels, load
from elmokit.runs.precision import precision_on

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
needs_kernels = pytest.mark.skipif(load() is None, reason="built without kernels")


@pytest.fixture(autouse=True)
def _ask_the_cpu_anew() -> Iterator[None]:
    native_bf16.trains_in_bf16.cache_clear()
    yield
    native_bf16.trains_in_bf16.cache_clear()


@pytest.mark.parametrize(("has_it", "expected"), [(False, "fp32"), (True, "bf16")])
def test_a_gpu_that_only_emulates_bfloat16_trains_in_float32(
    monkeypatch: pytest.MonkeyPatch, has_it: bool, expected: str
) -> None:
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return has_it or including_emulation  # every GPU can emulate it

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    assert precision_on(GPU, "auto") == expected


@pytest.mark.parametrize("device", [CPU, GPU])
def test_what_is_asked_for_is_what_comes(device: torch.device) -> None:
    assert precision_on(device, "bf16") == "bf16"
    assert precision_on(device, "fp32") == "fp32"


@needs_kernels
def test_a_cpu_trains_in_bfloat16_if_it_has_the_instructions_and_they_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = load()
    assert kernels is not None
    assert precision_on(CPU, "auto") == ("bf16" if kernels.has_bf16 else "fp32")
    for has_it, error, expected in ((False, 0.0, "fp32"), (True, 0.001, "bf16"), (True, 0.1, "fp32")):
        monkeypatch.setattr(Kernels, "has_bf16", property(lambda _, has_it=has_it: has_it))
        monkeypatch.setattr(native_bf16, "bf16_error", lambda _, error=error: error)
        native_bf16.trains_in_bf16.cache_clear()
        assert precision_on(CPU, "auto") == expected


@needs_kernels
def test_a_small_layer_in_bfloat16_is_within_its_rounding() -> None:
    kernels = load()
    assert kernels is not None
    assert 1e-4 < native_bf16.bf16_error(kernels) < native_bf16.LARGEST_ERROR / 2
