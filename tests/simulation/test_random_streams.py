"""The versions of the random numbers: older runs keep theirs, and both give the same bits for any layout of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast import presets
from fedasd_fast.cli.main import main
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import BEFORE, Config, from_dict, from_saved, from_saved_yaml, from_yaml
from fedasd_fast.simulation import resume, simulate
from fedasd_fast.simulation.storage.recorded_run import read_run

from .small_runs import assert_same, bits, contents, small_config, without_times


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Configurations are saved without the settings that came later."""
    original = Config.to_yaml

    def to_yaml(self: Config) -> str:
        settings = re.findall(r"^[^ -].*\n(?:[ -].*\n)*", original(self), re.MULTILINE)  # with the lines of a group
        return "".join(text for text in settings if text.partition(":")[0] not in BEFORE)

    monkeypatch.setattr(Config, "to_yaml", to_yaml)
    return monkeypatch


def test_new_runs_have_version_2_saved_ones_without_a_version_1() -> None:
    assert Config().random_streams == from_dict({}).random_streams == 2
    assert from_saved({}).random_streams == 1
    assert from_saved({"random_streams": 2}).random_streams == 2
    with pytest.raises(ConfigError, match="random_streams = 3; expected one of 1, 2"):
        from_dict({"random_streams": 3})
    with pytest.raises(ConfigError, match=r"the configuration = \[\]; expected a mapping"):
        from_saved([])  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["fedavg", "feddyn+asd"])
@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_an_older_run_is_continued_bit_for_bit(tmp_path: Path, older: Any, method: str, executor: str) -> None:
    settings: dict[str, Any] = {"method": method, "failures": {"dropout": 0.1, "stragglers": 0.3}, "local_epochs": 2}
    settings |= {"executor": executor, **BEFORE}
    whole, cut = (small_config(**settings, out=str(tmp_path / name)) for name in ("whole", "cut"))
    simulate(whole)
    simulate(cut.replace(rounds=4))
    assert "random_streams" not in (tmp_path / "cut" / "config.yaml").read_text()
    older.undo()
    resume(tmp_path / "cut", {"rounds": 7})
    said = from_yaml(tmp_path / "cut" / "config.yaml")  # from now on
    assert {name: getattr(said, name) for name in BEFORE} == BEFORE
    assert_same(contents(tmp_path / "whole"), contents(tmp_path / "cut"))


def test_an_older_run_is_read_and_repeated_with_its_version(tmp_path: Path, older: Any, capsys: Any) -> None:
    simulate(small_config(rounds=2, random_streams=1, out=str(tmp_path / "run")))
    older.undo()
    run = read_run(tmp_path / "run")
    assert run.config.random_streams == 1
    again = tmp_path / "again"
    assert main(["run", str(tmp_path / "run" / "config.yaml"), "--out", str(again), "--quiet"]) == 0
    assert from_saved_yaml(again / "config.yaml").random_streams == 1
    assert without_times(read_run(again).metrics) == without_times(run.metrics)


def test_what_the_first_version_saved() -> None:
    """Its settings, in the order of the file: what came later must have a meaning where it is missing."""
    first = """name dataset dataset_args synthetic model model_args method method_args partition size_sigma clients
        participation sampling failures rounds local_epochs batch_size optimizer asd augment teacher eval_every
        eval_models eval_batch_size checkpoint_every on_client_error seed dtype device cuda_graph executor workers
        clients_at_once threads data_dir out"""
    assert [name for name in Config().to_dict() if name not in BEFORE] == first.split()


def test_an_older_run_that_died_before_its_first_checkpoint_starts_again(tmp_path: Path, older: Any) -> None:
    config = small_config(rounds=2, random_streams=1, out=str(tmp_path / "run"))
    expected = simulate(config)
    text = (tmp_path / "run" / "config.yaml").read_text()
    older.undo()
    for file in (tmp_path / "run" / "checkpoint").iterdir():
        file.unlink()
    # Without the line that ends it, as the first version wrote it.
    (tmp_path / "run" / "config.yaml").write_text("".join(line for line in text.splitlines(True) if line[0] != "#"))
    assert bits(resume(tmp_path / "run").models) == bits(expected.models)


def test_presets_whose_results_are_published_have_the_version_of_these() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results"
    runs = [read_run(path.parent).config for path in folder.rglob("config.yaml")]
    assert {config.name for config in runs} == {"table2_cifar100", "table4_500clients", "table13_cifar10"}
    for config in runs:
        assert presets.load(config.name).random_streams == config.random_streams == 1
    assert presets.load("quickstart").random_streams == 2


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("method", ["fedavg", "scaffold+asd"])
@pytest.mark.parametrize("op", [True, False])
def test_stacked_clients_have_the_batches_of_serial_ones(version: int, method: str, op: bool) -> None:
    settings: dict[str, Any] = {"method": method, "dtype": "float64", "size_sigma": 0.7, "random_streams": version}
    settings |= {"failures": {"dropout": 0.2, "stragglers": 0.4}, "local_epochs": 3, "rounds": 3}
    serial = simulate(small_config(**settings))
    stacked = simulate(small_config(**settings, executor="stacked", clients_at_once=3, client_op=op))
    for one, other in zip(serial.metrics, stacked.metrics, strict=True):
        for key in ("client_updates", "steps", "samples"):
            assert one[key] == other[key]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-10)
        assert one["drift"] == pytest.approx(other["drift"], rel=1e-9)


def test_versions_are_different_runs_of_one_experiment() -> None:
    one, other = (simulate(small_config(rounds=1, random_streams=version)) for version in (1, 2))
    assert one.metrics[0]["client_updates"] == other.metrics[0]["client_updates"]  # the same clients
    assert one.metrics[0]["loss"] != other.metrics[0]["loss"]
    assert presets.differences(one.config.to_dict(), other.config.to_dict()) == []
    assert presets.essential_settings(one.config) != presets.essential_settings(other.config)
