"""What a run or a page was made with."""

from __future__ import annotations

import platform

import numpy
import torch

from ..._version import __version__
from ...kernels.loader import build_info


def versions() -> dict[str, str]:
    info = build_info()
    kernels = f"active ({', '.join(info['devices'])})" if info["extension"] else f"not active: {info['reason']}"
    return {
        "fedasd_fast": __version__,
        "kernels": kernels,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
