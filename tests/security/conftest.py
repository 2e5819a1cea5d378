"""The command line in an empty folder, and a module that leaves a trace when it is imported or called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedasd_fast.simulation import simulate

from ..cli.conftest import Fedasd, fedasd
from ..simulation.small_runs import small_config

__all__ = ["Fedasd", "fedasd"]

EVIL = """
from dataclasses import dataclass
from pathlib import Path
from torch import nn
from fedasd_fast.algorithms import Method

Path({trace!r}).touch()


class Net(nn.Linear):
    def __init__(self, num_classes, input_shape):
        super().__init__(input_shape[0], num_classes)


@dataclass(frozen=True)
class Avg(Method):
    pass
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that exists as soon as the module `received_code` was imported."""
    found = tmp_path / "imported"
    (tmp_path / "received_code.py").write_text(EVIL.format(trace=str(found)))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("received_code", None)
    yield found
    sys.modules.pop("received_code", None)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with two checkpoints."""
    out = tmp_path / "received"
    simulate(small_config(out=str(out), rounds=4))
    return out
