from __future__ import annotations

import sys

import numpy as np
import pytest

from fedasd_fast.report import label_distribution as labels

pytest.importorskip("matplotlib", reason="needs matplotlib, of the extra `simulation`")


def counts(clients, classes, seed=0):
    return np.random.default_rng(seed).poisson(0.7, (clients, classes)) + np.eye(clients, classes, dtype=int)


def test_few_are_bubbles_of_an_area_like_the_count():
    table = np.array([[4, 0, 1], [0, 2, 8]])
    figure = labels.draw(table, "two clients")
    (dots,) = figure.axes[0].collections
    sizes = {(int(x), int(y)): size for (x, y), size in zip(dots.get_offsets(), dots.get_sizes(), strict=True)}
    assert {at: size / sizes[2 - 1, 2] * 8 for at, size in sizes.items()} == pytest.approx(
        {(0, 0): 4, (0, 2): 1, (1, 1): 2, (1, 2): 8}
    )


@pytest.mark.parametrize(("clients", "classes"), [(31, 10), (10, 100), (500, 100)])
def test_many_are_a_heat_map_sorted_by_class(clients, classes):
    table = counts(clients, classes)
    figure = labels.draw(table, "many")
    (image,) = figure.axes[0].images
    cells = np.ma.filled(image.get_array(), 0)
    assert cells.shape == (classes, clients)
    assert sorted(map(tuple, cells.T)) == sorted(map(tuple, table))
    assert (np.diff(cells.argmax(axis=0)) >= 0).all()


def test_thousands_are_thinned_out_and_the_axis_says_so():
    figure = labels.draw(counts(3000, 4), "crowd")
    assert figure.axes[0].images[0].get_array().shape == (4, 1000)
    assert "1,000 of 3,000 shown" in figure.axes[0].get_xlabel()


def test_caption():
    assert labels.caption([[3, 1, 0], [0, 0, 4], [2, 2, 0]]) == (
        "3 clients with 4 samples each. The median client has 2 of 3 classes; the most frequent one makes up 75% of "
        "its samples."
    )
    assert "2 clients with 1 to 5 samples." in labels.caption([[1, 0], [2, 3]])


def test_saved_as_a_file_without_pyplot(tmp_path):
    loaded = "matplotlib.pyplot" in sys.modules
    path = labels.save(counts(40, 10), "title", tmp_path / "labels.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert ("matplotlib.pyplot" in sys.modules) == loaded


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((0, 4)), np.array([[-1, 2]])])
def test_errors(bad):
    with pytest.raises(ValueError, match=r"expected \[clients, classes\]"):
        labels.draw(bad, "bad")
