"""`all`, `sel` and `cloud`: what they are made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedasd_fast.simulation import simulate
from tests.algorithms.problem import SIZES, advance, linear, prepare, same, settings, skewed

WEIGHTED = ["fedavg", "fedprox", "fedntd", "fedsam", "feddisco"]
ALIKE = ["feddyn", "fedspeed", "scaffold"]


def last_uploads(context: object) -> Tensor:
    records = [context.records.read(k) for k in range(len(SIZES))]  # type: ignore[attr-defined]
    return torch.stack([r["upload"] if r else context.initial for r in records])  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", WEIGHTED + ALIKE)
@pytest.mark.parametrize("rounds", [1, 12])
def test_all_is_the_mean_of_last_uploads(method: str, rounds: int) -> None:
    """Clients that were never sampled count with the initial model."""
    context = prepare(settings(method=method, participation=0.4, asd=dict(weight=0.5)))
    final, _ = advance(context, rounds)
    never = sum(context.records.read(k) is None for k in range(len(SIZES)))
    assert (never > 0) == (rounds == 1)
    shares = [n / sum(SIZES) for n in SIZES] if method in WEIGHTED else [1 / len(SIZES)] * len(SIZES)
    expected = (torch.tensor(shares, dtype=torch.float64)[:, None] * last_uploads(context)).sum(0)
    torch.testing.assert_close(final.model("all"), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["fedavg", "fedprox+asd", "fedsam", "feddisco", "scaffold"])
def test_training_continues_from_sel(method: str) -> None:
    final, _ = advance(prepare(settings(method=method)))
    assert torch.equal(final.sel, final.cloud)
    assert not torch.equal(final.sel, final.model("all"))


@pytest.mark.parametrize("method", ["feddyn", "fedspeed+asd"])
def test_the_cloud_is_sel_plus_mean_dual(method: str) -> None:
    context = prepare(settings(method=method))
    final, _ = advance(context)
    records = [context.records.read(k) for k in range(len(SIZES))]
    h = torch.stack([r["h"] if r else torch.zeros_like(context.initial) for r in records]).mean(0)
    torch.testing.assert_close(final.cloud, final.sel + h, rtol=0, atol=1e-12)
    torch.testing.assert_close(final.server["h"], h, rtol=0, atol=1e-12)


def test_everyone_sampled_makes_all_equal_to_sel() -> None:
    final, _ = advance(prepare(settings(participation=1.0)))
    torch.testing.assert_close(final.model("all"), final.sel, rtol=0, atol=1e-12)


def test_without_all_nothing_is_stored_and_the_rest_stays() -> None:
    small = prepare(settings(eval_models=("sel", "cloud")))
    final, _ = advance(small)
    full, _ = advance(prepare(settings()))
    assert torch.equal(final.cloud, full.cloud)
    assert all(small.records.read(k) is None for k in range(len(SIZES)))
    with pytest.raises(ValueError, match="add `all` to eval_models"):
        final.model("all")


def test_accuracies_are_those_of_the_three_models() -> None:
    data = skewed()
    result = simulate(settings(method="feddyn", method_args={"alpha": 0.3}, rounds=2), data=data, model=linear())
    for name in ("all", "sel", "cloud"):
        module = result.module(name)
        logits = module(data.test.inputs)
        right = 100 * (logits.argmax(1) == data.test.targets).double().mean().item()
        assert result.metrics[-1][f"acc_{name}"] == pytest.approx(right, abs=1e-9)
        loss = torch.nn.functional.cross_entropy(logits, data.test.targets).item()
        assert result.metrics[-1][f"test_loss_{name}"] == pytest.approx(loss, rel=1e-12)
    losses = {result.metrics[-1][f"test_loss_{name}"] for name in ("all", "sel", "cloud")}
    assert len(losses) == 3


def test_float32_follows_float64() -> None:
    exact, rough = (advance(prepare(settings(dtype=dtype)))[0] for dtype in ("float64", "float32"))
    assert rough.cloud.dtype == torch.float32
    for name in ("all", "sel", "cloud"):
        torch.testing.assert_close(rough.model(name).double(), exact.model(name), rtol=0, atol=1e-5)
    assert not same(exact, rough)


def test_modules_of_a_result_are_separate() -> None:
    result = simulate(settings(participation=0.4), data=skewed(), model=linear())
    everybody, selected = result.module("all"), result.module("sel")
    weight = next(everybody.parameters()).detach().clone()
    assert not torch.equal(weight, next(selected.parameters()))
    next(selected.parameters()).data.zero_()
    assert torch.equal(next(everybody.parameters()), weight)
    assert torch.equal(next(result.module("all").parameters()), weight)
    assert not everybody.training
