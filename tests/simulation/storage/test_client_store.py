"""The store against a dictionary, with crashes at any moment."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from fedasd_fast.simulation import SimulationError
from fedasd_fast.simulation.storage import record_chunks
from fedasd_fast.simulation.storage.client_store import ClientStore
from fedasd_fast.simulation.storage.record_checksums import RecordChecksums
from tests.simulation.small_runs import files

NAMES, SIZE = ("h", "upload"), 3
RECORD = len(NAMES) * SIZE * 4  # bytes


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_chunks, "_CHUNK_BYTES", 4 * RECORD)  # four records to a file


def make(directory: Path | None, names: tuple[str, ...] = NAMES) -> ClientStore:
    return ClientStore(names, SIZE, torch.float32, directory)


def vectors(value: float) -> dict[str, Tensor]:
    return {"h": torch.full((SIZE,), value), "upload": torch.full((SIZE,), -value), "unused": torch.zeros(1)}


def value(of: ClientStore, client: int) -> float | None:
    record = of.read(client)
    if record is None:
        return None
    assert record.keys() == set(NAMES)
    assert torch.equal(record["h"], record["h"][:1].expand(SIZE))
    assert torch.equal(record["h"], -record["upload"])
    return float(record["h"][0])


def checkpointed(of: ClientStore) -> dict[str, Tensor]:
    """As a run does it, with the file between snapshot and checkpointed left out."""
    of.mark()
    snapshot = of.snapshot()
    of.checkpointed()
    return snapshot


class Crashes(RuleBasedStateMachine):
    """`saved` are the checkpoints on disk, newest first: each a snapshot and what the dictionary held then."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.store = make(self.directory)
        self.now: dict[int, float] = {}
        self.marked: dict[int, float] = {}
        self.saved: list[tuple[dict[str, Tensor], dict[int, float]]] = []
        self.count = 0

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @rule(clients=st.lists(st.integers(0, 7), min_size=1, max_size=4))
    def write(self, clients: list[int]) -> None:
        for client in clients:
            self.count += 1
            self.store.write(client, vectors(self.count))
            self.now[client] = self.count

    @rule(clients=st.lists(st.integers(0, 7), max_size=6, unique=True))
    def write_cohort(self, clients: list[int]) -> None:
        values = torch.arange(self.count + 1, self.count + 1 + len(clients)).float()
        rows = values.unsqueeze(1).expand(-1, SIZE)
        self.store.write_cohort(np.array(clients, np.int64), {"h": rows, "upload": -rows, "unused": torch.zeros(1)})
        self.now.update(zip(clients, values.tolist(), strict=True))
        self.count += len(clients)

    @rule(order=st.permutations(range(8)))
    def read_cohort(self, order: list[int]) -> None:
        clients = np.array(order)
        known = self.store.known(clients)
        assert known.tolist() == [k in self.now for k in order]
        for name, sign in (("h", 1), ("upload", -1)):
            out = torch.full((int(known.sum()), SIZE), torch.nan)
            self.store.read_cohort(name, clients[known], out)
            expected = sign * torch.tensor([self.now[k] for k in order if k in self.now])
            assert torch.equal(out, expected.unsqueeze(1).expand(-1, SIZE).to(out))

    @rule()
    def mark(self) -> None:
        self.store.mark()
        self.marked = dict(self.now)

    @rule()
    def rollback(self) -> None:
        self.store.rollback()
        self.now = dict(self.marked)

    @rule(killed=st.sampled_from(["no", "no", "before the old ones were deleted", "before the store was told"]))
    def checkpoint(self, killed: str) -> None:
        self.mark()
        self.saved.insert(0, (self.store.snapshot(), dict(self.now)))
        if killed == "before the old ones were deleted":
            return self.resume()
        del self.saved[2:]
        if killed == "before the store was told":
            return self.resume()
        self.store.checkpointed()
        return None

    def resume(self, which: int = 0) -> None:
        """A new process, from checkpoint `which`; those after it are damaged, or it would not fall back to this one."""
        self.saved = self.saved[which:]
        self.store = make(self.directory)
        if self.saved:
            self.store.restore(self.saved[0][0], [snapshot for snapshot, _ in self.saved[1:]])
        self.marked = dict(self.saved[0][1]) if self.saved else {}
        self.now = dict(self.marked)

    @rule()
    def killed(self) -> None:
        self.resume()

    @precondition(lambda self: len(self.saved) > 1)
    @rule()
    def killed_and_the_newest_checkpoint_damaged(self) -> None:
        self.resume(which=1)

    @invariant()
    def holds_what_the_dictionary_holds(self) -> None:
        assert {k: found for k in range(8) if (found := value(self.store, k)) is not None} == self.now

    @invariant()
    def checkpoints_on_disk_are_unharmed(self) -> None:
        for snapshot, expected in self.saved[:2]:
            found = make(self.directory)
            found.restore(snapshot)
            assert {k: value(found, k) for k in snapshot["clients"].tolist()} == expected

    @invariant()
    def no_record_is_both_in_use_and_free(self) -> None:
        assert len(set(self.store._free)) == len(self.store._free)
        assert not set(self.store._free) & set(self.store._slots.values())


