"""A link in a folder that came from somebody else never leads a write to a file elsewhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedasd_fast.common.files import UnsuitableFile, create_file, open_no_follow, read_bounded, write_atomically
from fedasd_fast.common.plotting import new_figure, save_figure
from fedasd_fast.common.table import Table
from fedasd_fast.data.catalogue import Download
from fedasd_fast.data.download import DownloadError, fetch
from fedasd_fast.report.page import write_report
from fedasd_fast.simulation import SimulationError, resume, simulate

from ..data.test_download import Server, server
from ..simulation.small_runs import small_config

__all__ = ["server"]


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "victim"
    path.write_bytes(b"precious")
    yield path
    assert path.read_bytes() == b"precious"


class TestFiles:
    def test_the_temporary_file_is_never_a_link(self, tmp_path: Path, victim: Path) -> None:
        (tmp_path / "file.tmp").symlink_to(victim)
        write_atomically(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == b"new"
        assert not (tmp_path / "file.tmp").exists()

    def test_a_link_is_replaced(self, tmp_path: Path, victim: Path) -> None:
        (tmp_path / "file").symlink_to(victim)
        write_atomically(tmp_path / "file", b"new")
        assert not (tmp_path / "file").is_symlink()

    def test_what_a_killed_process_left_is_no_obstacle(self, tmp_path: Path) -> None:
        (tmp_path / "file.tmp").write_bytes(b"half")
        write_atomically(tmp_path / "file", b"new")
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_a_folder_in_place_of_the_temporary_file_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "file.tmp").mkdir()
        with pytest.raises(OSError, match=r"file\.tmp"):
            write_atomically(tmp_path / "file", b"new")

    def test_nobody_can_put_a_link_there_in_between(
        self, tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unlink = Path.unlink

        def then_link(path: Path, missing_ok: bool = False) -> None:
            unlink(path, missing_ok)
            path.symlink_to(victim)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", then_link)
            with pytest.raises(FileExistsError):
                create_file(tmp_path / "file")

    @pytest.mark.parametrize("mode", ["ab", "ab+", "r+b"])
    def test_links_and_pipes_are_not_opened(self, tmp_path: Path, victim: Path, mode: str) -> None:
        (tmp_path / "link").symlink_to(victim)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UnsuitableFile, match="link is a symbolic link"):
            open_no_follow(tmp_path / "link", mode)
        with pytest.raises(OSError, match="pipe"):
            open_no_follow(tmp_path / "pipe", mode)

    def test_reading_is_bounded(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"1234")
        os.mkfifo(tmp_path / "pipe")
        assert read_bounded(tmp_path / "file", 4) == b"1234"
        with pytest.raises(UnsuitableFile, match="file has 4 bytes; such a file has at most 3"):
            read_bounded(tmp_path / "file", 3)
        for path in (tmp_path / "pipe", Path("/dev/zero")):
            with pytest.raises(UnsuitableFile, match="is not a regular file"):
                read_bounded(path, 4)


class TestRunDirectory:
    @pytest.mark.parametrize("name", ["config.yaml.tmp", "metrics.jsonl.tmp", "versions.jsonl.tmp", "models.pt.tmp"])
    def test_temporary_files(self, run: Path, victim: Path, name: str) -> None:
        (run / name).symlink_to(victim)
        assert resume(run, {"rounds": 5}).metrics[-1]["round"] == 5

    @pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "versions.jsonl", "models.pt"])
    def test_files(self, run: Path, victim: Path, name: str, tmp_path: Path) -> None:
        os.rename(run / name, tmp_path / "original")
        (run / name).symlink_to(tmp_path / "original")
        before = (tmp_path / "original").read_bytes()
        assert resume(run, {"rounds": 5}).metrics[-1]["round"] == 5
        assert (tmp_path / "original").read_bytes() == before

    def test_the_lock(self, run: Path, victim: Path) -> None:
        (run / "lock").unlink()
        (run / "lock").symlink_to(victim)
        with pytest.raises(SimulationError, match="lock is a symbolic link"):
            resume(run, {"rounds": 5})

    def test_metrics_of_a_new_run(self, tmp_path: Path, victim: Path) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "metrics.jsonl").symlink_to(victim)
        with pytest.raises(SimulationError, match=r"cannot write .*metrics\.jsonl"):
            simulate(small_config(out=str(tmp_path / "new")))

    def test_the_records_of_clients(self, tmp_path: Path, victim: Path) -> None:
        clients = tmp_path / "new" / "clients"
        clients.mkdir(parents=True)
        (clients / "chunk-00000.bin").symlink_to(victim)
        simulate(small_config(out=str(tmp_path / "new")))
        (chunk,) = clients.iterdir()
        os.rename(chunk, tmp_path / "moved")
        chunk.symlink_to(tmp_path / "moved")
        with pytest.raises(OSError, match="is a symbolic link"):
            resume(tmp_path / "new", {"rounds": 9})

    def test_plots_and_pages(self, run: Path, victim: Path) -> None:
        page = write_report([run], run / "report.html")
        written = [run / "report.html", *page.figures.iterdir()]
        assert len(written) > 4
        for path in written:
            path.unlink()
            path.symlink_to(victim)
        write_report([run], run / "report.html")
        assert not any(path.is_symlink() for path in written)


def test_plots_and_tables(tmp_path: Path, victim: Path) -> None:
    for name in ("plot.png", "table.csv"):
        (tmp_path / name).symlink_to(victim)
    save_figure(new_figure(), tmp_path / "plot.png")
    Table(["a"], [["1"]]).save_csv(tmp_path / "table.csv")


@pytest.mark.parametrize("name", ["file.part", "file.part.json", "file"])
def test_downloads(tmp_path: Path, victim: Path, server: Server, name: str) -> None:
    (tmp_path / name).symlink_to(victim)
    expected = Download("file", server.url, hashlib.md5(server.files["/file"]).hexdigest())
    if name == "file.part":  # it would be continued
        with pytest.raises(DownloadError, match=r"file\.part is a symbolic link"):
            fetch(server.url, tmp_path / "file", expected)
    else:
        fetch(server.url, tmp_path / "file", expected)
        assert (tmp_path / "file").read_bytes() == server.files["/file"]
