"""Which half precision this machine has instructions for."""

from __future__ import annotations

import platform

import torch

from ...common.schema import ConfigError


def check_precision(precision: str, device: torch.device) -> None:
    """Refuses float16 where it would be computed number by number."""
    if precision == "float16" and device.type == "cpu" and not has_instructions("float16"):
        raise ConfigError(
            "precision = float16, but this CPU has no instructions for it: a step would take many times as long as in "
            "float32; use precision = bfloat16 or float32, or device = cuda"
        )


def has_instructions(precision: str) -> bool:
    """Whether this CPU computes products of such numbers itself.

    oneDNN knows, whose kernels torch uses; for bfloat16 it also says so of CPUs with AVX-512 where it converts numbers.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    if precision == "float16":
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    if platform.machine() in ("x86_64", "AMD64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # of other architectures
