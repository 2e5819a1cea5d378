from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedasd_fast.algorithms import Distillation
from fedasd_fast.analysis import dissimilarity as module_under_test
from fedasd_fast.analysis.assumptions import class_gradients, gradient_correlation, label_ratios
from fedasd_fast.analysis.dissimilarity import dissimilarity, distillation_term, draw_clients, gradients, next_round
from fedasd_fast.analysis.dissimilarity_ratio import DissimilarityRatio, GradientMoments, Parabola, population_estimate
from fedasd_fast.analysis.loaded_run import LoadedRun, load_run
from fedasd_fast.analysis.plots.dissimilarity import dissimilarity_figure
from fedasd_fast.data.federated import Dataset, PartitionedData, Samples
from fedasd_fast.loss import reference
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.client.flat_model import FlatModel
from fedasd_fast.simulation.errors import SimulationError
from fedasd_fast.simulation.state import from_plain
from fedasd_fast.simulation.storage import checkpoint

from ..simulation.small_runs import files, small_config


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def ratio_of(*clients: tuple[Tensor, Tensor]) -> DissimilarityRatio:
    moments = GradientMoments(clients[0][0])
    for ce, asd in clients:
        moments.add(ce, asd)
    return moments.ratio()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    out = tmp_path_factory.mktemp("run") / "r"
    simulate(small_config(dtype="float64", method="fedavg+asd", rounds=4, model_args={"hidden": [6]}, out=str(out)))
    return load_run(out)


def test_identical_clients_have_a_dissimilarity_of_one() -> None:
    same = vector(1, -2, 3), vector(0.5, 4, -1)
    ratio = ratio_of(same, same, same)
    assert [ratio(x) for x in (0, 1, 30)] == pytest.approx([1, 1, 1])
    assert ratio.limit == pytest.approx(1)
    assert ratio.slope(2.0) == pytest.approx(0)


def test_two_clients_by_hand() -> None:
    """c = (2, 0), (0, 2); a = (1, 1) for both.

    Above: ((2+l)^2 + l^2 + l^2 + (2+l)^2) / 2 = 2 l^2 + 4 l + 4.  Below: |(1+l, 1+l)|^2 = 2 l^2 + 4 l + 2.
    """
    ratio = ratio_of((vector(2, 0), vector(1, 1)), (vector(0, 2), vector(1, 1)))
    assert ratio == DissimilarityRatio(Parabola(2, 4, 4), Parabola(2, 4, 2))
    assert [ratio(x) for x in (0, 1, 3)] == pytest.approx([2, 10 / 8, 34 / 32])
    assert ratio.limit == 1
    assert ratio.lambda_c == 0  # 2 lambda^2 + 4 lambda > 0
    assert ratio.best is None  # 1 + 1 / (1 + lambda)^2 falls without end
    assert ratio.slope(1.0) == pytest.approx(-2 / 8)


def test_a_term_against_the_gradient_helps_from_some_lambda_on_only() -> None:
    """c = (2, 0), (0, 2); a = (-1, -1): with m = -l this is the case above, G_d = 1 + 1 / (1 - l)^2.

    It is not defined at 1, has its old value again at 2 = |b| / a, the paper's lambda_c, and falls from there.
    """
    ratio = ratio_of((vector(2, 0), vector(-1, -1)), (vector(0, 2), vector(-1, -1)))
    assert ratio(1.0) is None
    assert ratio.slope(1.0) is None
    assert ratio(2.0) == pytest.approx(2)
    assert ratio.lambda_c == pytest.approx(2)
    assert ratio(2.5) == pytest.approx(1 + 1 / 2.25)
    assert ratio.slope(2.5) == pytest.approx(-2 / 1.5**3)


def test_a_term_that_disagrees_more_than_the_loss_never_helps() -> None:
    """c = (1, 1) for both, a = (1, 0), (-1, 0.5): the limit is (1 + 1.25) / 2 / |(0, 0.25)|^2 = 18."""
    ratio = ratio_of((vector(1, 1), vector(1, 0)), (vector(1, 1), vector(-1, 0.5)))
    assert ratio(0.0) == 1
    assert ratio.limit == pytest.approx(18)
    assert ratio.lambda_c is None
    assert ratio.best == 0