def test_crashes_at_any_moment(request: pytest.FixtureRequest) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Crashes,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("in_memory", [False, True])
def test_space_is_used_again(in_memory: bool, tmp_path: Path) -> None:
    """However many rounds: one record a client, and those replaced since two checkpoints (in memory: in a round)."""
    records = make(None if in_memory else tmp_path)
    for round in range(100):
        for client in range(5):
            records.write((round * 5 + client) % 20, vectors(round))
        records.mark()
        if not in_memory and round % 2:
            checkpointed(records)
    kept = 5 if in_memory else 2 * 2 * 5
    assert len(records._chunks) * 4 <= 20 + kept + 4
    assert len(list(tmp_path.iterdir())) == (0 if in_memory else len(records._chunks))
    assert [value(records, 5 * i) for i in range(4)] == [96, 97, 98, 99]


def test_in_memory() -> None:
    records = make(None)
    records.write(3, vectors(1))
    records.mark()
    for attempt in (2, 3):
        records.write(3, vectors(attempt))
        records.write(4, vectors(attempt))
        assert (value(records, 3), value(records, 4)) == (attempt, attempt)
        records.rollback()
        assert (value(records, 3), value(records, 4)) == (1, None)


def test_overlay_leaves_files_alone(tmp_path: Path) -> None:
    """Whatever is written on top, and however often, for as long as one likes: from memory that does not grow."""
    records = make(tmp_path)
    for client in range(6):
        records.write(client, vectors(client))
    snapshot = checkpointed(records)
    before = files(tmp_path)

    records = make(tmp_path)
    records.restore(snapshot)
    records.write_to_memory()
    for round in range(1, 30):
        for client in (1, 5, 9):
            records.write(client, vectors(100 * round + client))
        records.mark()
    assert [value(records, client) for client in (0, 1, 4, 5, 9)] == [0, 2901, 4, 2905, 2909]
    assert len(records._chunks) <= len(before) + 2
    del records
    assert files(tmp_path) == before


def test_a_record_that_is_being_read_stays_while_its_client_writes(tmp_path: Path) -> None:
    for records in (make(tmp_path), make(None)):
        records.write(0, vectors(1))
        records.mark()
        old = records.read(0)
        assert old is not None
        records.write(0, vectors(2))
        assert old["h"].tolist() == [1, 1, 1]


