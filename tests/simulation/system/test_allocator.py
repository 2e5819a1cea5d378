"""In a process of its own: what it sets stays for good."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from fedasd_fast.simulation.system.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
torch.set_num_threads(1)
for _ in range(3):
    torch.ones(10_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(10_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    kept, default = (
        int(subprocess.run([sys.executable, "-c", FAULTS, word], capture_output=True, text=True, check=True).stdout)
        for word in ("keep", "default")
    )
    assert default > 1000
    assert kept < default / 10
