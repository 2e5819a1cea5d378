"""The dataset cache: built once, verified when opened, safe with several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from fedasd_fast.data import cache, load_dataset
from fedasd_fast.data.archives import Files
from fedasd_fast.data.reader import DataError, DecodeContext, DecodedArrays

from .layouts import cifar10_python, mnist, pixels


class Builder:
    """Counts how often it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.built = folder, 0
        (folder / "source").mkdir(parents=True)
        (folder / "source" / "file").write_text("content")

    def build(self, context: DecodeContext) -> DecodedArrays:
        self.built += 1
        x = context.allocate("train_x", (5, 1, 2, 2))
        x[:] = pixels(5, 1, 2, 2)
        y = np.arange(5)
        return DecodedArrays(x, y, x[:2].copy(), y[:2], 5, (0.5,), (0.25,), users=y, notices=("small",))

    def load(self, **options: int) -> DecodedArrays:
        return cache.cached("set", Files(self.folder / "source"), options, self.folder, self.build)

    @property
    def place(self) -> Path:
        return next((self.folder / ".fedasd-cache").glob("set-*"))


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return Builder(tmp_path / "data")


def same(one: DecodedArrays, other: DecodedArrays) -> bool:
    values = (one.num_classes, one.mean, one.std, one.notices) == (
        other.num_classes, other.mean, other.std, other.notices
    )  # fmt: skip
    return values and all(np.array_equal(a, other.named()[key]) for key, a in one.named().items())


def test_built_once(builder: Builder, tmp_path: Path) -> None:
    first = builder.load()
    assert same(first, builder.load())
    assert same(first, builder.build(DecodeContext()))
    assert builder.built == 2  # the second one is the line above
    assert isinstance(first.train_x, np.memmap)
    assert os.listdir(builder.folder / ".fedasd-cache") == [builder.place.name]  # nothing unfinished
    assert not (tmp_path / "home").exists()


def test_options_have_caches_of_their_own(builder: Builder) -> None:
    builder.load(image_size=1)
    builder.load(image_size=2)
    builder.load(image_size=1)
    assert builder.built == 2


def test_writing_to_a_tensor_changes_no_file(builder: Builder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = torch.from_numpy(builder.load().train_x)
    before = (builder.place / "train_x.npy").read_bytes()
    tensor.zero_()
    assert (builder.place / "train_x.npy").read_bytes() == before


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("train_x.npy", "flip"),
        ("train_y.npy", "truncate"),
        ("users.npy", "remove"),
        ("header.json", "truncate"),
        ("header.json", "empty"),
        ("header.json", "list"),
        ("header.json", "format"),
        ("test_x.npy", "other"),
    ],
)
def test_damage_is_repaired(builder: Builder, file: str, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    builder.load()
    good = builder.build(DecodeContext())  # in memory, out of the damage's reach
    path = builder.place / file
    content = path.read_bytes()
    if damage == "flip":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "remove":
        path.unlink()
    elif damage == "format":
        path.write_text(json.dumps({**json.loads(content), "format": 0}))
    elif damage == "other":
        np.save(path, np.zeros((2, 1, 2, 2), np.int8))
    else:
        path.write_text("" if damage == "empty" else "[1]")
    assert same(builder.load(), good)
    assert "rebuilding the cache" in caplog.text
    assert same(builder.load(), good)
    assert builder.built == 3


def test_changed_source(builder: Builder) -> None:
    builder.load()
    (builder.folder / "source" / "another").write_text("")
    builder.load()
    os.utime(builder.folder / "source" / "file", (1, 1))
    builder.load()
    assert builder.built == 3


def test_large_caches_are_checked_if_touched(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.load()
    monkeypatch.setattr(cache, "ALWAYS_CHECKED_BYTES", 10)
    monkeypatch.setattr(cache, "_checked", set())
    path = builder.place / "train_x.npy"
    info, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(info.st_mtime_ns, info.st_mtime_ns))
    builder.load()
    assert builder.built == 1  # the documented limit of this check
    os.utime(path)
    builder.load()
    assert builder.built == 2


def test_data_folder_that_cannot_be_written(builder: Builder, tmp_path: Path) -> None:
    (builder.folder / ".fedasd-cache").write_text("a file in the way; even root cannot make a folder here")
    first = builder.load()
    assert same(first, builder.load())
    assert builder.built == 1
    assert len(list((tmp_path / "home" / "fedasd_fast").iterdir())) == 1


def test_no_place_at_all(builder: Builder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (builder.folder / ".fedasd-cache").write_text("")
    (tmp_path / "home").write_text("")
    assert same(builder.load(), builder.build(DecodeContext()))
    assert "decoded into memory" in caplog.text


def test_full_disk(builder: Builder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    assert len(builder.load().train_y) == 5
    assert "No space left on device" in caplog.text
    assert os.listdir(builder.folder / ".fedasd-cache") == []


def test_errors_of_readers_leave_nothing(builder: Builder) -> None:
    def fail(context: DecodeContext) -> DecodedArrays:
        context.allocate("train_x", (1000,))
        raise DataError("bad file")

    with pytest.raises(DataError, match="bad file"):
        cache.cached("set", Files(builder.folder / "source"), {}, builder.folder, fail)
    assert os.listdir(builder.folder / ".fedasd-cache") == []


def test_abandoned_builds_are_removed(builder: Builder) -> None:
    old, recent = builder.folder / ".fedasd-cache" / ".new-old", builder.folder / ".fedasd-cache" / ".new-recent"
    old.mkdir(parents=True)
    recent.mkdir()
    os.utime(old, (1, 1))
    builder.load()
    assert (old.exists(), recent.exists()) == (False, True)


def test_moved_data_keeps_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mnist(tmp_path / "here" / "mnist")
    load_dataset("mnist", tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    monkeypatch.setattr(cache, "_write", None)  # would fail
    load_dataset("mnist", tmp_path / "there")


def _load(folder: Path, queue: multiprocessing.Queue[int]) -> None:
    for _ in range(20):
        for path in (folder / ".fedasd-cache").glob("cifar10-*/header.json"):
            path.unlink(missing_ok=True)  # so that all of them build, all the time
        queue.put(int(load_dataset("cifar10", folder).train.inputs.numpy().sum()))


def test_several_builders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    x, _ = cifar10_python(tmp_path / "cifar-10-batches-py")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_load, args=(tmp_path, queue)) for _ in range(3)]
    for process in processes:
        process.start()
    assert [queue.get(timeout=60) for _ in range(60)] == [int(x.astype(int).sum())] * 60
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert not (tmp_path / "home").exists()  # never pushed aside
    assert len(os.listdir(tmp_path / ".fedasd-cache")) == 1
