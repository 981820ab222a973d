"""Products of oneDNN are used only where they are faster and as exact."""

from pathlib import Path

import pytest
import torch

from elmokit.runs import onednn
from elmokit.runs.onednn import product_error, use_onednn_products

pytestmark = pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="torch has no such switch")


@pytest.fixture
def _slow_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(onednn, "_has_slow_mkl", lambda: True)


@pytest.mark.usefixtures("_slow_mkl")
def test_products_are_as_exact_as_before() -> None:
    use_onednn_products()
    assert product_error() < 1e-6


@pytest.mark.usefixtures("_slow_mkl")
def test_the_switch_goes_back_where_products_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision
    monkeypatch.setattr(onednn, "product_error", lambda: 2e-3)
    assert not use_onednn_products()
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@pytest.mark.parametrize(
    ("maker", "capability", "expected"),
    [("AuthenticAMD", "AVX512", True), ("AuthenticAMD", "AVX2", False), ("GenuineIntel", "AVX512", False)],
)
def test_only_other_makers_avx512_has_slow_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maker: str, capability: str, *, expected: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"vendor_id\t: {maker}\n", "utf-8")
    monkeypatch.setattr(onednn, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert onednn._has_slow_mkl() is expected
    monkeypatch.setattr(onednn, "CPU_INFO", tmp_path / "missing")
    assert not onednn._has_slow_mkl()


def test_products_in_bfloat16_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = torch.Tensor.float
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: exact(tensor).bfloat16())
    assert product_error() > 100 * onednn.LARGEST_ERROR
