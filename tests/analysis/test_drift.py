from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast.analysis.drift import drift, drift_of, moving_average
from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.analysis.plots.drift import drift_figure
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.errors import SimulationError

from ..simulation.small_runs import small_config

ROWS: list[dict[str, Any]] = [
    {"round": 1, "drift": 4.0, "client_distance": 6.0},
    {"round": 2},  # nobody returned a model
    {"round": 3, "drift": 2.0, "client_distance": 5.0},
    {"round": 4, "drift": 3.0, "client_distance": 1.0},
]


def test_by_hand() -> None:
    found = drift_of(ROWS, window=2)
    assert found.rounds == [1, 3, 4]
    assert found.drift == [4, 2, 3]
    assert found.drift_smoothed == [4, 3, 2.5]
    assert found.client_distance_smoothed == [6, 5.5, 3]
    assert moving_average([1, 2, 3, 4, 5], 3) == [1, 1.5, 2, 3, 4]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.integers(1, 50))
def test_a_moving_average(values: list[float], window: int) -> None:
    smooth = moving_average(values, window)
    assert len(smooth) == len(values)
    assert moving_average(values, 1) == values
    for i, value in enumerate(smooth):
        part = values[max(0, i + 1 - window) : i + 1]
        assert min(part) * (1 - 1e-12) <= value <= max(part) * (1 + 1e-12)
        assert moving_average(values[: i + 1], window)[i] == value  # going on changes nothing


def test_it_is_what_a_round_moved_the_global_model(tmp_path: Path) -> None:
    simulate(small_config(out=str(tmp_path / "run"), rounds=3, checkpoint_every=1))
    run = load_run(tmp_path / "run")
    found = drift(run)
    assert found.rounds == [1, 2, 3]
    assert run.before is not None
    moved = torch.linalg.vector_norm(run.model("cloud") - run.before.cloud)
    assert found.drift[-1] == pytest.approx(float(moved))
    assert min(found.client_distance) > 0


def test_bad_input() -> None:
    with pytest.raises(SimulationError, match="window = 0; expected at least 1"):
        drift_of(ROWS, window=0)
    with pytest.raises(SimulationError, match="none of 1 rounds"):
        drift_of([{"round": 1, "drift": float("nan"), "client_distance": 1.0}])
    with pytest.raises(ConfigError, match="no run to plot"):
        drift_figure({})


def test_figure_from_results_and_from_json(tmp_path: Path) -> None:
    found = drift_of(ROWS, window=2)
    saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    figure = drift_figure({"FedAvg": found, "FedAvg+ASD": saved})
    figure.savefig(tmp_path / "figure.png", dpi=50)
    left, right = figure.axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["FedAvg", "FedAvg+ASD"]
    assert list(left.lines[1].get_ydata()) == [4, 3, 2.5]
    assert list(right.lines[3].get_ydata()) == [6, 5.5, 3]
    listed = drift_figure([{**saved, "label": "FedAvg"}, {**saved, "label": "FedAvg"}])  # two seeds, say
    assert len(listed.axes[0].lines) == 4
    assert "2.5 from round to round" in str(found)
    assert any("mean of the last 2 rounds" in text.get_text() for text in figure.texts)
