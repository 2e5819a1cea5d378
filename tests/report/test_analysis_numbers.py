"""Eigenvalue, trace, G_d and the like, from the files of analyses."""

from __future__ import annotations

from typing import Any

from fedasd_fast.report.analysis_numbers import number_table

RUN = {"label": "FedAvg", "seed": 3, "round": 20}
HESSIAN: dict[str, Any] = {
    **RUN,
    "samples": 5000,
    "spectrum": {"top": [0.625, 0.5], "smallest": -0.1, "trace": 37.25, "trace_error": 1.5},
}


def test_eigenvalue_and_trace() -> None:
    text = number_table("hessian", [HESSIAN])
    for column in ("top eigenvalue", "trace", "samples", "round"):
        assert f">{column}</th>" in text
    assert "<td>3</td><td>0.625</td><td>-0.1</td><td>37.25</td><td>1.5</td><td>5,000</td><td>20</td>" in text


def test_dissimilarity_at_the_weight_of_the_run() -> None:
    result = {**RUN, "clients": 8, "weight": 3.0, "lambdas": [0.0, 3.0], "normalised": {"values": [10.5, 9.25]}}
    text = number_table("dissimilarity", [result, {**result, "weight": 0.0, "seed": 4}])
    assert "<td>3</td><td>10.5</td><td>9.25</td><td>3</td><td>8</td>" in text
    assert "<td>4</td><td>10.5</td><td>10.5</td><td>0</td><td>8</td>" in text


def test_files_of_another_version_show_what_they_have() -> None:
    assert ">loss</th>" in number_table("hessian", [{**RUN, "loss": 2.5}])
    mixed = number_table("hessian", [HESSIAN, {**RUN, "spectrum": {"top": []}}])
    assert "<td>0.625</td>" in mixed
    assert "<td>-</td>" in mixed
    assert ">value</th>" in number_table("of my own", [{**RUN, "value": 7.125, "name": "x", "yes": True}])
    assert number_table("of my own", [{"label": "FedAvg", "seed": 0, "name": "x"}]) == ""
