"""Image files in directories and archives: Tiny-ImageNet and image folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.data import DataError, load_dataset
from fedasd_fast.data.images import decode

from .layouts import pixels, png, real, tinyimagenet, zip_of

pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.mark.parametrize("packed", [False, True])
def test_tinyimagenet(tmp_path: Path, packed: bool, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    images = tinyimagenet(folder)
    if packed:
        zip_of(folder, tmp_path / "tiny-imagenet-200.zip")
        shutil.rmtree(folder)
    seen: list[tuple[int, int]] = []
    data = load_dataset("tinyimagenet", tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert data.num_classes == 3
    assert data.train.targets.tolist() == [0, 0, 1, 1, 2, 2]  # n01, n02, n03
    expected = np.concatenate([images[wnid] for wnid in ("n01", "n02", "n03")])
    assert torch.equal(data.train.inputs, torch.from_numpy(expected))
    assert data.test.targets.tolist() == [2, 0, 1]  # val_0 is of the first class in wnids.txt, n03
    assert torch.equal(data.test.inputs[0], torch.from_numpy(images["n03"][0]))
    assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert seen[-1] == (9, 9)
    assert "3 of the 200 published classes" in caplog.text


def test_classes_that_are_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    tinyimagenet(folder)
    shutil.rmtree(folder / "train" / "n01")
    data = load_dataset("tinyimagenet", tmp_path)
    assert data.num_classes == 2
    assert data.test.targets.tolist() == [1, 0]
    assert "wnids.txt lists 3 classes, train has 2" in caplog.text
    assert "1 validation images of other classes are left out" in caplog.text


def test_grey_jpeg(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    tinyimagenet(folder)
    grey = np.full((64, 64), 77, np.uint8)
    (folder / "train" / "n01" / "images" / "n01_0.JPEG").write_bytes(png(grey, "JPEG"))
    data = load_dataset("tinyimagenet", tmp_path)
    assert (data.train.inputs[0].short() - 77).abs().max() <= 1
    assert data.train.inputs[0].shape == (3, 64, 64)


def test_damaged_tinyimagenet(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    tinyimagenet(folder)
    jpeg, annotations = folder / "train/n02/images/n02_1.JPEG", folder / "val/val_annotations.txt"
    good, lines = jpeg.read_bytes(), annotations.read_text()

    def message() -> str:
        with pytest.raises(DataError) as caught:
            load_dataset("tinyimagenet", tmp_path)
        return str(caught.value)

    for content in (b"", b"garbage", good[: len(good) // 2]):
        jpeg.write_bytes(content)
        assert "n02_1.JPEG is not a readable image" in message()
    jpeg.write_bytes(good)
    annotations.write_text(lines + "val_9.JPEG n01\n")
    assert "line 4: 'val_9.JPEG n01'; expected file name, tab" in message()
    annotations.write_text(lines + "val_9.JPEG\tn01\t0\n")
    assert "val_9.JPEG is missing" in message()
    annotations.unlink()
    assert "val_annotations.txt is missing" in message()
    annotations.write_text(lines)
    (folder / "wnids.txt").write_text("n01\nn02\n")
    assert "n03 is not listed in" in message()
    shutil.rmtree(folder / "train")
    assert "train has no images" in message()


@pytest.mark.parametrize("content", [b"no archive", None])
def test_damaged_zip(tmp_path: Path, content: bytes | None) -> None:
    tinyimagenet(tmp_path / "a" / "tiny-imagenet-200")
    archive = zip_of(tmp_path / "a" / "tiny-imagenet-200", tmp_path / "tiny-imagenet-200.zip")
    archive.write_bytes(content or archive.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"tiny-imagenet-200.zip is damaged or incomplete"):
        load_dataset("tinyimagenet", tmp_path)


def gradient(height: int, width: int) -> NDArray[np.uint8]:
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows * 255 // height, columns * 255 // width, 0 * rows]).astype(np.uint8)


def folders(root: Path, test: str = "val") -> None:
    for split in ("train", test):
        for name in ("dog", "cat"):
            (root / split / name).mkdir(parents=True)
            (root / split / name / "1.png").write_bytes(png(gradient(40, 60)))
    (root / "train" / "cat" / "2.PNG").write_bytes(png(gradient(64, 32)))
    (root / "train" / "cat" / "notes.txt").write_text("not an image")


@pytest.mark.parametrize("test", ["val", "test"])
def test_imagefolder(tmp_path: Path, test: str) -> None:
    folders(tmp_path / "imagefolder", test)
    data = load_dataset("imagefolder", tmp_path, image_size=20, mean=[0.5, 0.5, 0.5], std=[0.1, 0.2, 0.3])
    assert data.train.inputs.shape == (3, 3, 20, 20)
    assert data.train.targets.tolist() == [0, 0, 1]  # cat, cat, dog
    assert data.test.targets.tolist() == [0, 1]
    assert data.std == (0.1, 0.2, 0.3)
    assert load_dataset("imagefolder", tmp_path, image_size=20).mean == (0.485, 0.456, 0.406)  # the same cache
    assert load_dataset("imagefolder", tmp_path).train.inputs.shape == (3, 3, 64, 64)
    assert load_dataset("imagenet100", tmp_path, path="imagefolder").test.inputs.shape == (2, 3, 224, 224)


def test_shorter_side_and_centre() -> None:
    """Of 40 x 60, at 20: columns 10 .. 49 remain, two for each pixel."""
    image = decode(png(gradient(40, 60)), 20, "file", pillow).astype(float) / 255
    assert image[0, 0].mean() == pytest.approx(0.5 / 40, abs=0.01)
    assert image[1, :, 0].mean() == pytest.approx(10.5 / 60, abs=0.01)
    assert image[1, :, -1].mean() == pytest.approx(48.5 / 60, abs=0.01)
    assert decode(png(gradient(1, 9)), 7, "file", pillow).shape == (3, 7, 7)


def test_same_size_is_left_alone() -> None:
    x = pixels(1, 3, 16, 16)[0]
    assert np.array_equal(decode(png(x), 16, "file", pillow), x)


def test_linked_folders_in_a_circle(tmp_path: Path) -> None:
    folders(tmp_path / "imagefolder")
    (tmp_path / "imagefolder" / "train" / "cat" / "again").symlink_to(tmp_path / "imagefolder")
    assert len(load_dataset("imagefolder", tmp_path).train) == 3


def test_wrong_folders(tmp_path: Path) -> None:
    folders(tmp_path / "imagefolder")
    (tmp_path / "imagefolder" / "val" / "cow").mkdir()
    (tmp_path / "imagefolder" / "val" / "cow" / "1.png").write_bytes(png(gradient(8, 8)))
    with pytest.raises(DataError, match=r"val/cow/1.png is of a class that .*train does not have"):
        load_dataset("imagefolder", tmp_path)
    shutil.rmtree(tmp_path / "imagefolder" / "val")
    with pytest.raises(DataError, match="no test images"):
        load_dataset("imagefolder", tmp_path)
    with pytest.raises(ConfigError, match=r"image_size = 0; expected 1"):
        load_dataset("imagefolder", tmp_path, image_size=0)
    folders(tmp_path / "other")
    with pytest.raises(ConfigError, match="only one of mean and std"):
        load_dataset("imagefolder", tmp_path, path="other", mean=[0.5, 0.5, 0.5])


def test_real() -> None:
    data = load_dataset("tinyimagenet", real("tiny-imagenet-200"))
    classes = data.num_classes
    assert data.train.targets.bincount().tolist() == [500] * classes
    assert data.test.targets.bincount().tolist() == [50] * classes
    means = data.train.inputs[::10].double().mean((0, 2, 3)) / 255
    assert torch.allclose(means, torch.tensor(data.mean, dtype=torch.float64), atol=0.06)
