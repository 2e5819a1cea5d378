"""The loss scale of float16: part of the run's state, the same for any number of workers, ranks and graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedasd_fast import resume, simulate
from fedasd_fast.algorithms import Correction
from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.simulation import SimulationError, loss_scale
from fedasd_fast.simulation.client.flat_model import FlatModel
from fedasd_fast.simulation.client.local_step import LocalStep
from fedasd_fast.simulation.loss_scale import LossScale
from fedasd_fast.simulation.replay import replay
from fedasd_fast.simulation.storage import checkpoint
from fedasd_fast.simulation.storage.checkpoint_format import WrongFormat, check_content
from fedasd_fast.simulation.system import half_precision
from tests.simulation import rank_processes
from tests.simulation.device_checks import FEATURES, IMAGES, captured_as_eager, half_close_to_float32, images
from tests.simulation.fake_gpu import fake_gpu
from tests.simulation.small_runs import assert_same, contents, small_config

METHODS = ["fedavg", "fedavg+asd", "feddyn+asd", "fedsam+asd", "scaffold"]
HIGH = 2.0**18  # some steps overflow with it, others do not


def config(**changes: Any) -> Config:
    settings = {"precision": "float16", "rounds": 4, "local_epochs": 2, "threads": 1, "checkpoint_every": 1}
    return small_config(**{**settings, **changes})


@pytest.fixture(autouse=True)
def _float16_on_every_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_precision, "has_instructions", lambda precision: True)


@pytest.fixture
def _high() -> Iterator[None]:
    before = start_with(HIGH)
    yield
    start_with(before)


def start_with(scale: float) -> float:
    """The loss scale of runs from now on; returns what it was."""
    (before, rounds) = LossScale.__init__.__defaults__ or ()
    LossScale.__init__.__defaults__ = (scale, rounds)
    return float(before)


def test_lowered_by_overflows_and_raised_after_clean_rounds() -> None:
    scale = LossScale(256.0)
    assert scale.after(100, 1) == scale.after(100, 10) == LossScale(128.0)
    assert scale.after(100, 11) == LossScale(16.0)
    for clean in range(1, loss_scale._GROWTH_ROUNDS):
        scale = scale.after(100, 0)
        assert scale == LossScale(256.0, clean)
    assert scale.after(100, 3) == LossScale(128.0)
    assert scale.after(100, 0) == scale.after(0, 0) == LossScale(512.0)
    assert LossScale(loss_scale._LARGEST, 10**6).after(1, 0).scale == loss_scale._LARGEST


def test_an_overflow_at_the_smallest_scale_names_the_remedy() -> None:
    with pytest.raises(SimulationError, match=r"7 of 9 local steps overflowed.*precision = bfloat16"):
        LossScale(loss_scale._SMALLEST).after(9, 7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_close_to_float32(method: str, executor: str) -> None:
    half, whole = (simulate(config(method=method, executor=executor, precision=p)) for p in ("float16", "float32"))
    start = simulate(config(rounds=0)).models["cloud"]
    error = torch.linalg.vector_norm(half.models["cloud"] - whole.models["cloud"])
    assert 1e-7 < float(error / torch.linalg.vector_norm(whole.models["cloud"] - start)) < 5e-3
    assert [row["steps_skipped"] for row in half.metrics] == [0] * 4
    assert [row["loss"] for row in half.metrics] == pytest.approx([row["loss"] for row in whole.metrics], rel=5e-3)
    assert "loss_scale" not in whole.metrics[0]


def test_small_gradients_survive_by_the_scale() -> None:
    """A loss of 1e-5 times the usual one: its gradients are below the smallest number of float16."""
    model = FlatModel(nn.Linear(4, 3), half=torch.float16)
    step, x, y = LocalStep(config(optimizer={"weight_decay": 0.0}), model), torch.ones(2, 4), torch.tensor([0, 1])
    model.vector.zero_()
    with torch.no_grad():
        model.module.weight.copy_(torch.tensor([[4.0], [4.0], [-0.5]]).expand(3, 4))  # the third class: e^-18
    found = {}
    for scale in (1.0, 2.0**12):
        step.begin(Correction(), loss_scale=scale)
        step.run(x, y, torch.arange(2), 0.0)
        found[scale] = float(model.gradient[8:12].abs().max())  # of that class
    assert found[1.0] == 0
    assert 0.5e-8 < found[2.0**12] < 2e-8


def test_a_skipped_step_changes_nothing_and_is_counted() -> None:
    model = FlatModel(nn.Linear(2, 3), half=torch.float16)
    model.vector.zero_()  # the gradient of a label's logit is -1/3: times 2^18, it overflows
    step = LocalStep(config(optimizer={"momentum": 0.9, "weight_decay": 0.1}), model)
    step.begin(Correction(), loss_scale=1024.0)
    assert step.velocity is not None
    assert step.skipped is not None

    def run(scale: float) -> tuple[bool, int]:
        """Whether the step changed anything, and how many were skipped so far."""
        step.loss_scale = scale
        assert step.velocity is not None
        before = model.vector.clone(), step.velocity.clone()
        loss = step.run(torch.ones(2, 2), torch.tensor([0, 1]), torch.arange(2), 0.1)
        assert bool(loss.isfinite())
        same = [torch.equal(*pair) for pair in zip(before, (model.vector, step.velocity), strict=True)]
        assert same[0] == same[1]
        return not same[0], int(step.skipped)  # type: ignore[arg-type]

    assert run(1024.0) == (True, 0)
    assert run(2.0**18) == (False, 1)
    assert run(2.0**18) == (False, 2)
    assert run(1024.0) == (True, 2)


@pytest.mark.usefixtures("_high")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_overflowing_steps_are_skipped(method: str, executor: str) -> None:
    settings = config(method=method, executor=executor, optimizer={"momentum": 0.5}, size_sigma=0.7)
    result = simulate(settings)
    skipped, steps = ([row[key] for row in result.metrics] for key in ("steps_skipped", "steps"))
    assert 0 < skipped[0] <= steps[0]
    assert skipped[-1] == 0
    assert result.metrics[1]["loss_scale"] < result.metrics[0]["loss_scale"] == HIGH
    assert all(model.isfinite().all() for model in result.models.values())
    assert result.metrics[-1]["client_distance"] > 0


@pytest.mark.usefixtures("_high")
@pytest.mark.parametrize(("executor", "scale"), [("serial", HIGH / 2), ("stacked", HIGH)])
def test_combine_counts_the_steps_that_clients_counted(executor: str, scale: float) -> None:
    """FedNova divides each change by the client's steps and multiplies by those that the server knows of: with one
    client both are the same number, and its model is the next one."""
    settings = config(method="fednova", executor=executor, clients=1, participation=1.0, rounds=1, local_epochs=5)
    start_with(scale)
    result = simulate(settings.replace(synthetic={"samples_per_client": 80}))
    assert 0 < result.metrics[0]["steps_skipped"] < result.metrics[0]["steps"] - 1
    torch.testing.assert_close(result.models["cloud"], result.models["all"])


@pytest.mark.usefixtures("_high")
@pytest.mark.parametrize("at_once", [1, 3])
def test_the_same_bits_for_any_number_of_workers_and_ranks(at_once: int, tmp_path: Path) -> None:
    settings = config(method="feddyn+asd", rounds=3, clients_at_once=at_once)
    simulate(settings.replace(executor="serial" if at_once == 1 else "stacked", out=str(tmp_path / "one")))
    expected = contents(tmp_path / "one")
    assert expected["metrics"][0]["steps_skipped"] > 0
    assert expected["loss_scale"].scale == expected["metrics"][2]["loss_scale"] < HIGH
    for workers in (1, 2):
        out = tmp_path / str(workers)
        simulate(settings.replace(executor="processes", workers=workers, out=str(out)))
        assert_same(contents(out), expected)
    ranks = settings.replace(executor="torchrun", out=str(tmp_path / "ranks"))
    assert rank_processes.together(2, rank, ranks) == ["finished", "finished"]
    resume(tmp_path / "ranks", {"executor": "serial" if at_once == 1 else "stacked"})
    assert_same(contents(tmp_path / "ranks"), expected)


def rank(settings: Config) -> str:
    """In a process of its own, where the fixtures are not."""
    half_precision.has_instructions = lambda precision: True
    start_with(HIGH)
    return rank_processes.run(settings)


@pytest.mark.usefixtures("_high")
def test_a_resumed_run_goes_on_with_the_scale(tmp_path: Path) -> None:
    settings = config(method="fedavg+asd", out=str(tmp_path / "whole"))
    simulate(settings)
    parts = tmp_path / "parts"
    simulate(settings.replace(rounds=1, out=str(parts)))
    start_with(2.0)  # which a resumed run must not begin with
    assert resume(parts, {"rounds": 4}).metrics[-1]["loss_scale"] > 2
    assert_same(contents(parts), contents(tmp_path / "whole"))
    task = contents(parts)["metrics"][2]
    assert task["round"] == 3
    clients = sorted(contents(parts)["records"])
    found = [_replayed(parts, client) for client in clients]
    assert any(found)


def _replayed(out: Path, client: int) -> list[float]:
    try:
        return replay(out, 3, client).losses
    except SimulationError:  # took no part
        return []


def test_an_analysis_of_a_float16_run_is_in_float32(tmp_path: Path) -> None:
    simulate(config(out=str(tmp_path / "run")))
    run = load_run(tmp_path / "run")
    assert run.state.loss_scale is not None
    assert run.context.experiment.server(run.state).loss_scale is None
    assert run.context.trainer.model.half is None


@pytest.fixture
def _half_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU that is none, whose half precision is the CPU's."""

    def autocast(model: FlatModel) -> Any:
        return torch.autocast("cpu", model.half, cache_enabled=False) if model.half else nullcontext()

    monkeypatch.setattr(FlatModel, "autocast", autocast)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    with fake_gpu():
        yield


