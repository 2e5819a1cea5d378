"""BatchNorm: rounds by hand with averaged and with local statistics, and the same results however clients are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.kernels.cohort_random import epoch_orders
from fedasd_fast.simulation import ClientError, Replay, SimulationError, replay, resume, sampling, simulate
from fedasd_fast.simulation.client import cuda_graph
from fedasd_fast.simulation.client.step_terms import step_terms
from fedasd_fast.simulation.client.trainer import Trainer
from fedasd_fast.simulation.client.update import load_client
from fedasd_fast.simulation.executors.stacked import StackedExecutor
from tests.algorithms.problem import CLASSES, FEATURES, SIZES, advance, prepare, settings, skewed
from tests.simulation import rank_processes as ranks
from tests.simulation.small_runs import assert_same, bits, contents, small_config, without_times

Array = NDArray[np.float64]
MODES = ("average", "local")
METHODS = ("fedavg+asd", "fedprox", "feddyn+asd", "scaffold", "fedlesam+asd", "fedgmt+asd", "fednova", "fedsmoo")
SMOOTHING, EPS = 0.3, 1e-3


def normed() -> nn.Module:
    """BatchNorm, then one layer: its gradients are short to write down."""
    torch.manual_seed(3)
    module = nn.Sequential(nn.BatchNorm1d(FEATURES, eps=EPS, momentum=SMOOTHING), nn.Linear(FEATURES, CLASSES))
    return module.double()


class ConvNet(nn.Sequential):
    """With two kinds of BatchNorm and dropout."""

    def __init__(self, hidden: object = None) -> None:  # the argument of small_config's network
        super().__init__(
            nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Linear(24, 8), nn.Unflatten(1, (4, 2)), nn.BatchNorm1d(4, affine=False), nn.Flatten(), nn.Tanh(),
            nn.Dropout(0.2), nn.Linear(8, 5),
        )  # fmt: skip


OWN_NET = {"model": f"{__name__}:ConvNet", "size_sigma": 0.5, "batch_size": 5, "local_epochs": 2,
           "dtype": "float64", "optimizer": {"lr": 0.05}}  # fmt: skip


def small(**changes: Any) -> Any:
    return small_config(**{**OWN_NET, **changes})


def local_training(
    vector: Array, x: Array, y: Array, orders: list[NDArray[np.int64]], lr: float, decay: float
) -> Array:
    """Of the network `normed`: gamma, beta [D], W [C, D], b [C], running mean and variance [D], one after the other."""
    d, c = FEATURES, CLASSES
    sizes = np.cumsum([d, d, c * d, c, d])
    gamma, beta, weight, bias, mean, var = (part.copy() for part in np.split(vector, sizes))
    weight = weight.reshape(c, d)
    for order in orders:
        for start in range(0, len(order), 3):
            rows = order[start : start + 3]
            u, labels, n = x[rows], y[rows], len(rows)
            m, s = u.mean(0), u.var(0)
            normal = (u - m) / np.sqrt(s + EPS)
            z = normal * gamma + beta
            logits = z @ weight.T + bias
            p = np.exp(logits - logits.max(1, keepdims=True))
            g = (p / p.sum(1, keepdims=True) - np.eye(c)[labels]) / n
            back = g @ weight
            steps = ((back * normal).sum(0), back.sum(0), g.T @ z, g.sum(0))
            for parameter, gradient in zip((gamma, beta, weight, bias), steps, strict=True):
                parameter -= lr * (gradient + decay * parameter)
            mean = (1 - SMOOTHING) * mean + SMOOTHING * m
            var = (1 - SMOOTHING) * var + SMOOTHING * s * n / (n - 1)
    return np.concatenate([gamma, beta, weight.ravel(), bias, mean, var])


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize("mode", MODES)
def test_rounds_by_hand(mode: str, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds with clients that come again and clients that are new; none has a last batch of one sample."""
    sizes, cohorts = (8, 5, 9, 5, 6), [[0, 2, 3], [1, 2, 3]]
    data, module = skewed(sizes), normed()
    monkeypatch.setattr(sampling, "participants", lambda _, round: np.array(cohorts[round]))
    config = settings(norm_statistics=mode, rounds=2, executor=executor, clients_at_once=2 * (executor == "stacked"))
    found = simulate(config, data=data, model=module)

    layer, norm = module[1], module[0]
    parts = [norm.weight, norm.bias, layer.weight, layer.bias, norm.running_mean, norm.running_var]
    initial = torch.cat([part.detach().flatten() for part in parts]).numpy()
    local = np.zeros(len(initial), bool)
    if mode == "local":
        local[: 2 * FEATURES] = local[-2 * FEATURES :] = True
    uploads: dict[int, Array] = {}
    cloud = initial
    for round, cohort in enumerate(cohorts):
        mean = np.zeros_like(initial)
        for k in cohort:
            x, y = data.client(k).inputs.numpy(), data.client(k).targets.numpy()
            orders = [epoch_orders(5, round, np.array([k]), np.array([len(y)]), np.array([1]), e) for e in (0, 1)]
            start = np.where(local, uploads.get(k, initial), cloud)
            uploads[k] = local_training(start, x, y, orders, 0.2 * 0.9**round, 0.05)
            mean += len(y) / sum(sizes[j] for j in cohort) * uploads[k]
        cloud = mean
    everyone = initial + sum(sizes[k] / sum(sizes) * (upload - initial) for k, upload in uploads.items())
    for name, expected in (("cloud", cloud), ("sel", cloud), ("all", everyone)):
        np.testing.assert_allclose(found.models[name].numpy(), expected, rtol=0, atol=1e-12)
    assert found.metrics[-1]["bytes_up"] == 3 * 8 * (~local).sum()
    state = found.state_dict("cloud")
    np.testing.assert_allclose(state["0.running_var"].numpy(), cloud[-FEATURES:], atol=1e-12)
    normed().load_state_dict(state)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHODS)
