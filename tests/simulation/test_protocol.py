"""Order of samples, failures, and randomness that leaves no trace."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedasd_fast.simulation import ClientError, Interrupted, sampling, simulate
from fedasd_fast.simulation.cohort import client_tasks
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.inputs import Inputs
from tests.algorithms.problem import (
    CLASSES,
    FEATURES,
    SIZES,
    Clients,
    advance,
    linear,
    outcome,
    prepare,
    same,
    settings,
    skewed,
)


class Noting(nn.Module):
    """The first feature is a sample's number, which the model only notes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear(FEATURES)
        self.batches: list[list[int]] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.batches.append(x[:, 0].int().tolist())
        return self.layer(x[:, 1:])


def numbered() -> Clients:
    """Sample i of client k has the number 100 k + i."""
    data, samples = skewed(), []
    for k in range(len(SIZES)):
        own = data.client(k)
        number = torch.arange(len(own)).double()[:, None] + 100 * k
        samples.append((torch.cat([number, own.inputs], 1), own.targets))
    return Clients(samples)


def batches(**changes: Any) -> list[list[int]]:
    context = prepare(settings(**changes), numbered(), Noting())
    advance(context)
    return context.trainer.model.module.batches  # type: ignore[no-any-return]


def orders(found: list[list[int]]) -> list[list[int]]:
    """The order of samples of each epoch, batches joined."""
    result: list[list[int]] = []
    for batch in found:
        k = batch[0] // 100
        if not result or result[-1][0] // 100 != k or len(result[-1]) == SIZES[k]:
            result.append([])
        result[-1] += batch
    return result


def test_every_epoch_goes_through_every_sample_once() -> None:
    found = batches(participation=1.0, rounds=1)
    assert [len(b) for b in found[:6]] == [3, 3, 1] * 2  # client 0 has 7 samples; the last batch is smaller
    for order in orders(found):
        k = order[0] // 100
        assert sorted(order) == list(range(100 * k, 100 * k + SIZES[k]))
    assert len(orders(found)) == 2 * len(SIZES)


def test_orders_differ_between_epochs_rounds_and_clients() -> None:
    found = orders(batches(participation=1.0, rounds=2, clients=5))
    positions = [tuple(i % 100 for i in order if i % 100 < 4) for order in found]  # the first four samples' order
    per_client = [tuple(found[j]) for j in (4, 5, 14, 15)]  # client 2: two epochs, two rounds
    assert len(set(per_client)) == 4
    assert len(set(positions[::2][:5])) > 1  # not the same order for all clients


def test_orders_depend_on_seed_round_and_client_only() -> None:
    """Not on who else took part, nor on the method, nor on augmentation or the teacher."""
    everyone = orders(batches(participation=1.0, rounds=3))
    base = orders(batches())
    assert 0 < len(base) < len(everyone)
    assert all(order in everyone for order in base)
    assert orders(batches(method="feddyn+asd")) == base
    assert orders(batches(method="fedavg+asd", teacher="recompute")) == base
    assert not any(order in everyone for order in orders(batches(seed=6)) if len(order) > 4)


def test_sam_shows_each_batch_twice() -> None:
    found = batches(method="fedsam", participation=1.0, rounds=1)
    assert found[::2] == found[1::2]
    assert orders(found[::2]) == orders(batches(participation=1.0, rounds=1))


@pytest.mark.parametrize("method", ["fedavg+asd", "feddyn+asd"])
def test_global_generators_are_left_alone(method: str) -> None:
    def states() -> list[Any]:
        return [torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()]  # noqa: NPY002

    module = nn.Sequential(linear(), nn.Dropout(0.5))
    before = states()
    simulate(settings(method=method, failures=dict(dropout=0.3), rounds=2), data=skewed(), model=module)
    assert states() == before


def test_the_same_seed_gives_the_same_bits_whatever_ran_before() -> None:
    def run(seed: int) -> Any:
        module = nn.Sequential(linear(), nn.Dropout(0.3))
        return outcome(settings(method="fedavg+asd", sampling="bernoulli", seed=seed), module=module)

    first = run(5)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        torch.rand(1000)
        other = run(6)
        again = run(5)
    assert same(first, again)
    assert not same(first, other)


def test_clients_train_in_training_mode_also_after_an_evaluation() -> None:
    def run(eval_every: int) -> Tensor:
        module = nn.Sequential(linear(), nn.Dropout(0.5))
        return simulate(settings(eval_every=eval_every), data=skewed(), model=module).models["cloud"]

    assert torch.equal(run(1), run(3))


def test_dropout_masks_differ_between_clients_and_rounds() -> None:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()
            self.draws: list[float] = []

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.draws.append(torch.rand(1).item())
            return self.layer(x)

    context = prepare(settings(participation=1.0, rounds=2), module=Drawing())
    _, rows = advance(context)
    draws = context.trainer.model.module.draws
    assert len(set(draws)) == len(draws) == sum(row["steps"] for row in rows)