@pytest.mark.usefixtures("_half_gpu")
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_on_a_gpu(executor: str, precision: str) -> None:
    half_close_to_float32(FEATURES | {"method": "feddyn+asd", "executor": executor}, "cuda:0", precision)
    # With this seed rounding changes no maximum of a pooling window, which would be another path of gradients.
    settings = IMAGES | {"method": "fedavg+asd", "executor": executor, "seed": 4}
    half_close_to_float32(settings, "cuda:0", precision, data=images())


@pytest.mark.usefixtures("_high", "_half_gpu")
def test_recorded_steps() -> None:
    settings = config(method="fedsam+asd", optimizer={"momentum": 0.5}).to_dict()
    captured_as_eager(settings, "cuda:0", 0)
    result = simulate(settings | {"device": "cuda:0", "cuda_graph": True})
    assert result.metrics[0]["steps_skipped"] > 0 == result.metrics[-1]["steps_skipped"]


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ({"scale": 3.0, "clean_rounds": 0}, "no power of 2"),
        ({"scale": float("inf"), "clean_rounds": 0}, "no power of 2"),
        ({"scale": -2.0, "clean_rounds": 0}, "no power of 2"),
        ({"scale": 2.0, "clean_rounds": -1}, "clean_rounds = -1"),
        ({"scale": 2.0}, "no loss scale"),
    ],
)
def test_a_forged_scale_is_refused(saved: dict[str, Any], said: str, tmp_path: Path) -> None:
    simulate(config(rounds=1, out=str(tmp_path / "run")))
    (content,) = checkpoint.load(tmp_path / "run" / "checkpoint")
    content["state"]["loss_scale"] = saved
    with pytest.raises(WrongFormat, match=said):
        check_content(content, 1)


def test_a_checkpoint_without_a_scale_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    simulate(config(rounds=1, out=str(out)))
    (content,) = checkpoint.load(out / "checkpoint")
    del content["state"]["loss_scale"]
    for path in (out / "checkpoint").iterdir():
        path.unlink()
    checkpoint.save(out / "checkpoint", 1, content)
    with pytest.raises(SimulationError, match="has no loss scale"):
        resume(out, {"rounds": 2})


def test_a_cpu_without_float16_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_precision, "has_instructions", lambda precision: precision != "float16")
    with pytest.raises(ConfigError, match=r"precision = float16, but this CPU has no instructions.*bfloat16"):
        simulate(config())
