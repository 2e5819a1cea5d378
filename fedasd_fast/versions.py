"""What a run or a page was made with."""

from __future__ import annotations

import platform

import numpy
import torch

from .loss.extension import build_info


def versions() -> dict[str, str]:
    from . import __version__

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
