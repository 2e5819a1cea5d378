"""Methods with hooks in every executor: stacked, in processes, resumed; and what `combine` is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedasd_fast import resume, simulate
from fedasd_fast.algorithms import Client, Method, Server
from tests.simulation import rank_processes
from tests.simulation.small_runs import assert_same, contents, small_config

from .problem import advance, outcome, prepare, settings, skewed

HERE = __name__
SMALL: dict[str, Any] = dict(
    clients=12, participation=0.5, rounds=4, local_epochs=2, batch_size=5, model_args={"hidden": [6]}, threads=1,
    synthetic={"shape": [5], "classes": 4, "samples_per_client": 9, "test_samples": 20}, checkpoint_every=1,
)  # fmt: skip
WITH_STATE = [
    "fedadam",
    "fedcm",
    "fedinit",
    "fedgkd+asd",
    "fedgmt",
    "fedlesam",
    "fedsmoo",
    "feddc",
    "moon+asd",
    "fednova",
]


@pytest.mark.parametrize("method", WITH_STATE)
def test_resumed_as_whole(method: str, tmp_path: Path) -> None:
    config = SMALL | {"method": method, "executor": "serial"}
    whole = simulate(config)
    simulate(config | {"rounds": 2, "out": str(tmp_path / "run")})
    resumed = resume(tmp_path / "run", {"rounds": 4})
    assert all(torch.equal(whole.models[name], resumed.models[name]) for name in whole.models)


@pytest.mark.parametrize("at_once", [1, 3])
def test_processes_as_one_process(at_once: int) -> None:
    for method in ("fedcm", "fedsmoo+asd", "fedinit", "fedlc+asd", "fedgmt"):
        config = SMALL | {"method": method, "clients_at_once": at_once}
        one = simulate(config | {"executor": "serial" if at_once == 1 else "stacked"})
        two = simulate(config | {"executor": "processes", "workers": 2})
        assert all(torch.equal(one.models[name], two.models[name]) for name in one.models), method


@pytest.mark.parametrize(("method", "at_once"), [("fedsmoo+asd", 3), ("fedinit", 3), ("fedgkd+asd", 1), ("fedcm", 3)])
def test_ranks_as_one_process(method: str, at_once: int, tmp_path: Path) -> None:
    config = small_config(method=method, clients_at_once=at_once, rounds=3, threads=1, checkpoint_every=1)
    local = "serial" if at_once == 1 else "stacked"
    simulate(config.replace(executor=local, out=str(tmp_path / "one")))
    ranks = config.replace(executor="torchrun", out=str(tmp_path / "ranks"))
    assert rank_processes.together(2, rank_processes.run, ranks) == ["finished", "finished"]
    resume(tmp_path / "ranks", {"executor": local})
    assert_same(contents(tmp_path / "ranks"), contents(tmp_path / "one"))


def test_a_client_that_fails_is_left_out_of_what_combine_gets() -> None:
    SEEN.clear()
    data = skewed()
    data.client(2).inputs.fill_(1e300)  # its loss is not finite
    context = prepare(settings(method=f"{HERE}:Counts", participation=1.0, rounds=1, on_client_error="drop"), data)
    advance(context)
    ((updates, told),) = SEEN
    np.testing.assert_allclose(told, 3.0, atol=1e-12)  # the mean over those that finished
    sizes = np.array([7, 4, 5, 6])
    assert updates.participants == 4
    np.testing.assert_allclose(updates.weights, sizes / sizes.sum(), atol=1e-15)
    np.testing.assert_array_equal(updates.steps, 2 * -(-sizes // 3))
    assert updates.mean_square == pytest.approx(float(updates.weights @ updates.lengths**2))


SEEN: list[Any] = []


@dataclass(frozen=True)
class Counts(Method):
    sent = ("told",)

    def finish(self, server: Server, client: Client, end: Tensor, steps: int) -> dict[str, Tensor]:
        return {"told": torch.full_like(end, 3.0)}

    def combine(self, server: Server, mean: Tensor, change: Any) -> tuple[Tensor, dict[str, Tensor]]:
        SEEN.append((server.updates, change["told"]))
        return mean, {}


def test_a_network_with_convolutions_stacks_with_every_hook() -> None:
    """Parameters that are views of rows, by vmap."""
    module = nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)).double()
    for method in ("fedsmoo", "fedlesam", "fedlc", "fedsol"):
        config = settings(method=method + "+asd")
        alone, together = (
            outcome(config.replace(executor=name), skewed(shape=(1, 3, 3)), module) for name in ("serial", "stacked")
        )
        torch.testing.assert_close(together.cloud, alone.cloud, rtol=0, atol=1e-10)
