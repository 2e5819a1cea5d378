from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast import TeacherCache
from fedasd_fast.analysis.label_groups import label_groups
from fedasd_fast.analysis.loaded_run import LoadedRun, load_run
from fedasd_fast.analysis.plots.weights import weights_figure
from fedasd_fast.analysis.weights import RELATIVE_EDGES, effective_number, histogram, weights
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.errors import SimulationError
from tests.analysis.with_config import with_config

from ..orders import epoch_order
from ..simulation.small_runs import files, small_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    out = tmp_path_factory.mktemp("runs") / "one"
    simulate(small_config(out=str(out), method="fedavg+asd", partition="dirichlet_0.3", rounds=3, batch_size=6))
    return load_run(out)


def with_asd(run: LoadedRun, **settings: Any) -> LoadedRun:
    return with_config(run, run.context.experiment.config.replace(asd=settings))


def test_the_teacher_of_the_method(tmp_path: Path) -> None:
    """Of FedGKD, the mean of past models: here nearly 0, which knows nothing, whatever the server's model knows."""
    simulate(small_config(out=str(tmp_path / "run"), method="fedgkd+asd", rounds=3))
    run = load_run(tmp_path / "run")
    server = {name: torch.full_like(vector, 1e-12) for name, vector in run.state.server.items()}
    found = weights(replace(run, state=replace(run.state, server=server)), clients=3)
    assert all(own.entropy == pytest.approx(math.log(5)) for own in found.clients)
    assert all(own.entropy < 0.999 * math.log(5) for own in weights(run, clients=3).clients)


def test_a_teacher_that_knows_nothing_shares_the_weight_among_labels(run: LoadedRun) -> None:
    """With all logits 0 the entropy is log C everywhere and alpha is 1 / (labels n_c) for each sample of class c."""
    ignorant = replace(run, state=replace(run.state, cloud=torch.zeros_like(run.state.cloud)))
    found = weights(ignorant, clients=12)
    for own in found.clients:
        counts = run.context.experiment.data.label_counts(own.client)
        held = counts[counts > 0].double()
        assert own.labels == len(held)
        assert own.entropy == pytest.approx(math.log(5))
        assert own.effective == pytest.approx(len(held) ** 2 / float((1 / held).sum()))
        little = label_groups(counts)["little"]
        assert own.rare_samples == pytest.approx(float(counts[little].sum() / counts.sum()))
        assert own.rare_weight == pytest.approx(float(little.sum()) / len(held))
        assert own.batch_sizes == [6, 6, 4]
    assert found.entropy.counts[-1] == 12 * 16  # the last bin ends at log C
    assert found.rare_weight > found.rare_samples > 0


def test_the_weights_are_those_of_the_loss(run: LoadedRun) -> None:
    k, data = 5, run.context.experiment.data
    samples, model = data.client(k), run.context.trainer.model
    with model.holding(run.model("cloud")) as module:
        prior = data.label_counts(k).float() / len(samples)
        cache = TeacherCache.build(module, samples.inputs, samples.targets, prior)
    (own,) = weights(run, clients=(k,)).clients
    assert own.effective == pytest.approx(effective_number(cache.log_weight.softmax(0)), rel=1e-5)
    order = torch.from_numpy(epoch_order(0, 3, k, 16))  # of the round that would come next
    expected = [effective_number(cache.log_weight[rows].softmax(0)) for rows in order.split(6)]
    assert own.batch_effective == pytest.approx(expected, rel=1e-5)


def test_settings_of_asd_are_followed(run: LoadedRun) -> None:
    flat = weights(with_asd(run, prior_power=0.0, entropy_power=0.0), clients=3)
    assert [own.effective for own in flat.clients] == pytest.approx([16] * 3)
    assert flat.effective_share == pytest.approx(1)
    assert flat.rare_weight == pytest.approx(flat.rare_samples)
    hot = weights(with_asd(run, entropy_temperature=1e6), clients=3)
    assert [own.entropy for own in hot.clients] == pytest.approx([math.log(5)] * 3)


def test_who_applies_them(run: LoadedRun) -> None:
    assert weights(run, clients=1).applied
    assert not weights(with_asd(run, weighting="uniform"), clients=1).applied
    plain = with_config(run, run.context.experiment.config.replace(method="fedavg"))
    without = weights(plain, clients=1)
    assert not without.applied
    assert without.in_batch == weights(run, clients=1).in_batch


def test_every_sample_is_counted_once_and_nothing_is_written(run: LoadedRun) -> None:
    before = files(run.path)
    found = weights(run, clients=4, seed=3)
    assert found == weights(run, clients=4, seed=3)
    assert found.clients != weights(run, clients=4, seed=4).clients
    assert files(run.path) == before
    for shown in (found.in_batch, found.in_client, found.entropy):
        assert sum(shown.counts) == 4 * 16
        assert len(shown.edges) == len(shown.counts) + 1 == 41
    with pytest.raises(SimulationError, match="clients = 0; expected at least 1"):
        weights(run, clients=0)


def test_by_hand() -> None:
    assert effective_number(torch.tensor([0.25, 0.25, 0.25, 0.25])) == 4
    assert effective_number(torch.tensor([1.0, 0.0])) == 1
    assert effective_number(torch.tensor([0.5, 0.25, 0.25])) == pytest.approx(8 / 3)
    assert histogram(torch.tensor([-5.0, 0.5, 1.0, 2.0, 9.0]), [0, 1, 2]).counts == [2, 3]
    assert RELATIVE_EDGES[20] == 1


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30))
def test_the_effective_number_lies_between_one_and_all(values: list[float]) -> None:
    alpha = torch.tensor(values, dtype=torch.float64)
    assert 1 - 1e-9 <= effective_number(alpha / alpha.sum()) <= len(values) * (1 + 1e-9)


def test_figure_from_the_result_and_from_its_json(run: LoadedRun, tmp_path: Path) -> None:
    found = weights(run, clients=3)
    saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    for source in (found, saved):
        figure = weights_figure(source)
        figure.savefig(tmp_path / "figure.png", dpi=50)
        assert len(figure.axes[2].collections[0].get_offsets()) == 3  # a dot a client
        assert f"{found.rare_weight:.0%} of the weight" in str(found)
        assert f"{found.rare_weight:.0%} of the weight" in figure.texts[2].get_text()
