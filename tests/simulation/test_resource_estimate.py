"""What a run takes, counted by hand on a small case; and refusals with advice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.common.formatting import format_bytes
from fedasd_fast.config import Config, from_dict
from fedasd_fast.simulation import SimulationError, resource_estimate, resume, simulate
from fedasd_fast.simulation.context import Context, build_context
from fedasd_fast.simulation.resource_estimate import ResourceEstimate
from fedasd_fast.simulation.storage.client_store import ClientStore

P = 12 * 5 + 5  # parameters of the linear model


def linear(**changes: Any) -> Config:
    """20 clients of 10 samples in 3 batches; 5 a round for 4 rounds of 2 epochs."""
    settings = dict(
        synthetic={"shape": [12], "classes": 5, "samples_per_client": 10, "test_samples": 7, "modes": 1},
        model="logistic", clients=20, participation=0.25, sampling="fixed", rounds=4, local_epochs=2, batch_size=4,
        checkpoint_every=1,
    )  # fmt: skip
    return from_dict({**settings, **changes})


def place(**changes: Any) -> Context:
    return build_context(linear(**changes))


def test_by_hand(tmp_path: Path) -> None:
    made = resource_estimate.estimate_resources(place(method="feddyn+asd", out=str(tmp_path)))
    assert made.rounds == 4
    assert made.clients_per_round == 5
    assert made.steps == 4 * 5 * 2 * 3
    assert made.step_flops == 3 * 2 * 4 * 12 * 5
    assert made.parameters == P
    assert made.data == 7 * (12 * 4 + 8) + 20 * 8 + 5 * 12 * 4  # test samples, sizes, centres
    assert made.largest_client == 2 * 10 * 12 * 4  # its samples, and once more in the order of an epoch
    assert made.teacher_cache == 10 * (5 * 4 + 32)
    assert made.client_state == 2 * P * 4  # h and upload
    # 20 (1 - 0.75^4) = 13.67 clients seen, and 2 rounds of 5 replaced records
    assert made.clients_with_state == 24
    assert made.state == 16 * 2**20 // (2 * P * 4) * (2 * P * 4)  # one file
    # Three checkpoints of initial, cloud, sel, and the average of all and h in eight bytes; and three models.
    assert made.checkpoints == 3 * (P * (3 * 4 + 2 * 8) + 24 * 24) + 3 * P * 4
    assert made.disk == made.state + made.checkpoints
    assert made.memory == made.model + made.data + made.largest_client + made.teacher_cache


def test_every_worker_has_a_model_of_its_own() -> None:
    made = resource_estimate.estimate_resources(place(method="fedavg+asd", executor="processes", workers=3))
    alone = resource_estimate.estimate_resources(place(method="fedavg+asd"))
    assert made.memory - alone.memory == 2 * (alone.model + alone.largest_client + alone.teacher_cache)
    assert ("memory: teacher cache", f"{format_bytes(made.teacher_cache)}, in each of 3 workers") in made.rows()


def test_in_memory_and_without_state() -> None:
    made = resource_estimate.estimate_resources(place(method="fedavg"))
    assert made.teacher_cache == 0
    assert made.clients_with_state == 19  # 13.67 and a round
    assert made.state == 19 * P * 4
    assert made.disk == 0
    assert made.memory == made.model + made.data + made.largest_client + made.state
    assert resource_estimate.estimate_resources(place(eval_models=["cloud"])).state == 0


def test_failures_and_full_participation() -> None:
    assert resource_estimate.estimate_resources(place(participation=1.0)).clients_with_state == 20 + 20
    some = resource_estimate.estimate_resources(place(failures={"dropout": 0.2, "stragglers": 0.5}))
    assert some.clients_per_round == pytest.approx(4)
    assert some.steps == round(4 * 4 * 2 * 0.75 * 3)
    assert resource_estimate.estimate_resources(place(rounds=0)).steps == 0


def test_rows_can_be_printed() -> None:
    rows = dict(resource_estimate.estimate_resources(place()).rows())
    assert rows["local steps"].startswith("120 in all")
    assert rows["memory: client state"] == "4.9 KB (19 x 260 B)"


def test_the_run_takes_what_was_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps exactly; records and bytes on disk at most, and not by an order of magnitude less."""
    slots: set[int] = set()
    take = ClientStore._take

    def spy(self: ClientStore) -> int:
        slot = take(self)
        slots.add(slot)
        return slot

    monkeypatch.setattr(ClientStore, "_take", spy)
    for out in (None, str(tmp_path / "run")):
        slots.clear()
        made = resource_estimate.estimate_resources(place(method="feddyn", rounds=12, out=out))
        result = simulate(linear(method="feddyn", rounds=12, out=out, executor="serial"))
        assert sum(row["steps"] for row in result.metrics) == made.steps
        assert made.clients_with_state / 2 < len(slots) <= made.clients_with_state
    state = sum(path.stat().st_size for path in (tmp_path / "run" / "clients").iterdir())
    assert state == made.state
    tables = [*(tmp_path / "run" / "checkpoint").iterdir(), tmp_path / "run" / "models.pt"]
    assert sum(path.stat().st_size for path in tables) < made.checkpoints + 20_000  # names and settings


def test_not_enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_estimate, "available_memory", lambda: 1000)
    with pytest.raises(SimulationError, match=r"needs \d+\.\d KB of memory, 1.0 KB are available; leave `all` out of"):
        simulate(linear())
    monkeypatch.setattr(resource_estimate, "available_memory", lambda: None)  # a system that does not tell
    assert isinstance(resource_estimate.check_resources(place()), ResourceEstimate)


def test_memory_is_checked_once_also_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def available() -> int:
        asked.append(1)
        return 10**9 if len(asked) < 2 else 1000

    monkeypatch.setattr(resource_estimate, "available_memory", available)
    simulate(linear(out=str(tmp_path / "run"), rounds=1, executor="serial"))
    assert len(asked) == 1
    with pytest.raises(SimulationError, match=r"of memory, 1\.0 KB are available"):
        resume(tmp_path / "run", {"rounds": 2})
    assert len(asked) == 2
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1


def test_not_enough_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_estimate, "free_disk", lambda path: 10**6)
    with pytest.raises(SimulationError, match=r"needs 16.8 MB on disk, 1.0 MB are free at .*run; leave `all` out"):
        simulate(linear(out=str(tmp_path / "run")))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(resource_estimate, "free_disk", lambda path: 10**8)
    assert isinstance(resource_estimate.check_resources(place(out=str(tmp_path / "run"))), ResourceEstimate)


def test_what_the_system_tells(tmp_path: Path) -> None:
    memory = resource_estimate.available_memory()
    assert memory is None or memory > 2**20
    assert resource_estimate.free_disk(tmp_path / "not" / "yet" / "there") > 0


def test_a_run_does_not_load_the_compiler() -> None:
    """torch._dynamo takes 70 MB and most of a second of every process."""
    code = (
        "import sys; from fedasd_fast.config import from_dict; from fedasd_fast.simulation import simulate; "
        "simulate(from_dict({'clients': 4, 'rounds': 1, 'executor': 'stacked'})); print('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
