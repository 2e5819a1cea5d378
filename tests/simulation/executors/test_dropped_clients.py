"""A client that is dropped leaves the others their bits: in one process, in workers and in ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedasd_fast.algorithms import Client, Server
from fedasd_fast.algorithms.fedcm import FedCM
from fedasd_fast.algorithms.fednova import FedNova
from fedasd_fast.algorithms.scaffold import Scaffold
from fedasd_fast.config import Config
from fedasd_fast.kernels import loader
from fedasd_fast.simulation import SimulationError, resume, simulate
from fedasd_fast.simulation.context import build_context
from tests.simulation import rank_processes
from tests.simulation.small_runs import assert_same, contents, small_config

BAD = 3


def _refuse(client: Client) -> None:
    if client.id == BAD:
        raise ZeroDivisionError("a client of its own kind")


@dataclass(frozen=True)
class Raises(Scaffold):
    """Keeps state; trained by the whole-client op."""

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        _refuse(client)
        return super().finish(server, client, end, steps)


@dataclass(frozen=True)
class Diverges(Scaffold):
    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        state = super().finish(server, client, end, steps)
        return {"c": torch.full_like(end, float("nan"))} if client.id == BAD else state


@dataclass(frozen=True)
class Sends(FedCM):
    """Keeps nothing, sends a vector; a hook of the local step."""

    def gradient_factor(self, server: Server, client: Client) -> float:
        _refuse(client)
        return super().gradient_factor(server, client)


@dataclass(frozen=True)
class Contributes(FedNova):
    def contribution(self, server: Server, client: Client, end: Tensor, steps: int) -> Tensor:
        _refuse(client)
        return super().contribution(server, client, end, steps)


OP = {"Raises": True, "Diverges": True, "Sends": False, "Contributes": True}
HOOK = {
    "Raises": "Raises.finish: ZeroDivisionError",
    "Diverges": "largest entry of its c is nan",
    "Sends": "Sends.gradient_factor: ZeroDivisionError",
    "Contributes": "Contributes.contribution: ZeroDivisionError",
}


def config(name: str, **changes: Any) -> Config:
    settings = {"clients_at_once": 4, "participation": 0.7, "rounds": 3, "on_client_error": "drop", "threads": 1}
    return small_config(**{**settings, "method": f"{__name__}:{name}", "checkpoint_every": 1, **changes})


@pytest.mark.parametrize("name", OP)
def test_the_same_bits_everywhere(name: str, tmp_path: Path) -> None:
    one = config(name, executor="stacked", out=str(tmp_path / "one"))
    assert (build_context(one).chain is not None) == (OP[name] and loader.available)
    failed = [row.get("failed") for row in simulate(one).metrics]
    assert any(failed)
    assert all(list(row) == [str(BAD)] and HOOK[name] in row[str(BAD)] for row in failed if row)
    expected = contents(tmp_path / "one")
    assert BAD not in expected["records"]
    simulate(config(name, executor="processes", workers=2, out=str(tmp_path / "two")))
    assert_same(contents(tmp_path / "two"), expected)
    ranks = config(name, executor="torchrun", out=str(tmp_path / "ranks"))
    assert rank_processes.together(2, rank_processes.run, ranks) == ["finished", "finished"]
    resume(tmp_path / "ranks", {"executor": "stacked"}, trust_code=True)
    assert_same(contents(tmp_path / "ranks"), expected)


@pytest.mark.parametrize("name", OP)
def test_without_dropping_the_error_names_hook_client_and_round(name: str) -> None:
    with pytest.raises(SimulationError, match=rf"client {BAD} .*round \d+.*{HOOK[name]}"):
        simulate(config(name, executor="stacked", on_client_error="abort"))
