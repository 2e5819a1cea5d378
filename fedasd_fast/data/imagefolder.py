"""Images sorted into one directory for each class: train/<class>/... and val/<class>/... (or test/); ImageNet-100 too.

Classes are numbered in the order of their sorted names in `train`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .archives import Files
from .images import ImageOptions, decode_all, is_image
from .reader import Array, DataError, DecodeContext, DecodedArrays

TEST_FOLDERS = ("val", "test", "validation")


@dataclass(frozen=True)
class FolderOptions(ImageOptions):
    mean: tuple[float, ...] | None = None  # of each channel, of values in [0, 1]; null: ImageNet's
    std: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ImageNet100Options(ImageOptions):
    image_size: int = 224


def read_imagefolder(files: Files, options: ImageOptions, context: DecodeContext) -> DecodedArrays:
    train = _images(files, "train")
    if not train:
        raise DataError(f"{files.where('train')} has no images; expected train/<class>/*.jpg (or .png, .webp, ...)")
    test = next((names for folder in TEST_FOLDERS if (names := _images(files, folder))), [])
    if not test:
        raise DataError(f"{files.path} has no test images; expected val/<class>/*.jpg or test/<class>/*.jpg")
    number = {name: label for label, name in enumerate(sorted({_class_of(name) for name in train}))}
    for name in test:
        if _class_of(name) not in number:
            raise DataError(f"{files.where(name)} is of a class that {files.where('train')} does not have")

    def labels(names: list[str]) -> Array:
        return np.array([number[_class_of(name)] for name in names], np.int64)

    arrays = decode_all(files, {"train_x": train, "test_x": test}, options.image_size, context)
    return DecodedArrays(arrays["train_x"], labels(train), arrays["test_x"], labels(test), len(number))


def _images(files: Files, folder: str) -> list[str]:
    return [name for name in files.names if name.startswith(f"{folder}/") and name.count("/") > 1 and is_image(name)]


def _class_of(name: str) -> str:
    return name.split("/")[1]
