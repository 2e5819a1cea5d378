"""The teacher: which model it is, what it sees, and when its outputs may be kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedasd_fast.common.randomness import Stream, generator
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.data.transform import augment as augmented
from fedasd_fast.simulation.context import Context
from tests.algorithms.problem import CLASSES, advance, outcome, prepare, settings, skewed

SHAPE = (1, 6, 6)


class Watched(nn.Module):
    """Notes what it is shown, in which mode and with which parameters."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.Linear(36, CLASSES)
        self.dropout = nn.Dropout(dropout)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer.reset_parameters()
        self.seen: list[tuple[bool, Tensor, Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((self.training, x.flatten(1).clone(), self.layer.weight.detach().clone()))
        return self.layer(self.dropout(x.flatten(1)))


def images(method: str = "fedavg+asd", **changes: Any) -> Any:
    return watch(settings(method=method, rounds=2, local_epochs=3, optimizer=dict(lr=0.02), **changes))


def watch(config: Config, dropout: float = 0.0) -> Context:
    context = prepare(config, skewed(shape=SHAPE), Watched(dropout))
    visits(context).clear()  # building it may show the model something, too
    return context


def visits(context: Any) -> list[tuple[bool, Tensor, Tensor]]:
    return context.trainer.model.module.seen  # type: ignore[no-any-return]


def rows(x: Tensor) -> set[tuple[float, ...]]:
    return {tuple(row) for row in x.tolist()}


@pytest.mark.parametrize("augment", ["none", "round"])
@pytest.mark.parametrize("method", ["fedavg+asd", "fedntd", "fedspeed+asd"])
def test_cached_and_recomputed_agree(augment: str, method: str) -> None:
    cached, recomputed = (advance(images(method=method, augment=augment, teacher=t))[0] for t in ("cache", "recompute"))
    for name in ("all", "sel", "cloud"):
        torch.testing.assert_close(cached.model(name), recomputed.model(name), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("teacher", "passes"), [("cache", 1), ("recompute", 3)])
def test_the_teacher_is_the_model_that_the_server_sent(teacher: str, passes: int) -> None:
    context = images(teacher=teacher, augment="round")
    advance(context, 1)
    sent = context.initial[: 36 * CLASSES].view(CLASSES, 36)
    evaluations = [weight for training, _, weight in visits(context) if not training]
    assert len(evaluations) == passes * 3  # of three clients
    assert all(torch.equal(weight, sent) for weight in evaluations)
    assert any(not torch.equal(weight, sent) for training, _, weight in visits(context) if training)


@pytest.mark.parametrize("method", ["feddyn+asd", "fedspeed+asd"])
def test_with_duals_the_teacher_is_the_cloud_model(method: str) -> None:
    context = images(method=method)
    after, _ = advance(context, 1)
    again = images(method=method)
    advance(again, 2)
    evaluations = [weight for training, _, weight in visits(again) if not training]
    assert torch.equal(evaluations[-1].flatten(), after.cloud[: 36 * CLASSES])
    assert not torch.equal(after.cloud, after.sel)


def epochs_of(context: Any) -> list[tuple[Tensor, Tensor]]:
    """(what the teacher saw, what the student saw) for each epoch."""
    result: list[tuple[Tensor, list[Tensor]]] = []
    for training, x, _ in visits(context):
        if training:
            result[-1][1].append(x)
        else:
            result.append((x, []))
    return [(taught, torch.cat(learnt)) for taught, learnt in result]


def test_recomputed_on_the_very_views() -> None:
    context = images(teacher="recompute", augment="epoch")
    advance(context, 1)
    epochs = epochs_of(context)
    assert len(epochs) == 3 * 3
    for taught, learnt in epochs:
        assert rows(taught) == rows(learnt)
    views = [rows(taught) for taught, _ in epochs[:3]]
    assert views[0] != views[1] != views[2] != views[0]


def test_cached_on_the_very_views_of_the_round() -> None:
    context = images(augment="round")
    advance(context, 1)
    epochs = epochs_of(context)
    assert len(epochs) == 3
    plain = {row for k in range(5) for row in rows(context.experiment.data.client(k).inputs.flatten(1))}
    for taught, learnt in epochs:
        assert rows(taught) == rows(learnt)
        assert not rows(taught) <= plain


def test_views_differ_between_rounds_and_not_without_augmentation() -> None:
    for augment, differ in (("round", True), ("none", False)):
        context = images(augment=augment, participation=1.0)
        advance(context, 2)
        epochs = epochs_of(context)
        assert len(epochs) == 10
        for k in range(5):
            assert (rows(epochs[k][0]) != rows(epochs[5 + k][0])) == differ


def test_views_are_a_function_of_seed_round_and_client() -> None:
    context = images(augment="round", participation=1.0)
    advance(context, 2)
    for i, (taught, _) in enumerate(epochs_of(context)):
        round, k = divmod(i, 5)
        views = augmented(context.experiment.data.client(k).inputs, generator(5, Stream.AUGMENT, round, k))
        assert torch.equal(taught, views.flatten(1))


def test_a_cache_of_other_views_is_refused_unless_asked_for_by_name() -> None:
    with pytest.raises(ConfigError, match="teacher = cache_approximate"):
        images(augment="epoch", teacher="cache")
    context = images(augment="epoch", teacher="cache_approximate")
    final, _ = advance(context)
    exact, _ = advance(images(augment="epoch", teacher="recompute"))
    assert (final.cloud - exact.cloud).abs().max() > 1e-6
    taught = next(x for training, x, _ in visits(context) if not training)
    data = context.experiment.data
    assert any(torch.equal(taught, data.client(k).inputs.flatten(1)) for k in range(5))  # without augmentation


def test_without_a_teacher_any_augmentation_will_do() -> None:
    settings(method="fedavg", augment="epoch", teacher="cache")
    settings(method="fedavg+asd", augment="epoch", teacher="cache", asd=dict(weight=0.0))


def test_augmentation_needs_images() -> None:
    with pytest.raises(ConfigError, match="no images"):
        prepare(settings(augment="round"))


def test_without_distillation_there_is_no_teacher() -> None:
    context = images(method="fedprox")
    advance(context)
    assert all(training for training, _, _ in visits(context))


@pytest.mark.parametrize("teacher", ["cache", "recompute"])
def test_the_teacher_does_not_drop_out_but_the_student_does(teacher: str) -> None:
    def run(dropout: float) -> Any:
        config = settings(method="fedavg+asd", rounds=2, teacher=teacher)
        context = watch(config, dropout)
        return advance(context)[0], context

    final, context = run(0.5)
    again, _ = run(0.5)
    without, _ = run(0.0)
    assert torch.equal(final.cloud, again.cloud)
    assert not torch.allclose(final.cloud, without.cloud, atol=1e-3)
    modes = [training for training, _, _ in visits(context)]
    assert True in modes
    assert False in modes


def test_dropout_masks_do_not_depend_on_the_teacher() -> None:
    """Recomputing costs more forward passes, which draw nothing."""
    finals = [
        outcome(settings(method="fedavg+asd", teacher=t), skewed(shape=SHAPE), Watched(0.5)).cloud
        for t in ("cache", "recompute")
    ]
    torch.testing.assert_close(*finals, rtol=0, atol=1e-12)
