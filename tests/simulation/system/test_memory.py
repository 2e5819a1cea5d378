"""Memory that is available: the least of what the machine and all control groups around the process leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedasd_fast.config import from_dict
from fedasd_fast.simulation import SimulationError, resource_estimate, simulate
from fedasd_fast.simulation.system.memory import available_memory

MB = 2**20
UNLIMITED_V1 = 0x7FFFFFFFFFFFF000


class Machine:
    """Files as Linux has them."""

    def __init__(self, top: Path, cgroup: str, available: int = 8000 * MB) -> None:
        self.proc, self.cgroups = top / "proc", top / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "meminfo").write_text(
            f"MemTotal:       16000000 kB\nMemAvailable:   {available // 1024} kB\nHugePages_Total:       0\n"
        )
        (self.proc / "self" / "cgroup").write_text(cgroup)

    def group(self, path: str, **files: str | int) -> Machine:
        folder = self.cgroups / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / f"memory.{name}").write_text(f"{content}\n")
        return self

    @property
    def available(self) -> int | None:
        return available_memory(self.proc, self.cgroups)


def test_no_groups(tmp_path: Path) -> None:
    assert Machine(tmp_path, "").available == 8000 * MB
    assert available_memory(tmp_path / "nothing", tmp_path / "nothing") is None


class TestVersion2:
    STAT = "anon 1000\ninactive_file 52428800\nactive_file 7\n"

    def test_limit(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, "0::/user.slice/job.scope\n")
        machine.group("user.slice/job.scope", max=500 * MB, current=200 * MB, stat=self.STAT)
        assert machine.available == 350 * MB  # the cache of files is given back when others need it

    def test_no_limit(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, "0::/job\n").group("job", max="max", current=200 * MB, stat=self.STAT)
        assert machine.available == 8000 * MB

    def test_more_than_the_machine_has(self, tmp_path: Path) -> None:
        assert Machine(tmp_path, "0::/job\n").group("job", max=10**15, current=0).available == 8000 * MB

    def test_a_group_further_out(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, "0::/pod/container\n")
        machine.group("pod/container", max="max", current=100 * MB).group("pod", max=300 * MB, current=290 * MB)
        assert machine.available == 10 * MB

    @pytest.mark.parametrize("path", ["/", "/docker/0123abcd", "/../../elsewhere"])
    def test_in_a_container(self, path: str, tmp_path: Path) -> None:
        """The files of its own group are at the top; the path may be the host's."""
        machine = Machine(tmp_path, f"0::{path}\n").group("", max=300 * MB, current=100 * MB)
        assert machine.available == 200 * MB

    def test_over_its_limit(self, tmp_path: Path) -> None:
        assert Machine(tmp_path, "0::/job\n").group("job", max=100 * MB, current=101 * MB).available == 0


class TestVersion1:
    LINES = "12:cpu,cpuacct:/other\n4:memory:/docker/0123\n1:name=systemd:/docker/0123:x\n"

    def test_limit(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, self.LINES).group("memory", limit_in_bytes=UNLIMITED_V1, usage_in_bytes=5000 * MB)
        stat = "inactive_file 1\ntotal_inactive_file 10485760\n"
        machine.group("memory/docker/0123", limit_in_bytes=600 * MB, usage_in_bytes=400 * MB, stat=stat)
        assert machine.available == 210 * MB

    def test_no_limit(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, self.LINES)
        machine.group("memory/docker/0123", limit_in_bytes=UNLIMITED_V1, usage_in_bytes=400 * MB)
        assert machine.available == 8000 * MB

    def test_both_versions(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, self.LINES + "0::/unified\n")
        machine.group("memory", limit_in_bytes=600 * MB, usage_in_bytes=0).group("unified", max=50 * MB, current=0)
        assert machine.available == 50 * MB


def test_a_run_that_a_container_would_be_killed_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, "0::/job\n").group("job", max=3 * MB, current=2 * MB)
    monkeypatch.setattr(resource_estimate, "available_memory", lambda: available_memory(machine.proc, machine.cgroups))
    with pytest.raises(SimulationError, match=r"needs .* of memory, 1\.0 MB are available; leave `all` out"):
        simulate(from_dict({"clients": 500, "rounds": 2, "executor": "serial"}))
