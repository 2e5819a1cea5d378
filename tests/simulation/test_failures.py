"""Clients that fail: which one, where, why, how to look at it, and how to go on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedasd_fast.config import Config
from fedasd_fast.data.federated import Samples
from fedasd_fast.data.synthetic import SyntheticData
from fedasd_fast.simulation import ClientError, SimulationError, replay, resume, simulate
from fedasd_fast.simulation.client.trainer import LocalRun, Trainer
from fedasd_fast.simulation.sampling import participants
from fedasd_fast.simulation.storage import checkpoint
from tests.orders import epoch_order
from tests.simulation.small_runs import files, small_config, without_times

BAD, SAMPLE = 1e30, 11  # the value that spoils, and the sample of the client that has it


class Spoilt(SyntheticData):
    """One sample of some clients is spoilt."""

    def __init__(self, config: Config, clients: set[int], value: float = BAD) -> None:
        super().__init__(config.synthetic, config.clients, config.partition, config.seed)
        self.spoilt, self.value = clients, value

    def client(self, k: int) -> Samples:
        samples = super().client(k)
        if k in self.spoilt:
            samples.inputs[SAMPLE] = self.value
        return samples


class Picky(nn.Module):
    """Raises when it meets a spoilt sample."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.linear = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        if bool((x == BAD).any()):
            raise ValueError("a spoilt sample")
        return self.linear(x)


CONFIG = dict(batch_size=4, local_epochs=2)  # 4 steps an epoch
ROUND = 4  # in which the spoilt client is the first to fail


def the_client(config: Config) -> int:
    """One that takes part for the first time in ROUND (1-based)."""
    before = {int(k) for round in range(ROUND - 1) for k in participants(config, round)}
    return next(int(k) for k in participants(config, ROUND - 1) if int(k) not in before)


def failing_step(config: Config, client: int) -> int:
    """1-based, by where the shuffle of its first epoch puts the sample."""
    order = epoch_order(config.seed, ROUND - 1, client, 16)
    return int(np.flatnonzero(order == SAMPLE)[0]) // config.batch_size + 1


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], list[float]]:
    """The losses of every client that trained to its end, by (round, client), round 1-based."""
    found: dict[tuple[int, int], list[float]] = {}
    train = Trainer.train

    def spy(self: Trainer, server: Any, client: Any, *rest: Any) -> LocalRun:
        run = train(self, server, client, *rest)
        found[server.round + 1, client.id] = run.losses.tolist()
        return run

    monkeypatch.setattr(Trainer, "train", spy)
    return found


