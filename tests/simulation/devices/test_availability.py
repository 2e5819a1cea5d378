"""Who is there at which simulated time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.settings import Availability
from fedasd_fast.simulation import SimulationError, simulate
from fedasd_fast.simulation.devices.availability import ClientAvailability
from fedasd_fast.simulation.sampling import available_participants
from tests.simulation.small_runs import small_config

ALL = np.arange(12)
SECONDS = {"profile": "constant", "speed": 16.0, "download": 1e30, "upload": 1e30}  # a round of a second


def intervals(tmp_path: Path, text: str, **settings: Any) -> Availability:
    (tmp_path / "times.csv").write_text(text)
    return Availability(str(tmp_path / "times.csv"), **settings)


def test_intervals_of_clients(tmp_path: Path) -> None:
    """From the first second to before the last, again after each period."""
    text = "client,start,end\n3,10,20\n5,15,30\n3,90,100\n"
    found = ClientAvailability(intervals(tmp_path, text, period=100.0), 12, 0)
    once = ClientAvailability(intervals(tmp_path, text, period=None), 12, 0)
    for at, expected in ((9.9, []), (10, [3]), (15, [3, 5]), (20, [5]), (30, []), (95, [3]), (100, [])):
        for clock in (at, at + 300):
            assert np.flatnonzero(found.present(ALL, clock, 0, 0)).tolist() == expected
        assert np.flatnonzero(once.present(ALL, at, 0, 0)).tolist() == expected
        assert not once.present(ALL, at + 300, 0, 0).any()


def test_traces_are_drawn_by_clients(tmp_path: Path) -> None:
    found = ClientAvailability(intervals(tmp_path, "trace,start,end\na,0,10\nb,10,20\n"), 10**6, 7)
    clients = np.arange(0, 10**6, 500)
    first, second = found.present(clients, 5, 0, 0), found.present(clients, 15, 3, 1)
    assert np.array_equal(first, ~second)
    assert first.mean() == pytest.approx(0.5, abs=0.05)


def test_the_diurnal_curve(tmp_path: Path) -> None:
    """A quarter of the period after midnight it is highest, three quarters after it lowest."""
    clients = np.arange(20_000)
    day = Availability("diurnal", mean=0.5, amplitude=0.4, period=400.0)
    found = ClientAvailability(day, 20_000, 1)
    for at, share in ((0, 0.5), (100, 0.9), (300, 0.1), (500, 0.9)):
        assert found.chance(clients[:1], at) == pytest.approx(share)
        assert found.present(clients, at, 0, 0).mean() == pytest.approx(share, abs=0.015)
    draws = [found.present(clients, 0, *when) for when in ((0, 0), (1, 0), (0, 1))]
    assert not np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    zones = ClientAvailability(Availability("diurnal", amplitude=0.4, period=400.0, time_zones=1.0), 20_000, 1)
    assert zones.present(clients, 100, 0, 0).mean() == pytest.approx(0.5, abs=0.02)
    chances = zones.chance(clients, 100)
    assert (chances.min(), chances.max()) == pytest.approx((0.1, 0.9), abs=1e-3)
    few = zones.present(clients[5:9], 100, 2, 0)
    assert np.array_equal(few, zones.present(clients, 100, 2, 0)[5:9])


def test_a_fixed_number_is_drawn_of_those_that_are_there() -> None:
    config = small_config(clients=1000, sampling="fixed", participation=0.05)
    there = np.zeros(1000, bool)
    there[np.arange(0, 1000, 10)] = True
    seen = np.zeros(1000, int)
    for round in range(200):
        found = available_participants(config, round, 0, lambda clients: there[clients])
        assert len(set(found.tolist())) == 50
        assert (np.diff(found) > 0).all()
        seen[found] += 1
    assert not seen[~there].any()
    assert seen[there].mean() == 100
    assert abs(seen[there] - 100).max() < 40  # 5.6 standard deviations: all alike
    there[:] = False
    there[[4, 700]] = True
    assert available_participants(config, 0, 0, lambda clients: there[clients]).tolist() == [4, 700]
    there[:] = False
    assert len(available_participants(config, 0, 0, lambda clients: there[clients])) == 0


def test_a_million_clients_are_not_looked_at_one_by_one() -> None:
    looked = 0

    def half(clients: np.ndarray) -> np.ndarray:
        nonlocal looked
        looked += len(clients)
        return clients % 2 == 0

    config = small_config(clients=1_000_000, sampling="fixed", participation=1e-4)
    assert len(available_participants(config, 0, 0, half)) == 100
    assert looked == 400


@pytest.mark.parametrize("sampling", ["bernoulli", "fixed"])
def test_only_clients_that_are_there_take_part_and_the_server_waits_for_one(sampling: str, tmp_path: Path) -> None:
    """Nobody before 50 s: it looks every 20 s, so at 60.  A round takes a second; from 63 s on others are there."""
    lines = ["client,start,end", *(f"{k},50,63" for k in range(6)), *(f"{k},63,100" for k in range(6, 12))]
    pattern = intervals(tmp_path, "\n".join(lines), period=None, wait=20.0)
    seen: list[set[int]] = []
    settings = {"devices": SECONDS, "availability": pattern, "participation": 1.0, "sampling": sampling}

    from fedasd_fast.callbacks import Callback

    class Seen(Callback):
        def on_client(self, update: Any) -> None:
            seen[-1].add(update.client)

        def on_start(self, run: Any) -> None:
            seen.append(set())

        def on_round(self, metrics: Any) -> None:
            seen.append(set())

    rows = simulate(small_config(rounds=5, **settings), callbacks=[Seen()]).metrics
    assert [row["simulated_seconds"] for row in rows] == [61.0, 1.0, 1.0, 1.0, 1.0]
    assert [row["simulated_clock"] for row in rows] == [61.0, 62.0, 63.0, 64.0, 65.0]
    assert seen[:5] == [set(range(6))] * 3 + [set(range(6, 12))] * 2


def test_nobody_ever_is_an_error(tmp_path: Path) -> None:
    pattern = intervals(tmp_path, "client,start,end\n0,1,2\n", period=None, wait=10.0)
    with pytest.raises(SimulationError, match=r"no client was available for round 1 from 0 to 99,990 simulated sec"):
        simulate(small_config(devices=SECONDS, availability=pattern))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start,end\n5,5\n", "line 2: end = '5'; expected more than its start, 5"),
        (
            "start,end\n5,90000\n",
            "line 2: end = '90000'; expected at most availability.period = 86400; set that, or null",
        ),
        ("client,trace,start,end\n0,a,1,2\n", "begins with"),
        ("client,start,end\n-1,1,2\n", "client = '-1'; expected the number of a client"),
    ],
)
def test_files_that_cannot_be_used_are_refused(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=expected):
        ClientAvailability(intervals(tmp_path, text), 12, 0)
