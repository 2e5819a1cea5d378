"""The peers themselves are not installed here: what is tested is that all contenders get the same job."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fedasd_fast as fa
from benchmarks.peers import ours, setup
from benchmarks.peers.__main__ import step_flops
from benchmarks.peers.contenders import CONTENDERS, Contender, contenders
from benchmarks.peers.harness import Measured, measure
from benchmarks.peers.ours import config_of, data_of
from benchmarks.peers.plain import Loop
from benchmarks.peers.spec import Spec
from benchmarks.peers.table import table
from benchmarks.peers.workload import WORKLOADS, Workload, build_model, load_data, save_data
from fedasd_fast import models
from fedasd_fast.simulation.sampling import participants

from ..orders import epoch_order

TINY = Workload("tiny", clients=6, samples=14, cohort=3, epochs=2, batch=5, shape=(8,), classes=4)


@pytest.mark.parametrize(("name", "model"), [("W1", "cnn_cifar"), ("W2", "mlp"), ("W3", "cnn_cifar")])
def test_the_models_are_ours(name, model):
    workload = WORKLOADS[name]
    theirs = build_model(workload)
    own = models.build(model, num_classes=workload.classes, input_shape=workload.shape)
    assert {k: v.shape for k, v in theirs.state_dict().items()} == {k: v.shape for k, v in own.state_dict().items()}
    own.load_state_dict(theirs.state_dict())
    x = torch.randn(2, *workload.shape, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(theirs(x), own(x), rtol=0, atol=0)


@pytest.mark.parametrize("asd", [False, True])
def test_the_plain_loop_does_what_ours_does(tmp_path, asd):
    workload = replace(TINY, asd=asd)
    save_data(workload, tmp_path)
    data, rounds = load_data(tmp_path), 2
    config = config_of(workload, rounds, executor="serial", threads=1)

    def orders(number, client):
        own = (epoch_order(config.seed, number, client, workload.samples, epoch) for epoch in range(workload.epochs))
        return [torch.from_numpy(order) for order in own]

    loop = Loop(workload, data, lambda number: participants(config, number).tolist(), orders)
    result = fa.simulate(config, data=data_of(workload, data), model=build_model(workload))
    done = [loop.round(number) for number in range(rounds)]
    assert done == [(workload.cohort, workload.steps)] * rounds
    assert done == [(row["client_updates"], row["steps"]) for row in result.metrics]
    flat = torch.cat([p.detach().flatten() for p in loop.model.parameters()])
    torch.testing.assert_close(flat, result.models["cloud"], rtol=0, atol=1e-5)
    assert loop.data.test_loss(loop.model) == pytest.approx(result.metrics[-1]["test_loss_cloud"], abs=1e-4)
    start = torch.cat([p.detach().flatten() for p in build_model(workload).parameters()])
    assert (flat - start).abs().max() > 1e-2


def measured(name, seconds, updates, steps):
    return Measured(Contender(name, "1 thread", "", "", {}), {}, seconds, updates, steps, 1.5, 10**8)


def test_no_ratio_for_other_work():
    rounds = [2.0, 4.0, 3.0]
    right = (3 * TINY.cohort, 3 * TINY.steps)
    less = (3 * TINY.cohort, 3 * TINY.steps - 1)
    results = [measured("ours-serial", [1.0, 2.0, 2.0], *right), measured("plain", rounds, *right)]
    lines = table(TINY, [*results, measured("pfl", rounds, *less)], step_flops=1e9, gemm=1e11).splitlines()[2:]
    assert [line.split(" | ")[-2:] for line in lines[:2]] == [["1.00", "1.00 |"], ["2.00", "1.50 |"]]
    assert f"other work: {less[0]} updates, {less[1]} steps" in lines[2]
    # Ours itself is no yardstick either if it did less.
    lines = table(TINY, [measured("ours-serial", rounds, *less), results[1]], 1e9, 1e11).splitlines()[2:]
    assert lines[1].endswith("|  |  |")


def test_share_of_the_gemm_rate():
    line = table(TINY, [measured("ours-serial", [2.0], TINY.cohort, TINY.steps)], 1e9, 1e11).splitlines()[2]
    assert line.split(" | ")[6] == f"{TINY.steps * 1e9 / 2 / 1e11:.2f}"
    assert step_flops(replace(WORKLOADS["W2"], batch=1)) == 6 * (64 * 128 + 128 * 64 + 64 * 10) - 2 * 64 * 128


def test_children_are_measured_in_turns_and_a_missing_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.peers.harness.gemm_rate", lambda _: 1.0)
    save_data(TINY, tmp_path)
    plain = contenders(TINY, tmp_path, {"plain:1 thread"})
    absent = contenders(TINY, tmp_path, {"pfl"})[:1]
    results, rates = measure(TINY, [*plain, *absent], tmp_path, tmp_path, rounds=2, repeats=2)
    assert len(rates) == 2
    assert (results[0].updates, results[0].steps) == (4 * TINY.cohort, 4 * TINY.steps)
    assert len(results[0].seconds) == 4
    assert results[0].memory > 5e7
    assert np.isfinite(results[0].loss)
    assert "setup" in results[1].problem
    lines = table(TINY, results, 1.0, 1.0).splitlines()
    assert "not available" in lines[3]
    assert lines[3].count("|") == lines[0].count("|")


def test_an_executor_that_does_not_exist_yet_is_not_available(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(ours, "RoundGate", lambda **_: SimpleNamespace(say=said.append))
    monkeypatch.setattr("sys.argv", ["ours", Spec(TINY, str(tmp_path), {"executor": "telepathy"}).to_argument()])
    ours.main()
    assert "telepathy" in said[0]["unavailable"]


def test_unknown_contenders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"tff.*expected some of ours-serial"):
        contenders(TINY, tmp_path, {"tff"})
    assert {c.name for c in contenders(WORKLOADS["W3"], tmp_path)} == {
        "ours-serial", "ours-stacked", "ours-processes", "ours-auto", "authors",
    }  # fmt: skip


def test_peers_get_an_interpreter_they_run_on(monkeypatch):
    monkeypatch.setattr(setup.sys, "version_info", (3, 11))
    assert str(setup.python_for("pfl", None)) == setup.sys.executable
    assert setup.python_for("blazefl", Path("python3.12")) == Path("python3.12")
    with pytest.raises(SystemExit, match=r"blazefl.*needs Python 3.12 or newer: name one with --newer-python"):
        setup.python_for("blazefl", None)
    monkeypatch.setattr(setup.sys, "version_info", (3, 12))
    assert str(setup.python_for("blazefl", None)) == setup.sys.executable
    assert {venv for _, venv, _ in CONTENDERS.values() if venv} == set(setup.PACKAGES)
