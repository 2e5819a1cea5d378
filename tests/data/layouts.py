"""Small datasets in their official layouts, and the real ones where they are present."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedasd_fast.data import data_directory

Bytes = NDArray[np.uint8]


def pixels(n: int, *shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def published_pickle(data: Bytes, labels: list[int], key: bytes = b"labels") -> bytes:
    """Opcode by opcode as Python 2 wrote the published batches (protocol 2, byte strings, old numpy names)."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    return (
        b"\x80\x02}q\x01(" + text(b"batch_label") + text(b"training batch 1 of 5")
        + text(key) + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
        + text(b"data") + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01J"
        + struct.pack("<i", len(data)) + b"M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<I", data.size) + data.tobytes() + b"tbu."
    )  # fmt: skip


def cifar10_python(folder: Path, each: int = 4) -> tuple[Bytes, list[int]]:
    """Five training batches and a test batch; returns the training pixels and labels."""
    x, y = pixels(5 * each, 3, 32, 32), [i % 10 for i in range(5 * each)]
    folder.mkdir(parents=True)
    for i in range(5):
        part = slice(i * each, (i + 1) * each)
        (folder / f"data_batch_{i + 1}").write_bytes(published_pickle(x[part], y[part]))
    (folder / "test_batch").write_bytes(published_pickle(x[:each], y[:each]))
    return x, y


def cifar100_python(folder: Path, n: int = 6) -> tuple[Bytes, list[int]]:
    """As Python 3 and today's numpy would write them: other names, strings as keys."""
    x, y = pixels(n, 3, 32, 32), [99 - i for i in range(n)]
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        content = {"data": x.reshape(n, -1), "fine_labels": y, "coarse_labels": [0] * n, "filenames": ["a.png"] * n}
        (folder / split).write_bytes(pickle.dumps(content, protocol=2))
    return x, y


def binary(folder: Path, names: tuple[str, ...], x: Bytes, labels: list[list[int]]) -> None:
    folder.mkdir(parents=True)
    records = np.concatenate([np.array(labels, np.uint8), x.reshape(len(x), -1)], axis=1)
    for name in names:
        (folder / name).write_bytes(records.tobytes())


def tar_of(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


def zip_of(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(folder.rglob("*")):
            packed.write(path, path.relative_to(folder.parent))
    return archive


def idx(array: Bytes, packed: bool = False) -> bytes:
    content = struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
    return gzip.compress(content) if packed else content


def mnist(folder: Path, packed: bool = False, n: int = 12) -> tuple[Bytes, Bytes]:
    x, y = pixels(n, 28, 28), np.arange(n, dtype=np.uint8) % 10
    folder.mkdir(parents=True)
    end = ".gz" if packed else ""
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte{end}").write_bytes(idx(x, packed))
        (folder / f"{split}-labels-idx1-ubyte{end}").write_bytes(idx(y, packed))
    return x, y


def png(array: Bytes, format: str = "PNG") -> bytes:
    """[H, W] grey or [3, H, W]; PNG keeps every pixel."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    stream = io.BytesIO()
    image.fromarray(array if array.ndim == 2 else array.transpose(1, 2, 0)).save(stream, format)
    return stream.getvalue()


def tinyimagenet(folder: Path, classes: tuple[str, ...] = ("n03", "n01", "n02"), each: int = 2) -> dict[str, Bytes]:
    """Lossless files under the official names; returns the training pixels by class."""
    images = {wnid: pixels(each, 3, 64, 64, seed=i) for i, wnid in enumerate(classes)}
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(classes) + "\n")
    annotations = []
    for i, (wnid, x) in enumerate(images.items()):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        for j in range(each):
            (folder / "train" / wnid / "images" / f"{wnid}_{j}.JPEG").write_bytes(png(x[j]))
        (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(png(x[0]))
        annotations.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(annotations))
    return images


def real(place: str) -> Path:
    """FEDASD_DATA, if it has the real dataset; otherwise the test is skipped."""
    folder = data_directory() if "FEDASD_DATA" in os.environ else None
    if folder is None or not (folder / place).exists():
        pytest.skip(f"FEDASD_DATA has no {place}: the real dataset is not here")
    return folder


def arguments(**changes: Any) -> dict[str, Any]:
    n = 9
    return {
        "train_x": pixels(n, 28, 28),
        "train_y": np.arange(n) % 3,
        "train_users": np.array(["b", "a", "c"] * 3),
        "test_x": pixels(2, 28, 28, seed=1),
        "test_y": np.array([0, 2]),
        **changes,
    }
