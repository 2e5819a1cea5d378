"""The pfl example: an algorithm of pfl with the real package."""

from __future__ import annotations

from tables import accuracies
from venvs import EXAMPLES, install


def test_fedasd_as_an_algorithm_of_pfl() -> None:
    found = accuracies(install(EXAMPLES / "pfl_research").run("python", "train.py"))
    assert list(found) == ["FedAvg", "FedAvg + ASD"]
    assert all(len(cells) == 4 for cells in found.values())  # three seeds and their mean
    assert found["FedAvg"][-1] + 2 < found["FedAvg + ASD"][-1]
