"""Dataset files, caches and downloads that somebody made up: one error that names the file, in bounded memory."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.data import DataError, archives, load_dataset
from fedasd_fast.data.catalogue import CATALOGUE, Download
from fedasd_fast.data.download import DownloadError, fetch

from ..data.layouts import mnist, tinyimagenet
from ..data.test_download import Handler, Server, server

__all__ = ["server"]


@contextmanager
def bounded_memory(extra: int) -> Iterator[None]:
    """No more than `extra` bytes of address space can be added."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class TestIdx:
    def test_a_gzip_bomb(self, tmp_path: Path) -> None:
        """Megabytes that stand for a gigabyte and a half, in agreement with their header."""
        mnist(tmp_path / "mnist")
        path = next((tmp_path / "mnist").glob("train-images*"))
        path.unlink()
        with gzip.open(path.with_name("train-images-idx3-ubyte.gz"), "wb", compresslevel=1) as file:
            file.write(bytes([0, 0, 8, 3]) + struct.pack(">3I", 3, 1 << 14, 1 << 15))
            for _ in range(96):
                file.write(bytes(1 << 24))
        with bounded_memory(1 << 30), pytest.raises(DataError, match="unpacks to more than 268,435,456 bytes"):
            load_dataset("mnist", tmp_path)

    @pytest.mark.parametrize("ending", ["", ".gz"])
    def test_an_endless_file(self, tmp_path: Path, ending: str) -> None:
        mnist(tmp_path / "mnist")
        for path in (tmp_path / "mnist").glob("train-images*"):
            path.unlink()
        (tmp_path / "mnist" / f"train-images-idx3-ubyte{ending}").symlink_to("/dev/zero")
        with pytest.raises(DataError, match="is missing"):
            load_dataset("mnist", tmp_path)


