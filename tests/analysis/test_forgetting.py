from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedasd_fast.analysis.forgetting import GroupChange, class_accuracy, forgetting, grouped_change, trainer_for
from fedasd_fast.analysis.label_groups import LABEL_GROUPS, label_groups
from fedasd_fast.analysis.loaded_run import LoadedRun, load_run
from fedasd_fast.analysis.plots.forgetting import forgetting_figure
from fedasd_fast.analysis.selection import select_clients
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.data.federated import Dataset, PartitionedData, Samples
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.client.flat_model import FlatModel
from fedasd_fast.simulation.client.update import train_client
from fedasd_fast.simulation.cohort import ClientTask
from fedasd_fast.simulation.errors import SimulationError
from fedasd_fast.simulation.evaluation import evaluate
from tests.analysis.with_config import with_config

from ..simulation.small_runs import files, small_config


def simulated_run(out: Path, **changes: Any) -> LoadedRun:
    simulate(small_config(out=str(out), **changes))
    return load_run(out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return simulated_run(tmp_path_factory.mktemp("runs") / "one", partition="dirichlet_0.3", rounds=3)


def test_groups_are_split_at_the_clients_own_even_share() -> None:
    groups = label_groups(torch.tensor([6, 3, 1, 0]))  # ten samples of three labels: 3.33 each
    assert {name: mask.nonzero().flatten().tolist() for name, mask in groups.items()} == {
        "much": [0], "little": [1, 2], "none": [3],
    }  # fmt: skip
    assert label_groups(torch.tensor([2, 2, 0]))["much"].tolist() == [True, True, False]  # a tie is much


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20).filter(any))
def test_every_label_is_in_one_group_and_the_most_frequent_in_much(counts: list[int]) -> None:
    groups = label_groups(torch.tensor(counts))
    assert torch.stack([groups[name] for name in LABEL_GROUPS]).sum(0).tolist() == [1] * len(counts)
    assert groups["much"][counts.index(max(counts))]


def test_change_by_group_by_hand() -> None:
    counts = torch.tensor([[6, 3, 1, 0], [5, 5, 0, 0]])
    change = torch.tensor([[1.0, 2.0, -4.0, -8.0], [3.0, 5.0, -2.0, math.nan]])
    found = grouped_change(counts, change)
    assert found["much"] == GroupChange(3, 3.0, pytest.approx(1.5))  # clients' means are 1 and 4
    assert found["little"] == GroupChange(2, -1.0, None)
    assert found["none"] == GroupChange(2, -5.0, pytest.approx(3.0))  # the class that is not tested does not count
    assert grouped_change(counts[1:], change[1:])["little"] == GroupChange(0, None, None)


def test_accuracy_of_a_class_by_hand() -> None:
    x = torch.eye(3)[[0, 1, 1, 1]]
    samples = Samples(x, torch.tensor([0, 0, 1, 1]))
    data = PartitionedData(Dataset("made", samples, samples, 3), [torch.arange(4).numpy()])
    model = FlatModel(nn.Linear(3, 3, bias=False))
    found = class_accuracy(model, torch.eye(3).flatten(), data, batch_size=3)
    assert found[:2].tolist() == [50.0, 100.0]
    assert found[2].isnan()


def test_classes_make_up_the_accuracy_of_the_run(run: LoadedRun) -> None:
    model, data = run.context.trainer.model, run.context.experiment.data
    tested = torch.bincount(data.test.targets, minlength=data.num_classes)
    by_class = class_accuracy(model, run.model("cloud"), data, 16).nan_to_num()
    overall, _ = evaluate(model, run.model("cloud"), data, 16)
    assert float((by_class * tested).sum() / tested.sum()) == pytest.approx(overall)


def test_clients_train_as_in_the_run_and_leave_no_trace(run: LoadedRun) -> None:
    before, vector = files(run.path), run.context.trainer.model.vector.clone()
    found = forgetting(run, clients=(4, 1), methods=("fedavg+asd", "fedavg"))
    assert files(run.path) == before
    assert torch.equal(run.context.trainer.model.vector, vector)
    model, data = run.context.trainer.model, run.context.experiment.data
    server = run.context.experiment.server(run.state)
    update = train_client(run.context.trainer, run.context.records, server, ClientTask(1, 1, 1.0))
    end = update.run.end.clone()
    assert found.after["fedavg"][1] == class_accuracy(model, end, data, 500).tolist()
    assert found.clients == [4, 1]
    assert found.counts == [data.label_counts(4).tolist(), data.label_counts(1).tolist()]
    assert sum(found.shares[0]) == pytest.approx(1)
    assert found.before == class_accuracy(model, run.model("cloud"), data, 500).tolist()
    assert found.lr == pytest.approx(0.1 * 0.998**3)