def test_dropout_masks_do_not_depend_on_the_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    def upload_of_4(members: list[int]) -> Tensor:
        monkeypatch.setattr(sampling, "participants", lambda *_: np.array(members))
        context = prepare(settings(), module=nn.Sequential(linear(), nn.Dropout(0.5)))
        advance(context, 1)
        record = context.records.read(4)
        assert record is not None
        return record["upload"].clone()

    assert torch.equal(upload_of_4([4]), upload_of_4([0, 1, 4]))


def test_a_model_may_be_used_for_two_simulations() -> None:
    """Comparing two methods from the same start must not continue the first one's training."""
    module = linear()
    first, second = (simulate(settings(), data=skewed(), model=module).models["cloud"] for _ in range(2))
    assert torch.equal(first, second)


def test_metrics_of_a_round() -> None:
    """The loss is the mean over all steps: clients with more of them count more."""
    config = settings(method="feddyn", participation=1.0, failures=dict(stragglers=0.5))
    first, _ = advance(prepare(config), 1)
    context = prepare(config)
    train, losses = context.trainer.train, []

    def listening(*arguments: Any) -> Any:
        run = train(*arguments)
        losses.append(run.losses)
        return run

    context.trainer.train = listening  # type: ignore[method-assign]
    second, rows = advance(context, 2)
    last = losses[len(SIZES) :]
    assert len({len(x) for x in last}) > 1
    assert rows[1]["round"] == 2
    assert rows[1]["loss"] == pytest.approx(torch.cat(last).mean().item(), rel=1e-14)
    assert rows[1]["steps"] == sum(len(x) for x in last)
    uploads = [context.records.read(k)["upload"] for k in range(len(SIZES))]  # type: ignore[index]
    distance = np.mean([(upload - first.cloud).norm().item() for upload in uploads])
    assert rows[1]["client_distance"] == pytest.approx(distance, rel=1e-14)
    assert rows[1]["drift"] == pytest.approx((second.cloud - first.cloud).norm().item(), rel=1e-14)


# Failures


def test_the_weights_are_those_of_the_survivors() -> None:
    context = prepare(settings(failures=dict(dropout=0.5), participation=1.0))
    final, rows = advance(context, 1)
    survivors = [k for k in range(len(SIZES)) if context.records.read(k)]
    assert 0 < len(survivors) < len(SIZES)
    assert rows[0]["client_updates"] == len(survivors)
    total = sum(SIZES[k] for k in survivors)
    expected = sum(SIZES[k] / total * context.records.read(k)["upload"] for k in survivors)  # type: ignore[index]
    torch.testing.assert_close(final.cloud, expected, rtol=0, atol=1e-13)