def fails(config: Config, **keywords: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        simulate(config, **keywords)
    return caught.value


def test_a_client_that_raises(tmp_path: Path) -> None:
    config = small_config(**CONFIG, out=str(tmp_path / "run"))
    client = the_client(config)
    step = failing_step(config, client)
    assert step > 1, "choose another seed: a failure in the first step tells less"
    data = Spoilt(config, {client})

    error = fails(config, data=data, model=Picky())
    assert str(error) == (
        f"client {client} failed in round {ROUND} at local step {step}: ValueError: a spoilt sample; look at it alone "
        f"with `fedasd replay {config.out} --round {ROUND} --client {client}` (seed 0); "
        f"`fedasd resume {config.out} on_client_error=drop` goes on without such clients"
    )
    assert isinstance(error.__cause__, ValueError)
    assert [kept["state"]["round"] for kept in checkpoint.load(tmp_path / "run" / "checkpoint")] == [3, 2]

    before = files(tmp_path)
    again = replay(tmp_path / "run", ROUND, client, data=data, model=Picky())
    assert again.rounds_repeated == 0
    assert len(again.losses) == step - 1
    assert again.error is not None
    assert str(error).startswith(again.error)
    assert files(tmp_path) == before

    # The remedy that the message names, against a run that had it from the start.
    dropping = small_config(**CONFIG, on_client_error="drop", out=str(tmp_path / "dropping"))
    whole = simulate(dropping, data=data, model=Picky())
    rest = resume(tmp_path / "run", {"on_client_error": "drop"}, data=data, model=Picky())
    assert without_times(rest.metrics) == without_times(whole.metrics)
    assert all(torch.equal(rest.models[name], whole.models[name]) for name in whole.models)


@pytest.mark.parametrize("method", ["fedavg+asd", "feddyn"])
def test_a_loss_that_is_not_a_number(method: str, tmp_path: Path) -> None:
    config = small_config(**CONFIG, method=method, out=str(tmp_path))
    client = the_client(config)
    data = Spoilt(config, {client}, math.nan)
    error = fails(config, data=data)
    step = failing_step(config, client)
    assert str(error).startswith(f"client {client} failed in round {ROUND} at local step {step}: the loss is nan; look")
    assert (error.client, error.round, error.step) == (client, ROUND - 1, step - 1)
    again = replay(tmp_path, ROUND, client, data=data)
    assert [math.isfinite(loss) for loss in again.losses[:step]] == [True] * (step - 1) + [False]
    assert again.error is not None
    assert str(error).startswith(again.error)


def test_parameters_that_explode(tmp_path: Path) -> None:
    """Finite losses, but a model far out of range: the round refuses it, and so does the replay."""
    config = small_config(**CONFIG, out=str(tmp_path), optimizer={"lr": 1e5, "clip_norm": None})
    error = fails(config, model=Picky())
    assert "failed in round 1 at local step" in str(error)
    assert "diverged: the largest entry of its model is" in str(error)
    again = replay(tmp_path, 1, error.client, model=Picky())
    assert all(math.isfinite(loss) for loss in again.losses)
    assert again.error is not None
    assert str(error).startswith(again.error)


def test_going_on_without_failing_clients(tmp_path: Path, traces: dict[tuple[int, int], list[float]]) -> None:
    config = small_config(**CONFIG, on_client_error="drop", out=str(tmp_path))
    client = the_client(config)
    result = simulate(config, data=Spoilt(config, {client}, math.nan))
    assert len(result.metrics) == config.rounds
    for row in result.metrics:
        cohort = [int(k) for k in participants(config, row["round"] - 1)]
        finished = [k for k in cohort if k != client]
        assert row["client_updates"] == len(finished)
        assert row["steps"] == 8 * len(finished)
        if client in cohort:
            assert row["failed"].keys() == {str(client)}
            assert row["failed"][str(client)].endswith("the loss is nan")
        else:
            assert "failed" not in row
        losses = [loss for k in finished for loss in traces[row["round"], k]]
        assert row["loss"] == pytest.approx(np.mean(losses))
    assert all(torch.isfinite(vector).all() for vector in result.models.values())
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == result.metrics


def test_a_round_in_which_everyone_fails_stops_the_run(tmp_path: Path) -> None:
    config = small_config(**CONFIG, on_client_error="drop", rounds=2, out=str(tmp_path))
    with pytest.raises(
        SimulationError, match=r"^all \d+ clients of round 1 failed, so .*\(client \d+ failed in round 1"
    ):
        simulate(config, data=Spoilt(config, set(range(12)), math.nan))
    assert not (tmp_path / "metrics.jsonl").exists()
    rest = resume(tmp_path, data=Spoilt(config, set()))  # the data mended, the run goes on
    assert len(rest.metrics) == 2


def test_a_failed_client_leaves_no_trace() -> None:
    """Whether it raised on its way or came to its end with nonsense: models are as if it had not been there."""
    config = small_config(**CONFIG, on_client_error="drop", method="feddyn")
    client = the_client(config)
    raised, ended = (simulate(config, data=Spoilt(config, {client}, value), model=Picky()) for value in (BAD, math.nan))
    assert "spoilt" in raised.metrics[ROUND - 1]["failed"][str(client)]
    assert "nan" in ended.metrics[ROUND - 1]["failed"][str(client)]
    assert all(torch.equal(raised.models[name], ended.models[name]) for name in raised.models)