def test_methods_start_from_the_same_model_whatever_came_before(run: LoadedRun) -> None:
    forth = forgetting(run, clients=3, methods=("fedavg", "fedntd", "fedntd+asd", "fedavg+asd"))
    back = forgetting(run, clients=3, methods=("fedavg+asd", "fedntd+asd", "fedntd", "fedavg"))
    assert forth == back
    assert len({str(rows) for rows in forth.after.values()}) > 1  # and they do differ
    points = forth.points("fedavg")
    assert len(points) == 3 * 5
    client, label, share, change = points[7]
    assert (client, label, share) == (forth.clients[1], 2, forth.shares[1][2])
    after, first = forth.after["fedavg"][1][2], forth.before[2]
    assert after is not None
    assert first is not None
    assert change == after - first


def test_a_weight_of_zero_is_no_distillation(run: LoadedRun) -> None:
    config = run.context.experiment.config.replace(asd={"weight": 0.0})
    found = forgetting(with_config(run, config), clients=2)
    assert found.after["fedavg+asd"] == found.after["fedavg"] == found.after["fedntd"]


def test_clients_of_one_label_forget_the_others(tmp_path: Path) -> None:
    run = simulated_run(
        tmp_path / "run", partition="shards_1", rounds=30, local_epochs=2, participation=1.0, checkpoint_every=30,
        synthetic={"test_samples": 200}, asd={"weight": 10.0},
    )  # fmt: skip
    found = forgetting(run, clients=12, methods=("fedavg", "fedavg+asd"))
    lost = {method: found.groups[method]["none"].mean for method in found.after}
    assert found.groups["fedavg"]["little"].pairs == 0
    assert lost["fedavg"] is not None
    assert lost["fedavg+asd"] is not None
    assert lost["fedavg"] < lost["fedavg+asd"] < 0


def test_a_run_of_views_that_change_recomputes_the_teacher(tmp_path: Path) -> None:
    """Without a teacher this combination is allowed; with one it is not."""
    run = simulated_run(tmp_path / "run", synthetic={"shape": [1, 4, 4]}, augment="epoch", teacher="cache", rounds=1)
    assert trainer_for(run.context, "fedavg+asd").experiment.config.teacher == "recompute"
    assert len(forgetting(run, clients=1).after) == 4


def test_methods_with_state_need_a_run_of_theirs(tmp_path: Path, run: LoadedRun) -> None:
    with pytest.raises(SimulationError, match=r"feddyn\+asd keeps state .* run of fedavg .* a run of feddyn"):
        forgetting(run, methods=("fedavg", "feddyn+asd"))
    own = simulated_run(tmp_path / "run", method="feddyn", rounds=2)
    assert list(forgetting(own, clients=1, methods=("feddyn", "feddyn+asd")).after) == ["feddyn", "feddyn+asd"]


def test_which_clients(run: LoadedRun) -> None:
    data = run.context.experiment.data
    assert select_clients(data, 4, 0) == select_clients(data, 4, 0) != select_clients(data, 4, 1)
    assert select_clients(data, 100, 0) == list(range(12))
    assert select_clients(data, [3, 0], 0) == [3, 0]
    for wrong in (0, [12], [-1], [1, 1], []):
        with pytest.raises(SimulationError, match=r"clients = .*expected"):
            select_clients(data, wrong, 0)
    for methods in ((), ("fedavg", "fedavg")):
        with pytest.raises(SimulationError, match="expected different methods"):
            forgetting(run, methods=methods)


def test_figure_from_the_result_and_from_its_json(run: LoadedRun, tmp_path: Path) -> None:
    found = forgetting(run, clients=2)
    saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    for source in (found, saved):
        figure = forgetting_figure(source)
        figure.savefig(tmp_path / "figure.png", dpi=50)
        assert [axes.get_title(loc="left") for axes in figure.axes[1:]] == [
            "FedAvg", "FedAvg+ASD", "FedNTD", "FedNTD+ASD",
        ]  # fmt: skip
    with pytest.raises(ConfigError, match="2 results for a plot of one run"):
        forgetting_figure([found, saved])
    assert "labels that a client has" in str(found)
    one = forgetting(run, clients=1, methods=("fedavg",))  # no error bars, one panel
    forgetting_figure([one]).savefig(tmp_path / "figure.png", dpi=50)
