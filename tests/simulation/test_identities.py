"""Methods that must agree with each other, and objectives whose gradient must be the step that is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedasd_fast.algorithms import Client, Server
from fedasd_fast.loss import reference
from fedasd_fast.simulation.context import Context
from fedasd_fast.simulation.system.threads import threads
from tests.algorithms.problem import CLASSES, SIZES, advance, outcome, prepare, same, settings, skewed


def run(method: str, asd_weight: float = 3.0, **arguments: Any) -> Any:
    return outcome(settings(method=method, method_args=arguments, asd=dict(weight=asd_weight)))


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "feddyn", "fedsam", "feddisco", "fedspeed", "scaffold"])
def test_asd_of_weight_0_is_the_base_method(method: str) -> None:
    assert same(run(f"{method}+asd", asd_weight=0.0), run(method))
    assert not same(run(f"{method}+asd", asd_weight=1e-3), run(method))


def test_fedntd_with_asd_of_weight_0_is_fedavg() -> None:
    """In the paper's FedNTD the weight of ASD is the weight of its own term: nothing is left of it."""
    assert same(run("fedntd+asd", asd_weight=0.0), run("fedavg"))
    assert not same(run("fedntd"), run("fedavg"))


def test_fedntd_is_its_asd_with_uniform_weights() -> None:
    uniform = settings(method="fedntd+asd", asd=dict(weighting="uniform"))
    assert same(outcome(uniform), run("fedntd"))
    assert not same(run("fedntd+asd"), run("fedntd"))


def test_official_fedntd_is_a_quarter_of_the_papers() -> None:
    """beta tau^2 against lambda, at temperature 2."""
    official = run("fedntd", variant="official", temperature=2.0, beta=0.75)
    assert same(official, run("fedntd", asd_weight=3.0))


@pytest.mark.parametrize("asd", ["", "+asd"])
def test_fedspeed_without_ascent_is_feddyn(asd: str) -> None:
    assert same(run(f"fedspeed{asd}", rho=0.0, alpha=0.2), run(f"feddyn{asd}", alpha=0.2))
    assert not same(run(f"fedspeed{asd}", alpha=0.2), run(f"feddyn{asd}", alpha=0.2))


@pytest.mark.parametrize("asd", ["", "+asd"])
def test_the_papers_fedspeed_is_feddyn(asd: str) -> None:
    assert same(run(f"fedspeed{asd}", variant="paper"), run(f"feddyn{asd}"))
    assert same(run(f"fedspeed{asd}", variant="official"), run(f"fedspeed{asd}", rho=0.1))
    assert same(run(f"fedspeed{asd}", variant="paper", rho=0.1), run(f"fedspeed{asd}"))  # a variant is only defaults


@pytest.mark.parametrize("asd", ["", "+asd"])
def test_fedsam_without_ascent_is_fedavg(asd: str) -> None:
    assert same(run(f"fedsam{asd}", rho=0.0), run(f"fedavg{asd}"))
    assert not same(run(f"fedsam{asd}"), run(f"fedavg{asd}"))


def test_fedprox_without_penalty_is_fedavg() -> None:
    torch.testing.assert_close(run("fedprox", mu=0.0).cloud, run("fedavg").cloud, rtol=0, atol=1e-14)


def test_fedprox_with_a_large_penalty_stays_near() -> None:
    start = prepare(settings()).initial
    near, far = ((run("fedprox", mu=mu).sel - start).norm() for mu in (4.0, 0.0))
    assert near < 0.7 * far


def test_feddisco_without_a_and_b_is_fedavg() -> None:
    disco = run("feddisco", a=0.0, b=0.0)
    torch.testing.assert_close(disco.cloud, run("fedavg").cloud, rtol=0, atol=1e-13)
    assert not torch.allclose(run("feddisco").cloud, run("fedavg").cloud, rtol=0, atol=1e-4)


def test_feddyn_without_alpha_is_not_fedavg() -> None:
    """h has no part in the gradient then, so clients train as in FedAvg; but the server still adds its mean."""
    fedavg, feddyn = (
        prepare(settings(method=m, method_args=a)) for m, a in (("fedavg", {}), ("feddyn", {"alpha": 0.0}))
    )
    after_fedavg, after_feddyn = advance(fedavg, 1)[0], advance(feddyn, 1)[0]
    records = {k: r for k in range(len(SIZES)) if (r := fedavg.records.read(k))}
    for k, record in records.items():
        torch.testing.assert_close(feddyn.records.read(k)["upload"], record["upload"], rtol=0, atol=1e-14)
    ends = torch.stack([r["upload"] for r in records.values()])
    expected = ends.mean(0) + (ends - feddyn.initial).sum(0) / len(SIZES)
    torch.testing.assert_close(after_feddyn.cloud, expected, rtol=0, atol=1e-13)
    assert (after_feddyn.cloud - after_fedavg.cloud).abs().max() > 0.01


