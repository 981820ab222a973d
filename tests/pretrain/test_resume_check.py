"""The resume key of a run: the part that depends on the device."""

import pytest
import torch
from toy import toy_recipe

from elmokit.pretrain.resume_check import precision_on

GPU = torch.device("cuda", 0)


@pytest.mark.parametrize(("has_it", "expected"), [(False, "fp32"), (True, "bf16")])
def test_auto_is_bfloat16_only_where_the_gpu_really_has_it(
    monkeypatch: pytest.MonkeyPatch, has_it: bool, expected: str
) -> None:
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return has_it or including_emulation  # every GPU can emulate it

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    assert precision_on(GPU, toy_recipe().training) == expected
    assert precision_on(torch.device("cpu"), toy_recipe().training) == "fp32"
    assert precision_on(GPU, toy_recipe(precision="bf16").training) == "bf16"