def test_gradients_that_cancel_leave_it_undefined() -> None:
    ratio = ratio_of((vector(1, 0), vector(0, 1)), (vector(-1, 0), vector(0, -1)))
    assert [ratio(0.0), ratio.slope(1.0), ratio.limit, ratio.lambda_c, ratio.best] == [None] * 5


def test_the_lowest_place_between_zero_and_the_limit_is_found() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        clients = [(vector(*rng.normal(size=4)), vector(*rng.normal(size=4))) for _ in range(3)]
        ratio = ratio_of(*clients)
        values = [value for x in np.linspace(0, 50, 2001) if (value := ratio(float(x))) is not None]
        assert min(values) >= 1 - 1e-12  # Jensen
        lowest = ratio.limit if ratio.best is None else ratio(ratio.best)
        assert lowest is not None
        assert lowest <= min(values) + 1e-9
        at = 0.7
        by_definition = sum(float((c + at * a).square().sum()) for c, a in clients) / 3
        by_definition /= float((sum(c + at * a for c, a in clients) / 3).square().sum())  # type: ignore[union-attr]
        assert ratio(at) == pytest.approx(by_definition)


def test_some_clients_tell_about_all_without_bias() -> None:
    """Over all ways to draw three of five, the mean of numerators and of denominators is that of the five."""
    rng = np.random.default_rng(1)
    clients = [(vector(*rng.normal(2, 1, size=4)), vector(*rng.normal(size=4))) for _ in range(5)]
    exact, at, below = ratio_of(*clients), 0.4, []
    for three in combinations(clients, 3):
        ratio = ratio_of(*three)
        estimate = population_estimate(ratio, at, 3, 5)
        assert estimate is not None
        assert estimate >= (ratio(at) or math.inf)
        below.append(ratio.above(at) / estimate)
    assert np.mean(below) == pytest.approx(exact.below(at))
    assert population_estimate(exact, at, 5, 5) == exact(at)
    assert population_estimate(ratio_of(clients[0]), at, 1, 5) is None
    opposite = ratio_of((vector(1, 0), vector(0, 0)), (vector(-0.9, 0), vector(0, 0)))
    assert population_estimate(opposite, at, 2, 5) is None


