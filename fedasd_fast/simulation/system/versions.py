"""What a run or a page was made with."""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path

import numpy
import torch

from ..._version import __version__
from ...common.formatting import plural
from ...kernels.loader import build_info
from .threads import cores


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
        "cpu": processor(),
    }


@functools.cache
def processor() -> str:
    """The name of the processor and the cores that this process may use: `AMD EPYC 7B13, 2 cores`."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:  # no Linux
        found = None
    name = found[1] if found else platform.processor() or platform.machine()
    return f"{' '.join(name.split())}, {plural(cores(), 'core')}"
