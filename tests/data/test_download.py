"""Downloads from a server that drops, forgets, changes and refuses."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.data import DatasetNotFound, DownloadError, catalogue, download, get, load_dataset
from fedasd_fast.data.catalogue import Download

from .layouts import mnist

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Server(ThreadingHTTPServer):
    """Serves `files`; the other attributes say how badly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/file": CONTENT}
        self.ranges = True  # honours Range
        self.confused: list[int] = []  # of the next ranges, bytes they begin too early
        self.validator: str | None = "ETag"
        self.drops: list[int] = []  # of the next answers, bytes after which the connection is cut
        self.errors: list[int] = []  # status codes of the next answers
        self.requests: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.requests.append(dict(self.headers))
        content = server.files.get(self.path)
        if server.errors or content is None:
            self.send_error(server.errors.pop(0) if server.errors else 404)
            return
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match and server.ranges else 0
        if self.headers.get("If-Range", tag) != tag:
            start = 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        if start and server.confused:
            start -= server.confused.pop(0)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        if server.validator:
            self.send_header(server.validator, tag)
        self.end_headers()
        end = start + server.drops.pop(0) if server.drops else len(content)
        self.wfile.write(content[start:end])
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "BACKOFF_SECONDS", 0.001)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def expected(content: bytes = CONTENT) -> Download:
    return Download("file", "", hashlib.md5(content).hexdigest())


def fetch(server: Server, folder: Path, content: bytes = CONTENT, **keywords: Any) -> bytes:
    download.fetch(server.url, folder / "file", expected(content), **keywords)
    assert sorted(path.name for path in folder.iterdir()) == ["file"]  # no leftovers
    return (folder / "file").read_bytes()


def test_plain(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    assert fetch(server, tmp_path, progress=lambda *report: seen.append(report)) == CONTENT
    assert seen[-1] == ("file", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    fetch(server, tmp_path)
    assert len(server.requests) == 1  # a complete file is kept


@pytest.mark.parametrize("validator", ["ETag", "Last-Modified", None])
def test_dropped_connections(server: Server, tmp_path: Path, validator: str | None) -> None:
    server.validator = validator
    server.drops = [100_000, 0, 1, 300_000, 0, 0, 0]  # never MAX_ATTEMPTS times without a byte
    assert fetch(server, tmp_path) == CONTENT
    assert [request.get("Range") for request in server.requests] == [
        None, *["bytes=100000-"] * 2, "bytes=100001-", *["bytes=400001-"] * 4
    ]  # fmt: skip
    assert all(("If-Range" in request) == (validator is not None) for request in server.requests[1:])


def test_server_that_ignores_ranges(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.drops = [100_000, 200_000]
    assert fetch(server, tmp_path) == CONTENT
    assert len(server.requests) == 3


def test_server_that_sends_another_range(server: Server, tmp_path: Path) -> None:
    server.drops, server.confused = [100_000], [1]
    assert fetch(server, tmp_path) == CONTENT
    assert [request.get("Range") for request in server.requests] == [None, "bytes=100000-", None]


def test_gives_up_and_continues_later(server: Server, tmp_path: Path) -> None:
    server.drops = [1000] + [0] * 10
    with pytest.raises(DownloadError, match=r"5 times in a row; 1,000 bytes are kept in .*file\.part"):
        fetch(server, tmp_path)
    server.drops = []
    assert fetch(server, tmp_path) == CONTENT
    assert server.requests[-1]["Range"] == "bytes=1000-"


@pytest.mark.parametrize("validator", ["ETag", None])
@pytest.mark.parametrize("change", ["another", "longer", "shorter"])
def test_file_that_changes_meanwhile(server: Server, tmp_path: Path, validator: str | None, change: str) -> None:
    """With a validator the server tells; without, the checksum does, and all is fetched again."""
    server.validator = validator
    server.drops = [600_000] + [0] * 4
    with pytest.raises(DownloadError, match="600,000 bytes are kept"):
        fetch(server, tmp_path)
    server.drops = []
    new = {"another": CONTENT[::-1], "longer": b"x" + CONTENT, "shorter": CONTENT[5:1000]}[change]
    server.files["/file"] = new
    assert fetch(server, tmp_path, new) == new


def test_complete_part_only_needs_its_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert fetch(server, tmp_path) == CONTENT


def test_foreign_part(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"something else")
    (tmp_path / "file.part.json").write_text("not json")
    assert fetch(server, tmp_path) == CONTENT


def test_wrong_checksum(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"has md5 [0-9a-f]{32}, expected [0-9a-f]{32}; it is not the published"):
        fetch(server, tmp_path, b"what was published")
    assert list(tmp_path.iterdir()) == []
    assert len(server.requests) == 1


def test_damaged_file_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT[:-1])
    assert fetch(server, tmp_path) == CONTENT


def test_refusals(server: Server, tmp_path: Path) -> None:
    server.errors = [404]
    with pytest.raises(DownloadError, match=r"/file: the server returned 404 Not Found; give another address"):
        fetch(server, tmp_path)
    assert len(server.requests) == 1
    server.errors = [503, 500, 429]  # these may pass
    assert fetch(server, tmp_path) == CONTENT
    with pytest.raises(DownloadError, match="expected an address that begins with https://"):
        download.fetch("file:///etc/passwd", tmp_path / "x", expected())


def test_nobody_there(server: Server, tmp_path: Path) -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    closed.server_close()
    with pytest.raises(DownloadError, match="no connection"):
        download.fetch(f"http://127.0.0.1:{closed.server_port}/file", tmp_path / "file", expected())


def test_unwritable_folder(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("in the way")
    with pytest.raises(DownloadError, match="cannot be written"):
        download.fetch(server.url, tmp_path / "folder" / "file", expected())


def test_dataset_of_several_files(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = mnist(tmp_path / "source", packed=True)
    files = []
    for path in sorted((tmp_path / "source").iterdir()):
        server.files[f"/mirror/{path.name}"] = path.read_bytes()
        files.append(Download(f"mnist/{path.name}", "http://127.0.0.1:1/", hashlib.md5(path.read_bytes()).hexdigest()))
    entry = catalogue.CATALOGUE["mnist"]
    monkeypatch.setitem(
        catalogue.CATALOGUE, "mnist", catalogue.DatasetEntry(**{**vars(entry), "downloads": {"": tuple(files)}})
    )
    place = get("mnist", tmp_path / "data", url=server.url.replace("file", "mirror/"))
    assert place == tmp_path / "data" / "mnist"
    assert (load_dataset("mnist", tmp_path / "data").train.inputs[:, 0].numpy() == x).all()
    with pytest.raises(DownloadError, match="4 files: give their directory"):
        get("mnist", tmp_path / "data", url=server.url)


def test_dataset_of_one_file(server: Server, tmp_path: Path) -> None:
    for url, name in ((server.url, "/file"), (server.url.replace("file", "x/"), "/x/cifar-10-binary.tar.gz")):
        server.files[name] = b"not CIFAR"
        with pytest.raises(DownloadError, match="expected c32a1d4ab5d03f1284b67883e8d87530"):
            get("cifar10", tmp_path, url=url, variant="binary")


def test_what_cannot_be_downloaded(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFound, match=r"imagenet100 cannot be downloaded.*image-net\.org"):
        get("imagenet100", tmp_path)
    with pytest.raises(ConfigError, match="did you mean cifar"):
        get("cifar", tmp_path)
    with pytest.raises(ConfigError, match="variant = 'matlab' of cifar10; expected one of binary, python"):
        get("cifar10", tmp_path, variant="matlab")