@pytest.mark.parametrize("weighting", ["adaptive", "uniform"])
@pytest.mark.parametrize("batch_size", [3, 100])
def test_gradients_are_those_of_the_written_out_objective(weighting: str, batch_size: int) -> None:
    """Also in batches: alpha sum to one over all samples, not over a batch."""
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), torch.float64)
    student, teacher = (torch.randn(len(model), dtype=torch.float64) for _ in range(2))
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.tensor([0, 0, 0, 0, 0, 1, 1, 2])
    prior = vector(5 / 8, 2 / 8, 1 / 8)
    found = gradients(model, student, teacher, x, y, prior, Distillation(7.0, weighting=weighting), batch_size, True)

    def logits(parameters: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(model.module, model.views(parameters), (x,))
        return result

    leaf, t = student.clone().requires_grad_(), logits(teacher).detach()
    s, log_q = torch.softmax(t / 2, -1), torch.log_softmax(logits(leaf) / 2, -1)
    divergence = (s * (s.log() - log_q)).sum(-1)
    u = torch.softmax(t, -1)
    hat = torch.exp((u * u.log()).sum(-1)) / prior[y] if weighting == "adaptive" else torch.ones(8, dtype=torch.float64)
    (ce,) = torch.autograd.grad(F.cross_entropy(logits(leaf), y), leaf)
    (asd,) = torch.autograd.grad((hat / hat.sum() * divergence).sum(), leaf, retain_graph=True)
    (unnormalised,) = torch.autograd.grad((hat * divergence).mean(), leaf, retain_graph=True)
    (uniform,) = torch.autograd.grad(divergence.mean(), leaf)
    torch.testing.assert_close(found.ce, ce)
    torch.testing.assert_close(found.asd, asd)
    torch.testing.assert_close(found.factor * found.asd, unnormalised)
    torch.testing.assert_close(found.uniform, uniform)


def test_at_the_teacher_itself_lambda_does_not_matter(run: LoadedRun) -> None:
    data, at = run.context.experiment.data, run.state.cloud
    local = data.client(0)
    prior = torch.bincount(local.targets, minlength=data.num_classes) / len(local)
    found = gradients(
        run.context.trainer.model,
        at,
        at,
        local.inputs.double(),
        local.targets,
        prior.double(),
        distillation_term(run),
        50,
    )
    assert float(found.asd.abs().max()) < 1e-12
    assert float(found.ce.norm()) > 1e-3
    assert found.uniform is None


def test_the_next_round_is_the_one_that_the_run_would_have_made(tmp_path: Path) -> None:
    """For a method with client and server state; nothing that is kept changes."""
    simulate(small_config(method="feddyn+asd", rounds=4, out=str(tmp_path / "four")))
    simulate(small_config(method="feddyn+asd", rounds=5, out=str(tmp_path / "five")))
    before, run = files(tmp_path / "four"), load_run(tmp_path / "four")
    records = {k: run.context.records.read(k) for k in range(12)}
    start, end = next_round(run)
    kept = checkpoint.load(tmp_path / "five" / "checkpoint")
    assert torch.equal(end, from_plain(kept[0]["state"], end.device).cloud)
    assert torch.equal(start, run.state.cloud)
    assert torch.equal(next_round(run)[1], end)
    assert before == files(tmp_path / "four")
    for k, record in records.items():
        now = run.context.records.read(k)
        assert (record is None) == (now is None)
        assert record is None or all(torch.equal(record[name], now[name]) for name in record)  # type: ignore[index]


def test_a_run_is_measured_as_defined(run: LoadedRun) -> None:
    found = dissimilarity(run, lambdas=(0.0, 5.0), samples=100)
    assert (found.round, found.clients, found.population, found.weight) == (5, 12, 12, 2.0)
    assert found.lambdas == (0.0, 2.0, 5.0)
    start, end = next_round(run)
    data, flat = run.context.experiment.data, run.context.trainer.model
    assert found.uniform is not None
    both = [(found.normalised.values, "adaptive"), (found.uniform.values, "uniform")]
    for at, value, weighting in ((x, v, w) for values, w in both for x, v in zip(found.lambdas, values, strict=True)):
        leaves = []
        for k in range(12):
            local = data.client(k)
            x = local.inputs.double()
            prior = torch.bincount(local.targets, minlength=data.num_classes) / len(local)
            leaf = end.clone().requires_grad_()
            student, teacher = (torch.func.functional_call(flat.module, flat.views(w), (x,)) for w in (leaf, start))
            loss = reference.asd_objective(
                student, teacher.detach(), local.targets, prior.double(), at, weighting=weighting
            )
            leaves.append(torch.autograd.grad(loss, leaf)[0])
        stacked = torch.stack(leaves)
        assert value == pytest.approx(float(stacked.square().sum(1).mean() / stacked.mean(0).square().sum()))
        assert value >= 1
    assert found.normalised.population == found.normalised.values
    assert found.to_dict()["normalised"]["values"] == list(found.normalised.values)
    assert "from lambda" in str(found) or "for no large lambda" in str(found)


def test_clients_with_the_same_samples_agree_whatever_lambda_is(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    samples = Samples(torch.randn(16, 12, generator=rng), torch.arange(16) % 5)
    data = PartitionedData(Dataset("same", samples, samples, 5), [np.arange(16)] * 12)
    simulate(small_config(method="fedavg+asd", rounds=2, out=str(tmp_path / "r")), data=data)
    found = dissimilarity(load_run(tmp_path / "r", data=data), samples=None)
    assert found.normalised.values == pytest.approx([1.0] * len(found.lambdas), abs=1e-6)
    assert found.unnormalised.values == pytest.approx([1.0] * len(found.lambdas), abs=1e-6)
    assert found.condition.label_ratio == pytest.approx(1)
    assert found.condition.support_ratio == pytest.approx(1)
    assert found.condition.classes == 5


def test_label_ratios_by_hand() -> None:
    """Shares (1, 0, 0) and (1/2, 1/2, 0): c_n = 2 (1 + 1/2) = 3, c_d = 1.5^2 + 0.5^2 = 2.5; supports: 2 (1 + 2) = 6
    and 2^2 + 1^2 = 5."""
    assert label_ratios(vector(1, 0, 0, 0.5, 0.5, 0).view(2, 3)) == pytest.approx((1.2, 1.2))
    assert label_ratios(vector(0.25, 0.75, 0.75, 0.25).view(2, 2)) == pytest.approx((2.5 / 2, 1.0))


def test_correlation_by_hand() -> None:
    """(3, 4) and (1, 0): cos = 3/5; products 3/25 and 3/1; norms 5 and 1."""
    found = gradient_correlation(vector(3, 4, -1, 0).view(2, 2))
    assert found.cosine == pytest.approx(0.6)
    assert found.product == pytest.approx((3 / 25 + 3) / 2)
    assert found.magnitudes == pytest.approx(5)
    assert gradient_correlation(vector(1, 2).view(1, 2)).cosine is None
    assert gradient_correlation(vector(1, 2, 0, 0).view(2, 2)).cosine is None  # a class without a gradient


def test_of_many_classes_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedasd_fast.analysis.assumptions._GRADIENT_MEMORY", 2 * 3 * 8 * 4)  # room for four
    seen: list[int] = []

    def gradient(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        assert len(set(y.tolist())) == 1
        seen.append(int(y[0]))
        return x[0], x[0]

    inputs, targets = torch.randn(20, 3, dtype=torch.float64), torch.arange(20) % 10
    assert class_gradients(inputs, targets, 12, 3, gradient, seed=0)[0] == 4
    first = list(seen)
    class_gradients(inputs, targets, 12, 3, gradient, seed=0)
    assert seen[4:] == first


def test_clients_are_drawn_with_a_seed() -> None:
    assert draw_clients(12, 0, 0) == list(range(12))
    assert draw_clients(12, 5, 1) == draw_clients(12, 5, 1) != draw_clients(12, 5, 2)
    assert len(set(draw_clients(12, 5, 1))) == 5
    assert len(draw_clients(10**6, 0, 0)) == module_under_test.MAX_CLIENTS
    for wrong in (-1, 13):
        with pytest.raises(SimulationError, match=f"dissimilarity.clients = {wrong}; expected 1 .. 12, or 0 for all"):
            draw_clients(12, wrong, 0)


def test_a_run_without_distillation_is_asked_what_asd_would_do(tmp_path: Path) -> None:
    simulate(small_config(rounds=2, out=str(tmp_path / "r")))
    found = dissimilarity(load_run(tmp_path / "r"), samples=50, clients=4, lambdas=(0.0, 2.0))
    assert (found.weight, found.clients) == (0.0, 4)
    assert found.normalised.values[0] != found.normalised.values[1]
    assert "no distillation" in str(found)


def test_bad_options_are_refused(run: LoadedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SimulationError, match=r"lambdas = \[-1.0\]; expected numbers of 0 or more"):
        dissimilarity(run, lambdas=(-1.0,))
    with pytest.raises(SimulationError, match="samples = 0; expected a positive number"):
        dissimilarity(run, samples=0)
    same = lambda context, executor, state: (state, {})  # noqa: E731
    monkeypatch.setattr(module_under_test, "run_round", same)
    with pytest.raises(SimulationError, match="left the model as it was"):
        dissimilarity(run)


def test_the_figure_shows_the_curve_and_the_runs_own_lambda(run: LoadedRun) -> None:
    result: dict[str, Any] = dissimilarity(run, samples=50).to_dict()
    figure = dissimilarity_figure([{**result, "label": "FedAvg+ASD"}])
    curve, uniform, dot, one = figure.axes[0].lines
    assert uniform.get_ydata()[-1] == pytest.approx(result["uniform"]["values"][-1])
    assert curve.get_ydata()[0] == pytest.approx(result["normalised"]["values"][0])
    assert list(dot.get_xdata()) == [2.0]
    assert list(one.get_ydata()) == [1, 1]
    assert math.isclose(curve.get_xdata()[-1], 30)
