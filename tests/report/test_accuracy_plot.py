from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasd_fast.common.plotting import PALETTE, save_figure
from fedasd_fast.config import Config
from fedasd_fast.report.accuracy_plot import _moved_apart, accuracy_figure, common_settings

from .synthetic_runs import synthetic_run


def thick_lines(figure: Any) -> list[Any]:
    return [line for line in figure.axes[0].lines if line.get_linewidth() == 2]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in [*figure.axes[0].texts, *figure.texts]]


def test_a_curve_has_the_evaluated_rounds_only() -> None:
    figure = accuracy_figure([synthetic_run(accuracies={5: 40.0, 10: 60.0})])
    (line,) = thick_lines(figure)
    assert list(line.get_xdata()) == [5, 10]
    assert list(line.get_ydata()) == [40.0, 60.0]
    assert "FedAvg  60.00" in texts(figure)


def test_seeds_are_thin_lines_around_their_mean() -> None:
    runs = [
        synthetic_run(accuracies={5: a, 10: b}, seed=seed) for seed, (a, b) in enumerate([(40.0, 60.0), (44.0, 64.0)])
    ]
    figure = accuracy_figure(runs)
    (mean,) = thick_lines(figure)
    assert list(mean.get_ydata()) == [42.0, 62.0]
    assert sum(line.get_linewidth() == 0.8 for line in figure.axes[0].lines) == 2
    assert any("seeds" in text for text in texts(figure))


def test_the_papers_number_is_a_dashed_line_of_the_same_colour() -> None:
    runs = [synthetic_run("FedAvg", {10: 60.0}), synthetic_run("FedAvg+ASD", {10: 65.0})]
    figure = accuracy_figure(runs, paper={"FedAvg+ASD": 66.2, "absent": 1.0}, paper_rounds=500)
    (dashed,) = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert list(dashed.get_ydata()) == [66.2, 66.2]
    assert dashed.get_color() == thick_lines(figure)[1].get_color() == PALETTE[1]
    assert "paper  66.20" in texts(figure)
    assert any("after 500 rounds" in text for text in texts(figure))
    low, high = figure.axes[0].get_ylim()
    assert low < 60
    assert high > 66.2


def test_several_methods_have_a_colour_each() -> None:
    labels = ("FedAvg", "FedAvg+ASD", "FedDyn", "FedDyn+ASD")
    figure = accuracy_figure([synthetic_run(label, {5: 1.0, 10: 2.0}) for label in labels])
    colours = [line.get_color() for line in thick_lines(figure)]
    assert len(set(colours)) == 4
    assert colours[1::2] == list(PALETTE[:2])  # those without ASD are paler


def test_rounds_without_a_number_are_left_out(tmp_path: Path) -> None:
    figure = accuracy_figure([synthetic_run(accuracies={2: 40.0, 5: math.nan, 7: None, 10: 60.0})])
    assert list(thick_lines(figure)[0].get_xdata()) == [2, 10]
    for nothing in ([], [synthetic_run()], [synthetic_run(accuracies={5: math.nan})]):
        figure = accuracy_figure(nothing)
        assert "no round evaluated yet" in texts(figure)
        assert save_figure(figure, tmp_path / "new" / "figure.png").stat().st_size > 1000


def test_seeds_that_were_evaluated_at_different_rounds() -> None:
    figure = accuracy_figure([synthetic_run(accuracies={4: 40.0}), synthetic_run(accuracies={6: 50.0})])
    assert "FedAvg  40.00" in texts(figure)


def test_the_other_models_can_be_shown() -> None:
    figure = accuracy_figure([synthetic_run(accuracies={10: 60.0})], model="sel")
    assert list(thick_lines(figure)[0].get_ydata()) == [59.0]
    assert any("participants" in text for text in texts(figure))


def test_long_names_make_the_figure_wider(tmp_path: Path) -> None:
    label = "asd.weight=10, method=feddyn+asd"
    figure = accuracy_figure([synthetic_run(label, {5: 40.0, 10: 60.0})])
    save_figure(figure, tmp_path / "figure.png")
    (text,) = [text for text in figure.axes[0].texts if text.get_text().startswith(label)]
    assert text.get_window_extent().x1 < figure.bbox.x1


def test_the_subtitle_says_what_the_runs_have_in_common() -> None:
    one, other = Config(clients=20, local_epochs=1), Config(clients=30, local_epochs=1)
    assert "20 clients" in common_settings([one])
    assert "clients" not in common_settings([one, other])
    assert "1 local epoch," in common_settings([one, other])


def test_without_matplotlib_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fedasd-fast\[simulation\]'"):
        accuracy_figure([synthetic_run()])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=15))
@settings(max_examples=50)
def test_labels_are_moved_apart_and_stay_in_order(heights: list[float]) -> None:
    placed = _moved_apart(sorted(heights), 0.055)
    assert all(b - a >= 0.055 - 1e-9 for a, b in pairwise(placed))
    assert placed[-1] <= 1