def test_scaffold_starts_as_fedavg() -> None:
    """All control variates are 0 in the first round."""
    fedavg, scaffold = (prepare(settings(method=m)) for m in ("fedavg", "scaffold"))
    advance(fedavg, 1)
    advance(scaffold, 1)
    for k in range(len(SIZES)):
        if record := fedavg.records.read(k):
            torch.testing.assert_close(scaffold.records.read(k)["upload"], record["upload"], rtol=0, atol=1e-14)


def whole_batch(method: str, **changes: Any) -> Any:
    return settings(method=method, batch_size=max(SIZES), **changes)


@pytest.mark.parametrize("method", ["fedavg", "fedsam", "feddyn"])
def test_in_the_first_step_asd_does_nothing(method: str) -> None:
    """Student and teacher are the same: one batch and one epoch make ASD a no-op.  Two make it act."""
    one, two = (
        [outcome(whole_batch(method + asd, local_epochs=e, method_args={})).cloud for asd in ("", "+asd")]
        for e in (1, 2)
    )
    if method != "fedsam":  # there the second pass sees other parameters than the teacher's
        torch.testing.assert_close(*one, rtol=0, atol=1e-13)
    assert (two[0] - two[1]).abs().max() > 1e-4


def test_uniform_weights_are_not_the_adaptive_ones() -> None:
    uniform = outcome(settings(method="fedavg+asd", asd=dict(weighting="uniform")))
    assert (uniform.cloud - run("fedavg+asd").cloud).abs().max() > 1e-4


# The step against a numerical derivative of the client's objective.


def logits_of(context: Context, w: Tensor, x: Tensor) -> Tensor:
    with context.trainer.model.holding(w) as module, torch.no_grad():
        logits: Tensor = nn.Module.__call__(module, x)
        return logits


def derivative(f: Callable[[Tensor], Tensor], w: Tensor, step: float = 1e-5) -> Tensor:
    result = torch.zeros_like(w)
    for i in range(len(w)):
        e = torch.zeros_like(w)
        e[i] = step
        result[i] = (f(w + e) - f(w - e)) / (2 * step)
    return result


OBJECTIVES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    # w, w_t, the client's state, the server's state; alpha_k = 0.4 / relative size is put in below
    "fedavg": lambda w, start, own, server: w.new_zeros(()),
    "fedprox": lambda w, start, own, server: 0.5 * 0.4 * (w - start).square().sum(),
    "feddyn": lambda w, start, own, server: 0.4 / 0.8 * (w @ (own - start) + 0.5 * w @ w),
    "scaffold": lambda w, start, own, server: w @ (server - own),
}


@pytest.mark.parametrize("asd", ["", "+asd"])
@pytest.mark.parametrize("method", OBJECTIVES)
def test_a_step_follows_the_gradient_of_the_whole_objective(method: str, asd: str) -> None:
    """No penalty may be a constant in disguise."""
    arguments = {"fedprox": {"mu": 0.4}, "feddyn": {"alpha": 0.4}}.get(method, {})
    config = whole_batch(method + asd, method_args=arguments, optimizer=dict(weight_decay=0.0))
    data = skewed()
    context = prepare(config, data)
    samples, k = data.client(2), 2
    random = torch.Generator().manual_seed(0)
    own, other = torch.randn(2, len(context.initial), generator=random, dtype=torch.float64)
    start = context.initial.clone()
    server = Server(0, 0.2, start, {"c": other, "h": other}, len(SIZES))
    client = Client(k, 0.8, {"c": own, "h": own})

    def end(epochs: int) -> Tensor:
        correction = context.experiment.method.correction(server, client)
        return context.trainer.train(server, client, correction, epochs, []).end.clone()

    shares = torch.bincount(samples.targets, minlength=CLASSES).double() / len(samples)
    teacher = logits_of(context, start, samples.inputs)

    def objective(w: Tensor) -> Tensor:
        z = logits_of(context, w, samples.inputs)
        value = F.cross_entropy(z, samples.targets) + OBJECTIVES[method](w, start, own, other)
        return value + 3.0 * reference.asd_loss(z, teacher, samples.targets, shares) if asd else value

    with threads(1):
        first, second = end(1), end(2)
        for before, after in ((start, first), (first, second)):
            applied = (before - after) / server.lr
            torch.testing.assert_close(applied, derivative(objective, before), rtol=0, atol=1e-8)