def test_stacked_clients_are_as_those_trained_alone(method: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are padded, and some clients have fewer epochs; dropout draws the same numbers."""
    more = {"failures": {"stragglers": 0.4}, "participation": 0.8, "rounds": 3, "seed": 3}
    config = small(method=method, norm_statistics=mode, **more)
    alone = simulate(config)
    monkeypatch.setattr(StackedExecutor, "train_one", None)  # no error may lead to the serial way
    stacked = simulate(config.replace(executor="stacked", clients_at_once=4))
    for name, vector in alone.models.items():
        assert torch.allclose(vector, stacked.models[name], rtol=0, atol=1e-11), name
    assert not torch.equal(alone.models["cloud"], alone.models["all"])


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize("method", ["scaffold", "fedcm", "fedadam", "fedinit", "feddc"])
def test_what_methods_keep_is_zero_where_norms_are_local(method: str, executor: str) -> None:
    config = settings(method=method, norm_statistics="local", executor=executor, rounds=3, batch_size=4, seed=1)
    context = prepare(config, skewed((8, 6, 10, 4, 6)), normed())
    at, _ = advance(context)
    local = context.experiment.layout.local
    assert local is not None
    assert int(local.sum()) == 4 * FEATURES
    kept = dict(at.server)
    for k in range(5):
        if record := context.records.read(k):
            kept |= {f"{k} {name}": vector for name, vector in record.items() if name != "upload"}
            assert not torch.equal(record["upload"][local], context.initial[local])
    assert kept
    for name, vector in kept.items():
        assert not vector[local].any(), name
        assert vector.any(), name


def test_a_fixed_perturbation_leaves_local_norms_alone() -> None:
    config = settings(method="fedlesam", norm_statistics="local", executor="serial", batch_size=4, participation=1.0)
    context = prepare(config, skewed((8, 6, 10, 4, 6)), normed())
    at, _ = advance(context, 2)
    record, server, layout = context.records.read(1), context.experiment.server(at), context.experiment.layout
    assert record is not None
    assert layout.local is not None
    client = load_client(context.experiment, 1, record, context.trainer.model.vector)
    own = context.experiment.personal(server, record["upload"])
    found = step_terms(context.experiment, own, client, context.trainer.model.vector).perturbation
    assert found is not None
    assert found.fixed is not None
    assert not found.fixed[layout.trained(layout.local)].any()
    assert torch.linalg.vector_norm(found.fixed).item() == pytest.approx(0.1)


@pytest.mark.parametrize("teacher", ["cache", "recompute"])
def test_a_local_teacher_has_the_clients_own_norms(teacher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(sampling, "participants", lambda *_: np.array([2, 4]))

    def spy(self: Trainer, *arguments: Any) -> None:
        seen.append(self.model.whole.clone())
        original(self, *arguments)

    original = Trainer.set_teachers
    monkeypatch.setattr(Trainer, "set_teachers", spy)
    config = settings(method="fedavg+asd", norm_statistics="local", teacher=teacher, local_epochs=1, rounds=2)
    config = config.replace(executor="serial")
    simulate(config, data=skewed((8, 5, 9, 5, 6)), model=normed())
    first, other, again, other_again = seen
    assert torch.equal(first, other)  # the initial model
    shared = slice(2 * FEATURES, -2 * FEATURES)
    assert torch.equal(again[shared], other_again[shared])
    assert not torch.equal(again, other_again)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at_once", [1, 3])
def test_any_number_of_workers_and_ranks_gives_the_same_bits(mode: str, at_once: int, tmp_path: Path) -> None:
    common = {"method": "feddyn+asd", "norm_statistics": mode, "threads": 1, "rounds": 3, "seed": 3}
    here = "serial" if at_once == 1 else "stacked"
    simulate(small(**common, executor=here, clients_at_once=at_once, out=str(tmp_path / "one")))
    expected = contents(tmp_path / "one")
    for workers in (1, 3):
        out = str(tmp_path / str(workers))
        simulate(small(**common, executor="processes", workers=workers, clients_at_once=at_once, out=out))
        assert_same(contents(out), expected)
    if torch.distributed.is_gloo_available():
        config = small(**common, executor="torchrun", clients_at_once=at_once, out=str(tmp_path / "ranks"))
        assert ranks.together(2, ranks.run, config) == ["finished"] * 2
        assert_same(contents(tmp_path / "ranks"), expected)


@pytest.mark.parametrize("mode", MODES)
def test_resume_and_replay(mode: str, tmp_path: Path) -> None:
    config = small(method="fedavg+asd", norm_statistics=mode, eval_models=["cloud"], rounds=5, seed=3)
    whole = simulate(config)
    simulate(config.replace(rounds=3, out=str(tmp_path)))
    rest = resume(tmp_path, {"rounds": 5}, trust_code=True)
    assert bits(rest.models) == bits(whole.models)
    assert without_times(rest.metrics) == without_times(whole.metrics)
    losses: dict[int, list[float]] = {}
    train = Trainer.train

    def spy(self: Trainer, server: Any, client: Any, *arguments: Any) -> Any:
        run = train(self, server, client, *arguments)
        losses[client.id] = run.losses.tolist()
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train", spy)
        simulate(config.replace(rounds=4))
        last = sampling.participants(config, 3)[0]
        expected = losses[int(last)]
    assert replay(tmp_path, 4, int(last), trust_code=True) == Replay(expected, None, 3)


def test_models_that_are_handed_out_have_statistics_and_no_count() -> None:
    result = simulate(small(norm_statistics="average", rounds=2))
    module = result.module("cloud")
    assert not module.training
    assert int(module[2].num_batches_tracked) == int(result.state_dict("cloud")["2.num_batches_tracked"]) == 0
    assert not torch.equal(module[2].running_mean, torch.zeros(4))
    x = torch.randn(7, 12, dtype=torch.float64)
    plain = ConvNet().double()
    plain.load_state_dict(result.state_dict("cloud"))
    assert torch.allclose(plain.eval()(x), module(x), atol=1e-12)


def test_without_running_statistics_padding_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def module() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.BatchNorm1d(FEATURES, track_running_stats=False), nn.Linear(FEATURES, CLASSES)).double()

    alone, stacked = (
        simulate(settings(executor=name, participation=1.0), data=skewed((8, 5, 9, 5, 6)), model=module())
        for name in ("serial", "stacked")
    )
    assert torch.allclose(alone.models["cloud"], stacked.models["cloud"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize("mode", MODES)
def test_half_precision(executor: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackedExecutor, "train_one", None)
    half = {"norm_statistics": mode, "dtype": "float32", "method": "fedavg+asd", "rounds": 2}
    full = simulate(small(**half, executor=executor))
    found = simulate(small(**half, executor=executor, precision="bfloat16"))
    assert torch.allclose(found.models["cloud"], full.models["cloud"], atol=0.05)
    assert not torch.equal(found.models["cloud"], full.models["cloud"])


def test_recorded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warming up runs steps that are undone, statistics too."""

    def capture(work: cuda_graph.Work, undo: cuda_graph.Work) -> cuda_graph.Work:
        for _ in range(2):
            work()
            undo()
        return work

    def recorded(self: Trainer, model: Any) -> cuda_graph.CudaGraphStep:
        return cuda_graph.CudaGraphStep(self.experiment.config, model, self.experiment.data, capture)

    config = small(norm_statistics="average", rounds=2, participation=0.5)
    net = nn.Sequential(*[layer for layer in ConvNet() if not isinstance(layer, nn.Dropout)])
    plain = simulate(config, model=net)
    monkeypatch.setattr(Trainer, "local_step", recorded)
    assert bits(simulate(config, model=net).models) == bits(plain.models)


@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_a_batch_of_one_sample_is_refused_in_words(executor: str) -> None:
    with pytest.raises(ClientError, match="BatchNorm needs two samples: choose a batch_size"):
        simulate(
            settings(norm_statistics="average", participation=1.0, executor=executor),
            data=skewed(SIZES),
            model=normed(),
        )


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set norm_statistics = average .* or local"):
        simulate(settings(), data=skewed(), model=normed())
    with pytest.raises(ConfigError, match="norm_statistics = 'mean'"):
        settings(norm_statistics="mean")
    simulate(small(norm_statistics="average", rounds=1, out=str(tmp_path)))
    with pytest.raises(SimulationError, match="network with BatchNorm"):
        load_run(tmp_path, trust_code=True)
