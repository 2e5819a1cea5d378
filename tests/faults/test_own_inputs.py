"""A run with the caller's own data or model is never continued with anything else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.cli import main
from fedasd_fast.config import Config, from_yaml
from fedasd_fast.data.federated import FederatedData, Samples
from fedasd_fast.data.synthetic import SyntheticData
from fedasd_fast.report.page_sections import label_counts
from fedasd_fast.simulation import SimulationError, replay, resume, simulate
from fedasd_fast.simulation.storage import checkpoint
from tests.simulation.small_runs import assert_same, contents, small_config

ASKS = r"started with the caller's own {}, which config.yaml cannot name; pass the same again from Python \({}=\.\.\."


def own_data(config: Config, seed: int = 77) -> FederatedData:
    """Clients of the same sizes and shapes as those of the configuration, but not the same ones."""
    return SyntheticData(config.synthetic, config.clients, config.partition, seed)


def own_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("own") / "run"
    config = small_config(method="feddyn+asd", out=str(out))
    simulate(config, data=own_data(config), model=own_model())
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize("checkpoints", [True, False], ids=["", "no checkpoint yet"])
def test_they_are_asked_for(run: Path, checkpoints: bool, capsys: pytest.CaptureFixture[str]) -> None:
    config = from_yaml(run / "config.yaml")
    if not checkpoints:
        shutil.rmtree(run / "checkpoint")
    with pytest.raises(SimulationError, match=ASKS.format("data and model", "data=..., model")):
        resume(run)
    with pytest.raises(SimulationError, match=ASKS.format("data", "data")):
        resume(run, {"rounds": 8}, model=own_model())
    with pytest.raises(SimulationError, match=ASKS.format("model", "model")):
        replay(run, 3, 0, data=own_data(config))
    with pytest.raises(SimulationError, match=ASKS.format("data and model", "data")):
        load_run(run)
    with pytest.raises(SimulationError, match=ASKS.format("data and model", "data")):
        simulate(config.replace(out=str(run) + " again"))  # what `fedasd run config.yaml` does
    for command in (["resume"], ["replay", "--round", "1", "--client", "0"], ["analyse", "--only", "drift"]):
        assert main([command[0], str(run), *command[1:]]) != 0
        said = capsys.readouterr().err
        assert "started with the caller's own data and model" in said
        assert "Traceback" not in said


def test_others_are_refused(run: Path) -> None:
    config = from_yaml(run / "config.yaml")
    with pytest.raises(SimulationError, match=r"this is not the data .*: labels = \w{8} \(was \w{8}\); pass"):
        resume(run, data=own_data(config, 78), model=own_model())
    fewer = own_data(config)
    fewer.test = Samples(fewer.test.inputs[:9], fewer.test.targets[:9])
    with pytest.raises(SimulationError, match=r"test_samples = 9 \(was 50\).*; pass the same data, or start a new run"):
        load_run(run, data=fewer, model=own_model())
    with pytest.raises(SimulationError, match=r"this is not the model .*: parameters = 65 \(was 293\), shapes"):
        replay(run, 3, 0, data=own_data(config), model=nn.Linear(12, 5))


def test_the_same_go_on(run: Path, tmp_path: Path) -> None:
    config = small_config(method="feddyn+asd", out=str(tmp_path / "whole"), rounds=9)
    simulate(config, data=own_data(config), model=own_model())
    resume(run, {"rounds": 9}, data=own_data(config), model=own_model())
    assert_same(contents(run), contents(tmp_path / "whole"))
    assert load_run(run, data=own_data(config), model=own_model()).state.round == 9


def test_a_run_that_recorded_nothing(run: Path) -> None:
    """Of an older version: it goes on as it did, and records what it goes on with."""
    config = from_yaml(run / "config.yaml")
    settings = yaml.safe_load((run / "config.yaml").read_text())
    del settings["inputs"]
    (run / "config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    (kept, *_) = checkpoint.load(run / "checkpoint")
    checkpoint.save(run / "checkpoint", 7, {**kept, "config": yaml.safe_dump(settings)})
    resume(run, {"rounds": 8}, data=own_data(config), model=own_model())
    assert from_yaml(run / "config.yaml").inputs == config.inputs
    with pytest.raises(SimulationError, match=ASKS.format("data and model", "data")):
        resume(run, {"rounds": 9})


def test_a_new_run_with_other_inputs(run: Path, tmp_path: Path) -> None:
    """The settings of one run may be used for another, with data of its own."""
    config = from_yaml(run / "config.yaml").replace(out=str(tmp_path / "other"), rounds=1)
    result = simulate(config, data=own_data(config, 78), model=own_model())
    assert result.config.inputs["data"] != config.inputs["data"]
    assert result.config.inputs["model"] == config.inputs["model"]


def test_a_client_that_cannot_be_read_fails_where_it_is_trained(tmp_path: Path) -> None:
    class Broken(SyntheticData):
        def client(self, k: int) -> Samples:
            if k == 3:
                raise OSError("the disk is gone")
            return super().client(k)

        def label_counts(self, k: int) -> torch.Tensor:
            return torch.ones(5, dtype=torch.int64)

    config = small_config(out=str(tmp_path / "run"), participation=1.0, rounds=2, on_client_error="drop")
    data = Broken(config.synthetic, config.clients, config.partition, 0)
    rows = simulate(config, data=data).metrics
    assert [list(row["failed"]) for row in rows] == [["3"], ["3"]]
    assert len(resume(tmp_path / "run", {"rounds": 3}, data=data).metrics) == 3


def test_no_plot_of_labels_that_the_run_never_saw(run: Path) -> None:
    with pytest.raises(ValueError, match="data were the caller's own"):
        label_counts(from_yaml(run / "config.yaml"), 10)


def test_runs_without_them_record_nothing(tmp_path: Path) -> None:
    simulate(small_config(out=str(tmp_path / "run"), rounds=1))
    assert "inputs" not in (tmp_path / "run" / "config.yaml").read_text()