class TestChecksums:
    def saved(self, directory: Path, clients: int = 6) -> dict[str, Tensor]:
        records = make(directory)
        for client in range(clients):
            records.write(client, vectors(client + 1))
        return checkpointed(records)

    def restored(self, directory: Path, snapshot: dict[str, Tensor]) -> ClientStore:
        records = make(directory)
        records.restore(snapshot)
        return records

    @pytest.mark.parametrize("byte", range(RECORD))
    def test_any_byte(self, byte: int, tmp_path: Path) -> None:
        snapshot = self.saved(tmp_path)
        flip(tmp_path / "chunk-00001.bin", RECORD + byte)  # of client 5; the first file has four records
        records = self.restored(tmp_path, snapshot)
        assert [value(records, client) for client in range(5)] == [1, 2, 3, 4, 5]
        damaged = rf"record of client 5 is damaged: {tmp_path}/chunk-00001.bin has .*24 bytes from 24 on\); rest"
        for _ in range(2):
            with pytest.raises(SimulationError, match=damaged):
                records.read(5)
        with pytest.raises(SimulationError, match=damaged):
            records.reserve([4, 5])  # workers, who would read it, have no checksums
        records.rollback()
        records.write_to_memory()
        with pytest.raises(SimulationError, match=damaged):
            records.read(5)

    def test_damage_is_not_blessed_by_the_next_checkpoint(self, tmp_path: Path) -> None:
        snapshot = self.saved(tmp_path)
        flip(tmp_path / "chunk-00000.bin", 3)
        records = self.restored(tmp_path, snapshot)
        records.write(1, vectors(9))
        records = self.restored(tmp_path, checkpointed(records))
        assert value(records, 1) == 9
        with pytest.raises(SimulationError, match="record of client 0 is damaged"):
            records.read(0)

    def test_a_damaged_record_may_be_replaced(self, tmp_path: Path) -> None:
        """Free slots are not looked at, and a slot that is taken again has a new checksum."""
        snapshot = self.saved(tmp_path)
        flip(tmp_path / "chunk-00000.bin", 3)
        records = self.restored(tmp_path, snapshot)
        for number in range(20):
            records.write(0, vectors(number))
            snapshot = checkpointed(records)
        assert value(self.restored(tmp_path, snapshot), 0) == 19

    def test_only_what_was_written_is_summed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        summed: list[int] = []
        add = RecordChecksums.add

        def spy(self: RecordChecksums, slot: int, record: Any) -> None:
            summed.append(slot)
            add(self, slot, record)

        monkeypatch.setattr(RecordChecksums, "add", spy)
        records = self.restored(tmp_path, self.saved(tmp_path, 3))
        assert summed == [0, 1, 2]
        records.write(7, vectors(7))
        snapshot = checkpointed(records)
        assert summed == [0, 1, 2, 3]
        assert checkpointed(records)["checksums"].tolist() == snapshot["checksums"].tolist()
        assert summed == [0, 1, 2, 3]

    def test_checkpoints_of_older_versions(self, tmp_path: Path) -> None:
        """They have no checksums; records that are written from now on do."""
        snapshot = self.saved(tmp_path)
        del snapshot["checksums"]
        flip(tmp_path / "chunk-00000.bin", 3)
        records = self.restored(tmp_path, snapshot)
        assert records.read(0) is not None
        records.write(2, vectors(8))
        snapshot = checkpointed(records)
        slot = int(snapshot["slots"][2])
        flip(tmp_path / f"chunk-{slot // 4:05d}.bin", slot % 4 * RECORD)
        records = self.restored(tmp_path, snapshot)
        assert [value(records, client) for client in (1, 3)] == [2, 4]
        with pytest.raises(SimulationError, match="record of client 2 is damaged"):
            records.read(2)


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", ["removed", "cut"])
def test_files_removed_or_cut(harm: str, tmp_path: Path) -> None:
    records = make(tmp_path)
    for client in range(6):
        records.write(client, vectors(client))
    snapshot = checkpointed(records)
    path = tmp_path / "chunk-00001.bin"
    if harm == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SimulationError, match=rf"{tmp_path} lacks the records of 2 clients: files chunk-\*.bin were"):
        make(tmp_path).restore(snapshot)


def test_a_file_that_was_being_made_is_made_anew(tmp_path: Path) -> None:
    records = make(tmp_path)
    for client in range(4):
        records.write(client, vectors(client))
    snapshot = checkpointed(records)
    (tmp_path / "chunk-00001.bin").write_bytes(b"short")
    records = make(tmp_path)
    records.restore(snapshot)
    records.write(9, vectors(9))
    assert [value(records, client) for client in (0, 3, 9)] == [0, 3, 9]


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    records = make(tmp_path)
    monkeypatch.setattr(record_chunks.os, "posix_fallocate", full)
    with pytest.raises(SimulationError, match=r"chunk-00000.bin needs 96 bytes \(No space left on device\); free some"):
        records.write(0, vectors(0))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    records.write(0, vectors(0))
    assert value(records, 0) == 0


def test_methods_without_state_cost_nothing(tmp_path: Path) -> None:
    records = make(tmp_path / "clients", ())
    records.write(0, vectors(0))
    snapshot = checkpointed(records)
    records.restore(snapshot)
    assert records.read(0) is None
    assert not (tmp_path / "clients").exists()


def test_a_client_costs_nothing_before_it_writes(tmp_path: Path) -> None:
    """A million clients of 40 MB each could be in this store; only those that wrote are on disk."""
    records = ClientStore(("upload",), 10_000, torch.float32, tmp_path)
    assert list(tmp_path.iterdir()) == []
    records.write(999_999, {"upload": torch.ones(10_000)})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 40_000
    assert records.read(0) is None


