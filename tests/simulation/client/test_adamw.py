"""Local AdamW, against torch.optim.AdamW: a step, a round, a stack, a resumed run; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedasd_fast.algorithms import Correction
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config, from_dict, from_saved
from fedasd_fast.settings import Optimizer
from fedasd_fast.simulation import resume, simulate
from fedasd_fast.simulation.client import adamw
from fedasd_fast.simulation.client.chain_trainer import layers_of_chain
from fedasd_fast.simulation.client.samples import LocalSamples
from fedasd_fast.simulation.cohort import client_tasks
from tests.algorithms.problem import SIZES, advance, linear, outcome, prepare, settings
from tests.simulation.small_runs import contents, small_config

ADAMW = dict(name="adamw", lr=0.05, betas=[0.8, 0.95], eps=1e-6, clip_norm=1.5)
numbers = st.floats(-3, 3, allow_subnormal=False)
vectors = st.lists(numbers, min_size=4, max_size=4).map(lambda x: torch.tensor(x, dtype=torch.float64))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    start=vectors, gradients=st.lists(vectors, min_size=3, max_size=3), lr=st.floats(1e-4, 1), decay=st.floats(0, 0.5),
    betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.999)), eps=st.floats(1e-8, 1e-2),
    clip=st.none() | st.floats(0.01, 10),
)  # fmt: skip
def test_steps_are_those_of_torch(start, gradients, lr, decay, betas, eps, clip) -> None:
    theirs = nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([theirs], lr=lr, weight_decay=decay, betas=betas, eps=eps)
    ours, moments = start.clone(), adamw.Moments.zeros_like(start)
    settings = Optimizer(name="adamw", clip_norm=clip, betas=betas, eps=eps)
    for g in gradients:
        theirs.grad = g.clone()
        if clip is not None:
            nn.utils.clip_grad_norm_([theirs], clip)
        optimizer.step()
        adamw.step(ours, g, moments, Correction(), settings, lr, decay)
    torch.testing.assert_close(ours, theirs.data, rtol=1e-12, atol=1e-12)


def test_clients_of_a_stack_have_the_steps_that_they_have_alone() -> None:
    """Each with its own rate, decay and number of steps; one without a batch stays, whatever its gradient is."""
    w, settings = normal(3, 7, seed=0), Optimizer(name="adamw", clip_norm=0.5)
    correction = Correction(quadratic=0.3, linear=normal(3, 7, seed=1))
    rates = torch.tensor([[0.1, 0.2, 0.0], [0.0, 0.2, 0.3], [0.1, 0.0, 0.3]], dtype=torch.float64)
    decays = torch.tensor([0.0, 0.1, 0.2], dtype=torch.float64)
    alone = [(row.clone(), adamw.Moments.zeros_like(row)) for row in w]
    moments = adamw.Moments.zeros_like(w)
    for i, rate in enumerate(rates):
        g = normal(3, 7, seed=2 + i)
        before = w.clone()
        for k, (row, own) in enumerate(alone):
            if rate[k] == 0:
                continue
            assert correction.linear is not None
            one = Correction(quadratic=0.3, linear=correction.linear[k])
            adamw.step(row, g[k], own, one, settings, float(rate[k]), float(decays[k]))
        g[rate == 0] = torch.nan
        adamw.step(w, g, moments, correction, settings, rate, decays)
        assert torch.equal(w[rate == 0], before[rate == 0])
    assert moments.steps.tolist() == [2, 2, 2]
    for k, (row, own) in enumerate(alone):
        close(w[k], row)
        close(moments.square[k], own.square)


def by_hand(config: Config, mu: float = 0.0) -> Tensor:
    """The model after one round, by torch.optim.AdamW on modules, and the weighted mean of their parameters."""
    context = prepare(config)
    total, parts = 0, []
    for task in client_tasks(context.experiment, 0):
        module, start = linear(), [p.detach().clone() for p in linear().parameters()]
        o = config.optimizer
        optimizer = torch.optim.AdamW(
            module.parameters(), lr=o.lr, weight_decay=o.weight_decay, betas=o.betas, eps=o.eps
        )
        samples = LocalSamples(config, context.experiment.data, 0, task.client, context.initial)
        for _ in range(task.epochs):
            for rows in samples.order().split(config.batch_size):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(module(samples.inputs[rows]), samples.targets[rows])
                pull = sum(((p - s) ** 2).sum() for p, s in zip(module.parameters(), start, strict=True))
                (loss + mu / 2 * pull).backward()
                if o.clip_norm:
                    nn.utils.clip_grad_norm_(module.parameters(), o.clip_norm)
                optimizer.step()
        n = SIZES[task.client]
        parts.append(n * nn.utils.parameters_to_vector(module.parameters()).detach())
        total += n
    return torch.stack(parts).sum(0) / total


@pytest.mark.parametrize("clip", [None, 1.5])
@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_a_round_by_hand(executor: str, method: str, clip: float | None) -> None:
    """With stragglers and last batches that are smaller."""
    config = settings(
        executor=executor, method=method, method_args={"mu": 0.4} if method == "fedprox" else {}, local_epochs=3,
        optimizer={**ADAMW, "clip_norm": clip}, failures={"stragglers": 0.5}, participation=0.8,
    )  # fmt: skip
    epochs = [task.epochs for task in client_tasks(prepare(config).experiment, 0)]
    assert min(epochs) < max(epochs)
    close(advance(prepare(config), 1)[0].sel, by_hand(config, mu=0.4 if method == "fedprox" else 0.0))


@pytest.mark.parametrize("method", ["fedavg+asd", "feddyn", "fedsam+asd", "fedlc", "fedspeed"])
def test_stacked_is_serial(method: str) -> None:
    config = settings(method=method, optimizer=ADAMW, participation=1.0)
    one, many = (outcome(config.replace(executor=executor)) for executor in ("serial", "stacked"))
    close(many.cloud, one.cloud)
    sgd = outcome(config.replace(executor="serial", optimizer={"name": "sgd"}))
    assert (sgd.cloud - one.cloud).abs().max() > 1e-3


def test_the_whole_client_op_leaves_it_to_the_stack() -> None:
    context = prepare(settings(optimizer=ADAMW, executor="stacked"))
    assert context.chain is None
    assert "adamw" in str(layers_of_chain(context.experiment, context.trainer.model))


def test_workers_and_a_resumed_run_have_the_same_bits(tmp_path: Path) -> None:
    optimizer = {"name": "adamw", "lr": 0.01}
    whole = small_config(optimizer=optimizer, rounds=4, method="fedavg+asd", out=str(tmp_path / "whole"))
    simulate(whole)
    simulate(whole.replace(rounds=3, out=str(tmp_path / "cut")))
    resume(tmp_path / "cut", {"rounds": 4})
    simulate(whole.replace(executor="processes", workers=2, out=str(tmp_path / "workers")))
    expected = contents(tmp_path / "whole")
    for name in ("cut", "workers"):
        assert contents(tmp_path / name) == expected


def test_a_configuration_saved_before_has_sgd() -> None:
    values = settings().to_dict()
    for name in ("name", "betas", "eps"):
        del values["optimizer"][name]
    assert from_saved(values).optimizer.name == "sgd"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(optimizer={"name": "adamw", "momentum": 0.9}), r"momentum = 0.9; expected 0 with adamw"),
        (dict(optimizer={"name": "adam"}), "optimizer.name = 'adam'"),
        (dict(optimizer={"betas": [0.9]}), r"optimizer.betas = \[0.9\]; expected two numbers"),
        (dict(optimizer={"betas": [0.9, 1.0]}), "optimizer.betas"),
        (dict(optimizer={"eps": 0.0}), "optimizer.eps = 0.0; expected a positive number"),
        (dict(optimizer={"name": "adamw"}, method="scaffold"), "right for SGD only"),
        (dict(optimizer={"name": "adamw"}, method="fednova"), "right for SGD only"),
        (dict(optimizer={"name": "adamw"}, device="cuda", cuda_graph=True), "steps are not recorded; set cuda_graph"),
    ],
)
def test_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(changes)