class TestTinyImageNet:
    @pytest.mark.parametrize("name", ["../../../secret.JPEG", "/dev/zero", "../../wnids.txt", "pipe", "zero.JPEG", "."])
    def test_annotations_that_point_elsewhere(self, tmp_path: Path, name: str) -> None:
        folder = tmp_path / "tiny-imagenet-200"
        tinyimagenet(folder)
        images = folder / "val" / "images"
        (tmp_path / "secret.JPEG").write_bytes(next(images.iterdir()).read_bytes())
        (images / "zero.JPEG").symlink_to("/dev/zero")
        os.mkfifo(images / "pipe")
        annotations = folder / "val" / "val_annotations.txt"
        annotations.write_text(f"{name}\tn01\t0\n{annotations.read_text()}")
        with pytest.raises(DataError, match=r"val_annotations.txt, line 1: val/images/.* is missing"):
            load_dataset("tinyimagenet", tmp_path)

    def test_a_bomb_in_the_archive(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(archives, "MAX_FILE_BYTES", 1 << 24)
        with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("tiny/train/n01/images/a.JPEG", b"x")
            with archive.open("tiny/val/val_annotations.txt", "w") as file:
                for _ in range(16):
                    file.write(bytes(1 << 24))
        with bounded_memory(1 << 27), pytest.raises(DataError, match="unpacks to 268,435,456 bytes"):
            load_dataset("tinyimagenet", tmp_path)


def change(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda header: {**header, key: value}


def change_array(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    entry = lambda header: {**header["arrays"]["train_y"], key: value}  # noqa: E731
    return lambda header: {**header, "arrays": {**header["arrays"], "train_y": entry(header)}}


HEADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a list": lambda header: [header],
    "classes a text": change("num_classes", "10"),
    "no classes": change("num_classes", 0),
    "fewer classes than labels": change("num_classes", 1),
    "a huge number of classes": change("num_classes", 10**12),
    "mean of texts": change("mean", ["a"]),
    "std of 0": change("std", [0.0]),
    "notices a number": change("notices", 3),
    "notices of numbers": change("notices", [3]),
    "format a list": change("format", [1]),
    "arrays a list": change("arrays", []),
    "a path": lambda header: {**header, "arrays": {**header["arrays"], "../../../x": header["arrays"]["train_y"]}},
    "bytes a text": change_array("bytes", "1"),
    "bytes a huge number": change_array("bytes", 10**30),
    "shape a text": change_array("shape", "[]"),
    "checksum a number": change_array("sha256", 3),
    "entry without a checksum": change_array("sha256", None),
    "deep": lambda header: "DEEP",
}


class TestCache:
    @pytest.fixture
    def header(self, tmp_path: Path) -> Path:
        mnist(tmp_path / "mnist")
        load_dataset("mnist", tmp_path)
        (found,) = tmp_path.rglob("header.json")
        return found

    @pytest.mark.parametrize("kind", HEADERS)
    def test_a_forged_header_is_replaced(
        self, header: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
    ) -> None:
        good = load_dataset("mnist", tmp_path)
        forged = HEADERS[kind](json.loads(header.read_text()))
        header.write_text("[" * 100_000 if forged == "DEEP" else json.dumps(forged))
        found = load_dataset("mnist", tmp_path)
        assert "rebuilding the cache" in caplog.text
        assert (found.num_classes, found.mean, found.std) == (good.num_classes, good.mean, good.std)
        assert (found.train.inputs == good.train.inputs).all()
        assert json.loads(header.read_text())["num_classes"] == 10

    def test_an_endless_header(self, header: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        header.unlink()
        header.symlink_to("/dev/zero")
        load_dataset("mnist", tmp_path)
        assert "is not a regular file" in caplog.text

    def test_a_pipe_in_place_of_an_array(self, header: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        array = header.with_name("train_y.npy")
        array.unlink()
        os.mkfifo(array)
        content = json.loads(header.read_text())
        content["arrays"]["train_y"]["bytes"] = 0
        header.write_text(json.dumps(content))
        load_dataset("mnist", tmp_path)
        assert "is not a regular file" in caplog.text


class TestDownloads:
    def expected(self, server: Server, size: int | None = None) -> Download:
        content = server.files["/file"]
        return Download("file", server.url, hashlib.md5(content).hexdigest(), len(content) if size is None else size)

    def test_the_published_size(self, server: Server, tmp_path: Path) -> None:
        fetch(server.url, tmp_path / "file", self.expected(server))
        assert (tmp_path / "file").read_bytes() == server.files["/file"]

    @pytest.mark.parametrize("honest", [True, False])
    def test_longer_than_published(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honest: bool
    ) -> None:
        if not honest:
            without_length(monkeypatch, None)
        with pytest.raises(DownloadError, match=r"is longer than 1,000 bytes; it is not the published file"):
            fetch(server.url, tmp_path / "file", self.expected(server, 1000))
        assert list(tmp_path.iterdir()) == []
        assert len(server.requests) == 1

    @pytest.mark.parametrize("length", ["abc", "-1", "1e3", "9" * 5000, "\u0663"])
    def test_a_bad_length(self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: str) -> None:
        without_length(monkeypatch, length)
        with pytest.raises(DownloadError, match=r"the server says Content-Length"):
            fetch(server.url, tmp_path / "file", self.expected(server))

    def test_a_part_that_is_too_long_is_dropped(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file.part").write_bytes(bytes(len(server.files["/file"]) + 1))
        fetch(server.url, tmp_path / "file", self.expected(server))
        assert (tmp_path / "file").read_bytes() == server.files["/file"]

    def test_every_published_file_has_a_size(self) -> None:
        files = [f for entry in CATALOGUE.values() for variant in entry.downloads for f in entry.files(variant)]
        assert len(files) == 13
        assert all(file.size for file in files)


def without_length(monkeypatch: pytest.MonkeyPatch, instead: str | None) -> None:
    """The server says nothing about the length, or something else."""
    send = Handler.send_header

    def changed(self: Handler, name: str, value: str) -> None:
        if name != "Content-Length":
            send(self, name, value)
        elif instead is not None:
            send(self, name, instead.encode().decode("latin1"))

    monkeypatch.setattr(Handler, "send_header", changed)