def test_stragglers_train_less_and_count_in_full() -> None:
    config = settings(failures=dict(stragglers=0.5), participation=1.0, local_epochs=4)
    context = prepare(config)
    final, rows = advance(context, 1)
    epochs = sampling.local_epochs(config, 0, np.arange(len(SIZES))).tolist()
    assert min(epochs) < 4 == max(epochs)
    assert rows[0]["samples"] == sum(e * n for e, n in zip(epochs, SIZES, strict=True))
    assert rows[0]["steps"] == sum(e * -(-n // 3) for e, n in zip(epochs, SIZES, strict=True))
    ends = torch.stack([context.records.read(k)["upload"] for k in range(len(SIZES))])  # type: ignore[index]
    expected = (torch.tensor(SIZES).double()[:, None] * ends).sum(0) / sum(SIZES)
    torch.testing.assert_close(final.cloud, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("method", ["fedavg", "feddyn"])
def test_a_round_that_everyone_leaves_changes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(method=method, rounds=4)
    before = advance(prepare(config), 2)[0]
    usual = sampling.local_epochs
    monkeypatch.setattr(sampling, "local_epochs", lambda c, t, k: 0 * k if t >= 2 else usual(c, t, k))
    context = prepare(config)
    after, rows = advance(context)
    assert same(before, after)
    assert after.round == 4
    assert [row["client_updates"] for row in rows] == [3, 3, 0, 0]
    assert all(torch.equal(after.server[name], before.server[name]) for name in after.server)


def with_a_bad_client(bad: int, value: float) -> Clients:
    data = skewed()
    samples = [(data.client(k).inputs.clone(), data.client(k).targets.clone()) for k in range(len(SIZES))]
    x, y = samples[bad]
    x[:2, 0] = value
    y[:2] = torch.tensor([0, 1])  # whatever the model makes of such inputs, it is wrong about one
    return Clients(samples)


BAD = [float("nan"), float("inf"), 1e300]  # 1e300: the loss is finite, what comes of it is not


@pytest.mark.parametrize("value", BAD)
def test_a_failing_client_stops_the_run(value: float) -> None:
    config = settings(participation=1.0, optimizer=dict(clip_norm=None))
    context = prepare(config, with_a_bad_client(2, value))
    with pytest.raises(ClientError, match="client 2 failed in round 1 at local step") as caught:
        advance(context)
    assert (caught.value.client, caught.value.round) == (2, 0)


@pytest.mark.parametrize(("method", "vector"), [("fedavg", "model"), ("scaffold", "c")])
def test_divergence_is_an_error_while_the_loss_is_still_finite(method: str, vector: str) -> None:
    """One step: of a size that no sum can take, or small enough for the model but not for what it divides by lr."""
    config = settings(
        method=method,
        participation=1.0,
        local_epochs=1,
        batch_size=9,
        optimizer=dict(lr=0.2 if vector == "model" else 1e-3),
    )
    context = prepare(config, with_a_bad_client(2, 1e7))
    with pytest.raises(ClientError, match=f"client 2 .* diverged: the largest entry of its {vector} is"):
        advance(context)
    assert context.records.read(2) is None


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("method", ["fedavg", "fedprox+asd", "feddyn", "scaffold+asd"])
def test_a_dropped_client_is_as_if_it_had_not_been_sampled(
    method: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(method=method, participation=1.0, on_client_error="drop")
    context = prepare(config, with_a_bad_client(2, value))
    dropped, rows = advance(context)
    monkeypatch.setattr(sampling, "participants", lambda *_: np.array([0, 1, 3, 4]))
    other = prepare(config)
    without, _ = advance(other)
    for name in ("all", "sel", "cloud"):
        torch.testing.assert_close(dropped.model(name), without.model(name), rtol=0, atol=1e-12)
    for name, vector in dropped.server.items():
        torch.testing.assert_close(vector, without.server[name], rtol=0, atol=1e-12)
    for row in rows:
        assert list(row["failed"]) == ["2"]
        assert row["client_updates"] == 4
        assert np.isfinite(row["loss"])
    assert context.records.read(2) is None


def test_the_weights_of_feddisco_are_scaled_up_without_the_dropped_client() -> None:
    """They are fixed before training, with the labels of all participants."""
    config = settings(method="feddisco", participation=1.0, on_client_error="drop")
    context = prepare(config, with_a_bad_client(2, float("nan")))
    weights = {task.client: task.weight for task in client_tasks(context.experiment, 0)}
    final, _ = advance(context, 1)
    assert sum(weights.values()) == pytest.approx(1, abs=1e-15)
    left = 1 - weights.pop(2)
    expected = sum(w / left * context.records.read(k)["upload"] for k, w in weights.items())  # type: ignore[index]
    torch.testing.assert_close(final.cloud, expected, rtol=0, atol=1e-12)


def test_when_all_fail_the_model_stays() -> None:
    data = skewed()
    nothing = Clients([(data.client(k).inputs * float("nan"), data.client(k).targets) for k in range(len(SIZES))])
    context = prepare(settings(on_client_error="drop"), nothing)
    final, rows = advance(context)
    assert torch.equal(final.cloud, context.initial)
    assert all(row["client_updates"] == 0 and len(row["failed"]) == 3 for row in rows)


def test_the_survivors_of_feddisco_may_all_have_weight_0() -> None:
    """The one client that counted is dropped: the others must not be divided by nothing."""
    x = torch.randn(4, FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    even, one_class = torch.arange(CLASSES), torch.zeros(4, dtype=torch.int64)
    data = Clients([(x * float("nan"), even), (x, one_class), (x + 1, one_class)])
    config = settings(
        method="feddisco", method_args=dict(a=5.0, b=0.0), clients=3, participation=1.0, on_client_error="drop"
    )
    final, _ = advance(prepare(config, data), 1)
    assert final.cloud.isfinite().all()


def test_an_infinite_loss_is_an_error_even_if_its_gradient_is_not() -> None:
    class Sure(nn.Module):
        """Never of class 0, by a margin that no float can hold."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + torch.tensor([-1.5e308, 1.5e308, 1.5e308, 1.5e308], dtype=torch.float64)

    context = prepare(settings(participation=1.0), module=Sure())
    with pytest.raises(ClientError, match=r"client . failed in round 1 at local step .: the loss is inf"):
        advance(context)


def test_a_stop_is_noticed_between_steps_and_is_nobodys_fault() -> None:
    answers = iter([False] * 4 + [True])
    config = settings(participation=1.0, on_client_error="drop")
    context = build_context(config, Inputs(skewed(), linear()), stop=lambda: next(answers))
    with pytest.raises(Interrupted):
        advance(context)
    assert context.records.read(0) is None


def test_an_exception_names_the_client_and_leaves_no_trace() -> None:
    class Breaking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x: Tensor) -> Tensor:
            if self.training and len(x) == 1:  # the last batch of the first client
                raise ArithmeticError("one sample is too few")
            return self.layer(x)

    context = prepare(settings(participation=1.0), module=Breaking())
    with pytest.raises(ClientError, match="client 0 failed in round 1 at local step 3: ArithmeticError: one sample"):
        advance(context)
    assert context.records.read(0) is None
    assert context.records.read(1) is None