class TestReservedSlots:
    """Others write the records; which of them count is known only when they are done."""

    @pytest.fixture(params=["files", "memory"])
    def records(self, request: pytest.FixtureRequest, tmp_path: Path) -> ClientStore:
        return ClientStore(("upload",), 3, torch.float32, tmp_path if request.param == "files" else None)

    def test_only_what_is_committed_counts(self, records: ClientStore) -> None:
        lent = records.for_workers()
        for value in (1.0, 2.0):
            slots = records.reserve([4, 5, 6])
            lent.assign(slots)
            for client in slots:
                before = lent.read(client)
                assert before is None if value == 1 else before is not None and float(before["upload"][0]) == 1
                lent.write(client, {"upload": torch.full((3,), value)})
            records.commit([4, 5, 6] if value == 1 else [5])
            records.mark()
        found = [float(record["upload"][0]) for k in (4, 5, 6) if (record := records.read(k))]
        assert found == [1.0, 2.0, 1.0]

    def test_rollback_gives_the_slots_back(self, records: ClientStore) -> None:
        lent = records.for_workers()
        first = records.reserve([1])[1][1]
        records.commit([1])
        records.mark()
        taken = records.reserve([1, 2])
        assert first not in {new for _, new in taken.values()}
        lent.assign({1: taken[1]})
        lent.write(1, {"upload": torch.full((3,), 9.0)})
        records.rollback()
        assert {new for _, new in records.reserve([7, 8]).values()} == {new for _, new in taken.values()}
        assert records.read(1) is not None
        assert float(records.read(1)["upload"][0]) != 9  # type: ignore[index]
        assert records.read(2) is None


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_cohort_for_which_there_is_no_room_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    store = make(None if in_memory else tmp_path)
    store.write(1, vectors(1.0))
    store.mark()
    add, free = record_chunks.RecordChunks.add, list(store._free)

    def full(self: record_chunks.RecordChunks) -> None:
        if len(self) >= 2:
            raise SimulationError("no room")
        add(self)

    monkeypatch.setattr(record_chunks.RecordChunks, "add", full)
    rows = torch.ones(9, SIZE)
    with pytest.raises(SimulationError, match="no room"):
        store.write_cohort(np.arange(9), {"h": rows, "upload": -rows})
    assert set(store._free) == {*free, 4, 5, 6, 7}
    assert len(store._free) == 7
    assert store.known(np.arange(9)).tolist() == [k == 1 for k in range(9)]
    monkeypatch.undo()
    store.write_cohort(np.arange(9), {"h": rows, "upload": -rows})
    assert [value(store, k) for k in range(9)] == [1.0] * 9


def test_cohorts_in_slots_that_were_reserved(tmp_path: Path) -> None:
    store, clients = make(tmp_path), np.array([5, 2, 8])
    store.write(2, vectors(7.0))
    slots = store.reserve(clients.tolist())
    assert [old for old, _ in slots.values()] == [-1, 0, -1]
    worker = store.for_workers()
    worker.assign(slots)
    assert worker.known(clients).tolist() == [False, True, False]
    out = torch.empty(1, SIZE)
    worker.read_cohort("h", clients[1:2], out)
    assert out.tolist() == [[7.0] * SIZE]
    rows = torch.tensor([[1.0], [2.0], [3.0]]).expand(-1, SIZE)
    worker.write_cohort(clients, {"h": rows, "upload": -rows})
    assert value(store, 2) == 7.0
    store.commit([5, 2])
    assert [value(store, k) for k in (5, 2, 8)] == [1.0, 2.0, None]
    store.rollback()
    assert [value(store, k) for k in (5, 2, 8)] == [None, None, None]


def test_a_damaged_record_of_a_cohort_is_named(tmp_path: Path) -> None:
    store = make(tmp_path)
    rows = torch.arange(6.0).unsqueeze(1).expand(-1, SIZE)
    store.write_cohort(np.arange(10, 16), {"h": rows, "upload": -rows})
    snapshot = checkpointed(store)
    chunk = tmp_path / "chunk-00001.bin"
    data = bytearray(chunk.read_bytes())
    data[RECORD] ^= 1  # the second record of the second file: that of client 15
    chunk.write_bytes(data)
    again = make(tmp_path)
    again.restore(snapshot)
    out = torch.empty(2, SIZE)
    again.read_cohort("h", np.array([13, 14]), out)
    assert out[:, 0].tolist() == [3.0, 4.0]
    with pytest.raises(
        SimulationError, match=f"the record of client 15 is damaged: .*chunk-00001.bin .* from {RECORD} on"
    ):
        again.read_cohort("h", np.array([14, 15]), out)
