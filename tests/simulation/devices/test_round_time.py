"""Simulated seconds, deadlines and the clock, by arithmetic."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedasd_fast.callbacks import Callback
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_saved
from fedasd_fast.report.run_outputs import summary
from fedasd_fast.settings import Devices
from fedasd_fast.simulation import SimulationError, replay, resume, simulate
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.devices import SimulatedDevices
from fedasd_fast.simulation.devices.profiles import DeviceProfiles
from fedasd_fast.simulation.round_plan import plan_round
from fedasd_fast.simulation.sampling import participants
from fedasd_fast.simulation.storage.recorded_run import read_run
from tests.simulation import rank_processes
from tests.simulation.small_runs import assert_same, bits, contents, small_config, without_times

BYTES = 4 * (12 * 16 + 16 + 16 * 5 + 5)  # of the model: 1172
CONSTANT = {"profile": "constant", "speed": 8.0, "download": 586.0, "upload": 293.0}


def test_seconds_of_devices_that_are_alike() -> None:
    """Two seconds down, 16 samples in two, four seconds up."""
    rows = simulate(small_config(rounds=3, devices=CONSTANT)).metrics
    assert [row["simulated_seconds"] for row in rows] == [8.0] * 3
    assert [row["simulated_clock"] for row in rows] == [8.0, 16.0, 24.0]
    assert "cut_by_deadline" not in rows[0]
    assert simulate(small_config(rounds=1, devices=CONSTANT, local_epochs=3)).metrics[0]["simulated_seconds"] == 12.0
    scaffold = simulate(small_config(rounds=1, devices=CONSTANT, method="scaffold")).metrics[0]
    assert scaffold["simulated_seconds"] == 14.0  # two vectors each way


def test_devices_that_are_simulated_change_nothing_else() -> None:
    plain, timed = simulate(small_config()), simulate(small_config(devices=CONSTANT))
    assert bits(plain.models) == bits(timed.models)
    extra = {"simulated_seconds", "simulated_clock"}
    rows = [{key: value for key, value in row.items() if key not in extra} for row in timed.metrics]
    assert without_times(rows) == without_times(plain.metrics)


def written(tmp_path: Path, speeds: list[float]) -> str:
    """Client k trains so many samples a second, and sends and receives in no time worth mention."""
    lines = ["client,speed,download,upload", *(f"{k},{speed},1e30,1e30" for k, speed in enumerate(speeds))]
    (tmp_path / "devices.csv").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "devices.csv")


def test_the_slowest_decides_unless_the_deadline_does(tmp_path: Path) -> None:
    """Client k needs k + 1 seconds for its 16 samples; after six and a half, a client is cut."""
    file = written(tmp_path, [16 / (k + 1) for k in range(12)])
    slow = simulate(small_config(devices={"profile": file})).metrics
    config = small_config(devices={"profile": file, "deadline": 6.5})
    rows, clock = simulate(config).metrics, 0.0
    for round, (row, without) in enumerate(zip(rows, slow, strict=True)):
        times = participants(config, round) + 1.0
        assert without["simulated_seconds"] == times.max()
        late = int((times > 6.5).sum())
        seconds = 6.5 if late else times.max()
        clock += seconds
        assert row["cut_by_deadline"] == late
        assert row["client_updates"] == len(times) - late
        assert (row["simulated_seconds"], row["simulated_clock"]) == (seconds, clock)
        assert row["bytes_down"] == BYTES * len(times)  # sent to all
        assert row["bytes_up"] == BYTES * (len(times) - late)
    assert 0 < sum(row["cut_by_deadline"] for row in rows) < sum(len(participants(config, r)) for r in range(7))


def test_who_is_cut_is_as_if_not_sampled(tmp_path: Path) -> None:
    """The tasks are those of the clients in time, with weights among them."""
    config = small_config(devices={"profile": written(tmp_path, [16 / (k + 1) for k in range(12)]), "deadline": 6.5})
    experiment = (context := build_context(config)).experiment
    plan = plan_round(experiment, experiment.first_state(context.initial))
    expected = [k for k in participants(config, 0) if k < 6]
    assert plan.cut > 0
    assert plan.tasks.clients.tolist() == expected
    assert plan.tasks.weights.tolist() == pytest.approx([1 / len(expected)] * len(expected))


def test_a_round_in_which_all_are_cut_passes(tmp_path: Path) -> None:
    devices = {"profile": written(tmp_path, [1.0] * 12), "deadline": 5.0}
    result = simulate(small_config(rounds=2, devices=devices))
    assert [row["client_updates"] for row in result.metrics] == [0, 0]
    assert [row["simulated_clock"] for row in result.metrics] == [5.0, 10.0]
    assert result.metrics[0]["acc_cloud"] == result.metrics[1]["acc_cloud"]


def test_stragglers_and_dropouts_take_the_time_of_their_epochs() -> None:
    settings = {"local_epochs": 5, "failures": {"dropout": 0.3, "stragglers": 0.9}}
    config = small_config(devices={**CONSTANT, "download": 1e30, "upload": 1e30}, **settings)
    experiment = (context := build_context(config)).experiment
    plan = plan_round(experiment, experiment.first_state(context.initial))
    assert plan.seconds == plan.tasks.epochs.max() * 2.0
    assert 0 < len(plan.tasks) < len(participants(config, 0))


def test_distributions() -> None:
    clients = np.arange(20_000)
    spread = {"speed": 10.0, "download": 1e3, "upload": 1e2, "speed_spread": 0.5, "bandwidth_spread": 0.2}
    drawn = DeviceProfiles(Devices("lognormal", **spread), 20_000, seed=3).of(clients)
    logs = np.log([drawn.speed / 10, drawn.download / 1e3])
    assert np.abs(logs.mean(1)).max() < 0.015
    assert logs.std(1) == pytest.approx([0.5, 0.2], rel=0.03)
    assert abs(np.corrcoef(logs)[0, 1]) < 0.03
    assert drawn.upload == pytest.approx(drawn.download / 10)
    flat = DeviceProfiles(Devices("uniform", **spread), 20_000, seed=3).of(clients)
    assert 5.0 < flat.speed.min() < 5.1 < 14.9 < flat.speed.max() < 15.0
    assert flat.speed.mean() == pytest.approx(10, rel=0.01)
    few = DeviceProfiles(Devices("lognormal", **spread), 20_000, seed=3).of(clients[[7, 3]])
    assert np.array_equal(few.speed, drawn.speed[[7, 3]])  # a function of seed and client alone
    other = DeviceProfiles(Devices("lognormal", **spread), 20_000, seed=4).of(clients)
    assert not np.array_equal(other.speed, drawn.speed)


def test_lines_of_a_file_without_clients_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_text("upload,speed,download\n1,10,100\n2,20,200\n\n3,30,300\n")
    drawn = DeviceProfiles(Devices(str(file)), 1_000_000, seed=0).of(np.arange(0, 1_000_000, 100))
    assert set(zip(drawn.speed, drawn.download, drawn.upload, strict=True)) == {
        (10, 100, 1),
        (20, 200, 2),
        (30, 300, 3),
    }
    assert np.bincount(drawn.upload.astype(int))[1:] == pytest.approx([3333] * 3, rel=0.1)


class Kill(Callback):
    def on_round(self, metrics: Any) -> None:
        if metrics["round"] == 3:
            raise KeyboardInterrupt  # the last checkpoint is that of round 2


UNEVEN: dict[str, Any] = {
    "devices": {"profile": "lognormal", "deadline": 0.4, "speed_spread": 0.8},
    "availability": {"pattern": "diurnal", "period": 2.0, "time_zones": 0.5, "wait": 0.1},
    "participation": 0.7,
}


@pytest.mark.parametrize("method", ["fedavg", "feddyn"])
def test_a_run_that_is_killed_has_the_same_clock_afterwards(method: str, tmp_path: Path) -> None:
    simulate(small_config(out=str(tmp_path / "whole"), method=method, **UNEVEN))
    with pytest.raises(KeyboardInterrupt):
        simulate(small_config(out=str(tmp_path / "run"), method=method, **UNEVEN), callbacks=[Kill()])
    resume(tmp_path / "run")
    whole = contents(tmp_path / "whole")
    assert_same(contents(tmp_path / "run"), whole)
    rows = whole["metrics"]
    assert whole["clock"].seconds == rows[-1]["simulated_clock"] > 0
    assert {row["cut_by_deadline"] > 0 for row in rows} == {True, False}
    round = rows[5]["round"]
    config = small_config(method=method, **UNEVEN)
    experiment = (context := build_context(config)).experiment
    state = experiment.first_state(context.initial)
    for _ in range(round - 1):
        plan = plan_round(experiment, state)
        state = type(state)(**{**vars(state), "round": state.round + 1, "clock": plan.clock})
    client = int(plan_round(experiment, state).tasks.clients[0])
    assert replay(tmp_path / "run", round, client).error is None


@pytest.mark.parametrize(
    "way",
    [{"executor": "stacked"}, {"executor": "stacked", "client_op": False}, {"executor": "processes", "workers": 2}],
    ids=["op", "stacked", "processes"],
)
def test_executors_agree(way: dict[str, Any]) -> None:
    keys = ("simulated_seconds", "simulated_clock", "cut_by_deadline", "client_updates", "samples")
    plain, other = (simulate(small_config(**UNEVEN, **more)).metrics for more in ({}, way))
    assert [[row[key] for key in keys] for row in plain] == [[row[key] for key in keys] for row in other]


def test_ranks_agree(tmp_path: Path) -> None:
    simulate(small_config(out=str(tmp_path / "serial"), threads=1, **UNEVEN))
    config = small_config(out=str(tmp_path / "ranks"), executor="torchrun", threads=1, **UNEVEN)
    assert rank_processes.together(2, rank_processes.run, config) == ["finished"] * 2
    assert_same(contents(tmp_path / "ranks"), contents(tmp_path / "serial"))


def test_a_file_that_changed_is_noticed(tmp_path: Path) -> None:
    devices = {"profile": written(tmp_path, [3.0] * 12)}
    simulate(small_config(rounds=2, devices=devices, out=str(tmp_path / "run")))
    written(tmp_path, [4.0] * 12)
    with pytest.raises(SimulationError, match=r"devices\.csv or availability.* changed since the run began"):
        resume(tmp_path / "run", {"rounds": 3})


def test_older_runs_have_no_devices() -> None:
    saved = {k: v for k, v in small_config().to_dict().items() if k not in ("devices", "availability")}
    assert from_saved(saved) == small_config()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"devices": {"profile": "lognormall"}}, r"devices\.profile = 'lognormall'; did you mean lognormal"),
        ({"devices": {"deadline": 3.0}}, r"devices\.deadline = 3 needs simulated time; set devices\.profile"),
        ({"availability": {"pattern": "diurnal"}}, r"availability\.pattern = diurnal needs simulated time"),
        ({"devices": {"profile": "constant", "speed": 0.0}}, r"devices\.speed = 0.0; expected a positive number"),
        ({"devices": {"profile": "uniform", "speed_spread": 1.5}}, r"devices\.speed_spread = 1.5; .* with uniform"),
        ({"devices": CONSTANT, "availability": {"pattern": "diurnal", "mean": 0.9}}, r"amplitude = 0.4; .*0 \.\. 0.1"),
        (
            {"devices": CONSTANT, "availability": {"pattern": "diurnal", "period": None}},
            r"availability\.period = None; expected seconds with diurnal",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        small_config(**settings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("speed,download\n1,2\n", "begins with 'speed,download'; expected a first line with the columns speed, down"),
        ("speed,download,upload\n", "no line below"),
        ("speed,download,upload\n1,2\n", "line 2: 2 values; expected 3"),
        ("speed,download,upload\n1,2,3\n\n1,x,3\n", "line 4: download = 'x'; expected a positive number"),
        ("speed,download,upload\n0,2,3\n", "line 2: speed = '0'; expected a positive number"),
        (
            "client,speed,download,upload\n12,1,2,3\n",
            r"line 2: client = '12'; expected the number of a client, 0 \.\. 11",
        ),
        ("client,speed,download,upload\n0,1,2,3\n", "client 1 is missing; expected each of the 12 clients once"),
    ],
)
def test_files_that_cannot_be_used_are_refused_before_the_run(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(text)
    config = small_config(devices={"profile": str(tmp_path / "bad.csv")}, out=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match=expected):
        simulate(config)
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"devices\.profile = none\.csv cannot be read: No such file"):
        SimulatedDevices(small_config(devices={"profile": "none.csv"}))


def test_the_summary_tells_the_simulated_time_to_the_target(tmp_path: Path) -> None:
    devices = {**CONSTANT, "deadline": 9.0}
    simulate(small_config(out=str(tmp_path), devices=devices, target_accuracy=0.01, rounds=3))
    text = summary(read_run(tmp_path), None)
    assert "cloud 1 %: in round 1, with " in text
    assert ", after 8 s of simulated time" in text
    assert re.search(r"devices   24 s of simulated time, 0 of \d+ client updates cut by the deadline", text)


def run_with_own_file(config: Any, folder: Path, speed: float = 1.0) -> str:
    folder = folder / str(speed)  # as if on a machine of its own
    folder.mkdir()
    os.chdir(folder)
    written(folder, [speed] * 12)
    simulate(config)
    return "finished"


def test_ranks_with_other_files_are_refused(tmp_path: Path) -> None:
    config = small_config(executor="torchrun", devices={"profile": "devices.csv"})
    answers = rank_processes.together(2, run_with_own_file, config, tmp_path, of={1: (2.0,)})
    assert all("is not the same file on all machines" in str(answer) for answer in answers), answers
