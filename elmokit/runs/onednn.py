"""Hand torch's float32 matrix products to oneDNN on CPUs where MKL takes its slow code.

MKL uses AVX-512 on Intel's processors alone; on others oneDNN is twice as fast. torch's only switch allows bfloat16
inside the products, too. oneDNN makes use of that on CPUs with AMX alone, so a product is checked against float64.
"""

from pathlib import Path

import torch

CPU_INFO = Path("/proc/cpuinfo")
DEPTH = 256
LARGEST_ERROR = 1e-5  # relative; in bfloat16 it is 2e-3


def use_onednn_products() -> bool:
    """Set the switch for this process where it makes products faster and as exact; return whether it is set now."""
    switch = getattr(torch.backends.mkldnn, "matmul", None)  # torch 2.9
    if switch is None or not torch.backends.mkldnn.is_available() or not _has_slow_mkl():
        return False
    before = switch.fp32_precision
    switch.fp32_precision = "bf16"
    if product_error() > LARGEST_ERROR:
        switch.fp32_precision = before
        return False
    return True


def product_error() -> float:
    """Return how far a float32 product is from that in float64, relative to its norm."""
    random = torch.Generator("cpu").manual_seed(0)
    left, right = (torch.randn(DEPTH, DEPTH, generator=random, dtype=torch.double, device="cpu") for _ in range(2))
    exact = left @ right
    return float((exact - left.float() @ right.float()).norm() / exact.norm())


def _has_slow_mkl() -> bool:
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkl.is_available():
        return False
    try:
        return "GenuineIntel" not in CPU_INFO.read_text("utf-8", errors="replace")
    except OSError:
        return False
