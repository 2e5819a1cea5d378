"""Against exact values: a quadratic whose spectrum is known, and a small model whose whole Hessian is computed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedasd_fast.analysis.hessian import hessian, paper_numbers
from fedasd_fast.analysis.loaded_run import LoadedRun, load_run
from fedasd_fast.analysis.plots.hessian import hessian_figure
from fedasd_fast.analysis.selection import training_samples
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.presets import load
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.client.flat_model import FlatModel, channels_last
from fedasd_fast.simulation.errors import SimulationError

from ..simulation.small_runs import small_config

pytest.importorskip("curvlinops")
from fedasd_fast.analysis.spectrum import (
    CountedBatches,
    estimate_density,
    estimate_trace,
    hessian_operator,
    shifted,
    spectrum,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    out = tmp_path_factory.mktemp("run") / "r"
    simulate(small_config(dtype="float64", rounds=4, model_args={"hidden": [6]}, out=str(out)))
    return load_run(out)


def exact_hessian(run: LoadedRun, model: str, x: Tensor, y: Tensor) -> Tensor:
    """The Hessian itself, by torch.func: another way than that of the operator."""
    flat = run.context.trainer.model

    def loss(vector: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(flat.module, flat.views(vector), (x,)), y)

    matrix: Tensor = torch.func.hessian(loss)(run.model(model))
    return matrix


def quadratic_operator(eigenvalues: list[float]) -> Any:
    """sum_i e_i w_i^2 / 2 as least squares: rows sqrt(e_i / 2) of a linear model, summed, have the Hessian diag(e)."""
    rows = torch.tensor(eigenvalues, dtype=torch.float64).div(2).sqrt().diag()
    module = nn.Linear(len(eigenvalues), 1, bias=False, dtype=torch.float64)
    passes = CountedBatches(rows, torch.zeros(len(rows), 1, dtype=torch.float64), len(rows))
    return hessian_operator(module, passes, len(rows), nn.MSELoss(reduction="sum"))


def test_a_quadratic_has_its_own_spectrum() -> None:
    eigenvalues = [float(i) for i in range(1, 31)]
    found = spectrum(quadratic_operator(eigenvalues), top=3, lanczos_steps=30, lanczos_runs=4, seed=1)
    assert found.top == pytest.approx((30, 29, 28), rel=1e-3)
    assert found.smallest == pytest.approx(1, abs=0.05)
    # A diagonal matrix: v.Hv is the trace for every vector of signs.
    assert found.trace == pytest.approx(465, rel=1e-12)
    assert found.trace_error == pytest.approx(0, abs=1e-9)
    assert found.probes == 10
    grid, density = torch.tensor(found.grid), torch.tensor(found.density)
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1, abs=0.02)
    assert float(torch.trapezoid(density * grid, grid)) == pytest.approx(
        15.5, rel=0.15
    )  # the mean eigenvalue, from four vectors


def test_the_density_tells_how_many_eigenvalues_are_where() -> None:
    operator = quadratic_operator([0.01 * (1 + i / 90) for i in range(90)] + [4.0 + 0.1 * i for i in range(10)])
    grid, density, _ = (torch.tensor(part) for part in estimate_density(operator, 20, 15, 2000, 4.9, seed=0))
    above = grid > 2
    assert float(torch.trapezoid(density[above], grid[above])) == pytest.approx(0.1, abs=0.025)


def test_eigenvalues_trace_and_smallest_are_those_of_the_exact_hessian(run: LoadedRun) -> None:
    found = hessian(run, samples=60, seed=3, top=4, probes=200, trace_tolerance=0.0, lanczos_runs=3)
    matrix = exact_hessian(run, "all", *training_samples(run, 60, 3))
    values = torch.linalg.eigvalsh(matrix)
    assert found.parameters == len(matrix)
    assert found.samples == 60
    assert found.spectrum.top == pytest.approx(values.flip(0)[:4].tolist(), rel=2e-3)
    assert found.spectrum.smallest == pytest.approx(float(values[0]), rel=0.02)
    assert found.spectrum.probes == 200
    # Rademacher probes: the variance is 2 (||H||_F^2 - ||diag H||^2).
    spread = math.sqrt(2 * float((matrix**2).sum() - (matrix.diagonal() ** 2).sum()) / 200)
    assert found.spectrum.trace_error == pytest.approx(spread, rel=0.15)
    assert abs(found.spectrum.trace - float(matrix.trace())) < 4 * spread
    x, y = training_samples(run, 60, 3)
    with run.context.trainer.model.holding(run.model("all")) as module, torch.no_grad():
        assert found.loss == pytest.approx(float(F.cross_entropy(module(x), y)))


def test_convolutions_in_the_flat_vectors_own_order() -> None:
    """Kernels lie channels last in the flat vector and pooling has no derivative of its own; in float32."""
    torch.manual_seed(0)
    flat = FlatModel(nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)))
    x, y = torch.randn(9, 2, 6, 6), torch.arange(9) % 4

    def loss(vector: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(flat.module, flat.views(vector), (x,)), y)

    values = torch.linalg.eigvalsh(torch.func.hessian(loss)(flat.vector.clone()))
    found = spectrum(
        hessian_operator(flat.module, CountedBatches(channels_last(x), y, 4), 9), top=3, probes=2, lanczos_steps=20
    )
    assert found.top == pytest.approx(values.flip(0)[:3].tolist(), rel=2e-3)


def test_the_model_asked_for_is_looked_at_and_batches_do_not_matter(run: LoadedRun) -> None:
    matrix = exact_hessian(run, "sel", *training_samples(run, None, 0))
    top = float(torch.linalg.eigvalsh(matrix)[-1])
    for batch_size in (0, 60):
        found = hessian(run, model="sel", samples=None, top=1, probes=2, lanczos_steps=10, batch_size=batch_size)
        assert found.samples == 12 * 16
        assert found.spectrum.top[0] == pytest.approx(top, rel=1e-3)
    assert float(
        torch.linalg.eigvalsh(exact_hessian(run, "all", *training_samples(run, None, 0)))[-1]
    ) != pytest.approx(top)


def test_a_seed_repeats_all_of_it_and_another_does_not(run: LoadedRun) -> None:
    first, second, other = (
        hessian(run, samples=40, seed=seed, probes=12, lanczos_steps=20, lanczos_runs=1).to_dict() for seed in (5, 5, 6)
    )
    for result in (first, second, other):
        result.pop("seconds")
    assert first == second
    assert first["spectrum"]["trace"] != other["spectrum"]["trace"]
    assert first["loss"] != other["loss"]  # other samples


def test_nothing_of_the_run_changes(run: LoadedRun) -> None:
    before, state = run.context.trainer.model.vector.clone(), torch.get_rng_state()
    hessian(run, samples=20, probes=2, lanczos_steps=5, lanczos_runs=1)
    assert torch.equal(before, run.context.trainer.model.vector)
    assert torch.equal(state, torch.get_rng_state())


def test_weight_decay_moves_every_eigenvalue(run: LoadedRun) -> None:
    plain, with_decay = (
        hessian(run, samples=40, probes=4, lanczos_steps=10, lanczos_runs=1, weight_decay=decay)
        for decay in (False, True)
    )
    assert plain.weight_decay == 0
    assert with_decay.weight_decay == run.context.experiment.config.optimizer.weight_decay == 0.001
    assert with_decay.spectrum.top[0] - plain.spectrum.top[0] == pytest.approx(0.001)
    assert with_decay.spectrum.trace - plain.spectrum.trace == pytest.approx(0.001 * plain.parameters)
    assert shifted(plain.spectrum, 0.0, 3) is plain.spectrum


def test_probes_end_when_the_trace_is_known_well_enough() -> None:
    rng = torch.Generator().manual_seed(0)
    a = torch.randn(40, 40, generator=rng, dtype=torch.float64)
    module = nn.Linear(40, 1, bias=False, dtype=torch.float64)
    passes = CountedBatches(a, torch.zeros(40, 1, dtype=torch.float64), 40)
    operator = hessian_operator(module, passes, 40, nn.MSELoss(reduction="sum"))  # 2 a'a
    trace, error, probes = estimate_trace(operator, 1000, 0.03, seed=0)
    assert 10 <= probes < 1000
    assert error <= 0.03 * trace
    assert abs(trace - float(2 * (a**2).sum())) < 4 * error


def test_samples_are_drawn_without_repetition_from_all_clients(run: LoadedRun) -> None:
    everything, _ = training_samples(run, None, 0)
    some, labels = training_samples(run, 50, 1)
    places = [(everything == row).all(1).nonzero().item() for row in some]
    assert len(set(places)) == 50
    assert len(labels) == 50
    assert len(training_samples(run, 10**9, 0)[1]) == len(everything)


@pytest.mark.parametrize("samples", [0, -3])
def test_no_samples_is_refused(run: LoadedRun, samples: int) -> None:
    with pytest.raises(SimulationError, match=f"samples = {samples}; expected a positive number"):
        hessian(run, samples=samples)


def test_options_out_of_range_are_refused(run: LoadedRun) -> None:
    with pytest.raises(ConfigError, match=r"hessian\.top = 0; expected a whole number of at least 1"):
        hessian(run, top=0)
    with pytest.raises(ConfigError, match=r"hessian\.lanczos_steps = 1; expected a whole number of at least 2"):
        hessian(run, lanczos_steps=1)
    with pytest.raises(SimulationError, match="model = best: there is no such model; expected one of all, sel, cloud"):
        hessian(run, model="best")


def test_a_model_that_was_not_tracked_is_refused_and_not_taken_by_default(tmp_path: Path) -> None:
    simulate(small_config(rounds=2, eval_models=["sel"], out=str(tmp_path / "r")))
    run = load_run(tmp_path / "r")
    with pytest.raises(SimulationError, match="model = all: the run did not track it"):
        hessian(run, model="all")
    assert hessian(run, samples=20, probes=2, lanczos_steps=5, lanczos_runs=1).model == "sel"


def test_a_diverged_model_has_no_hessian(run: LoadedRun) -> None:
    run = load_run(run.path)
    run.state.sel.fill_(math.nan)
    with pytest.raises(SimulationError, match="the loss of the model `sel` is nan"):
        hessian(run, model="sel", samples=10)


def test_the_papers_numbers_go_with_its_settings_only() -> None:
    found = paper_numbers(load("table1_hessian", ["method=feddyn+asd"]))
    assert found is not None
    assert (found.top_eigenvalue, found.trace, found.differs) == (14.2, 2241.0, ())
    short = paper_numbers(load("table12_hessian_rest", ["method=fedntd+asd", "rounds=3"]))
    assert short is not None
    assert short.differs == ("rounds",)
    assert "rises with ASD" in str(short.suspect)
    same = paper_numbers(load("table2_cifar100", ["method=fedavg", "partition=dirichlet_0.3"]))
    assert same is not None
    assert same.trace == 8516.0
    assert paper_numbers(load("table2_cifar100", ["method=fedavg", "partition=dirichlet_0.6"])) is None
    assert paper_numbers(load("quickstart")) is None


def test_the_figure_has_a_line_for_each_run(run: LoadedRun) -> None:
    result = hessian(run, samples=20, probes=2, lanczos_steps=5, lanczos_runs=1)
    figure = hessian_figure([{**result.to_dict(), "label": label} for label in ("FedAvg", "FedAvg+ASD")])
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert [label.splitlines()[0] for label in labels] == ["FedAvg", "FedAvg+ASD"]
    assert f"top {result.spectrum.top[0]:.3g}" in labels[0]
    assert f"{result.spectrum.top[0]:.4g}" in str(result)
