"""Reports of clients: in the order of their ids whatever the order they came in, and whole after a journey as bits."""

from __future__ import annotations

import pickle

import numpy as np

from fedasd_fast.simulation.aggregation.reports import COLUMNS, ClientReports


def some() -> ClientReports:
    reports = ClientReports()
    reports.add(7, 2, 20, 0.5, 1.5)
    reports.add([9, 3], [4, 6], [40, 60], np.array([np.nan, 0.25]), [2.5, -0.0])
    other = ClientReports()
    other.add(5, 1, 10, 0.125, 1e-300)
    other.drop(4, "the loss is nan")
    reports.extend(other)
    return reports


def test_columns_are_in_the_order_of_the_clients() -> None:
    reports = some()
    assert reports.clients.tolist() == [3, 5, 7, 9]
    assert reports.column("steps").tolist() == [6, 1, 2, 4]
    assert reports.column("samples").tolist() == [60, 10, 20, 40]
    assert reports.column("loss")[:3].tolist() == [0.25, 0.125, 0.5]
    assert np.isnan(reports.column("loss")[3])
    assert reports.errors == {4: "the loss is nan"}
    reports.add(1, 1, 1, 1.0, 1.0)
    assert reports.clients.tolist() == [1, 3, 5, 7, 9]


def test_none() -> None:
    assert ClientReports().clients.tolist() == []
    assert ClientReports().bits().shape == (0, len(COLUMNS))


def test_bits_and_pickles_are_exact() -> None:
    reports = some()
    for copy in (ClientReports.from_bits(reports.bits(), reports.errors), pickle.loads(pickle.dumps(reports))):
        assert copy.errors == reports.errors
        for name in COLUMNS:
            assert copy.column(name).tobytes() == reports.column(name).tobytes()
