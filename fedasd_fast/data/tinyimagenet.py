"""Tiny-ImageNet-200 as published: train/<class>/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt.

Classes are numbered in the order of their sorted ids, in both splits.  The published `test` has no labels: `val` is the
test set, as everywhere.  A copy with fewer classes works; its classes are the ones in `train`.
"""

from __future__ import annotations

import numpy as np

from .archives import Files
from .images import ImageOptions, decode_all, is_image
from .reader import DataError, DecodeContext, DecodedArrays

ANNOTATIONS = "val/val_annotations.txt"


def read_tinyimagenet(files: Files, options: ImageOptions, context: DecodeContext) -> DecodedArrays:
    train = [name for name in files.names if name.startswith("train/") and is_image(name)]
    if not train:
        raise DataError(f"{files.where('train')} has no images; expected train/<class>/images/*.JPEG")
    classes = sorted({_class_of(name) for name in train})
    number = {wnid: label for label, wnid in enumerate(classes)}
    test, test_y, others = _validation(files, number)
    arrays = decode_all(files, {"train_x": train, "test_x": test}, options.image_size, context)
    return DecodedArrays(
        train_x=arrays["train_x"],
        train_y=np.array([number[_class_of(name)] for name in train], np.int64),
        test_x=arrays["test_x"],
        test_y=np.array(test_y, np.int64),
        num_classes=len(classes),
        notices=_notices(files, classes, others),
    )


def _class_of(name: str) -> str:
    return name.split("/")[1]


def _validation(files: Files, number: dict[str, int]) -> tuple[list[str], list[int], int]:
    """Files and labels, and the number of images whose class is not in `train`."""
    names, labels, others, known = [], [], 0, files.names
    for line, text in enumerate(files.read(ANNOTATIONS).decode("utf-8", "replace").splitlines(), 1):
        fields = text.split("\t")
        if len(fields) < 2:
            raise DataError(f"{files.where(ANNOTATIONS)}, line {line}: {text!r}; expected file name, tab, class id")
        if fields[1] in number:
            if (name := f"val/images/{fields[0]}") not in known:
                raise DataError(f"{files.where(ANNOTATIONS)}, line {line}: {name:.200} is missing in {files.path}")
            names.append(name)
            labels.append(number[fields[1]])
        else:
            others += 1
    if not names:
        raise DataError(f"{files.where(ANNOTATIONS)} has no image of a class in {files.where('train')}")
    return names, labels, others


def _notices(files: Files, classes: list[str], others: int) -> tuple[str, ...]:
    notices = [f"{len(classes)} of the 200 published classes"] if len(classes) != 200 else []
    if "wnids.txt" in files.names:
        listed = files.read("wnids.txt").decode("utf-8", "replace").split()
        if set(classes) - set(listed):
            extra = min(set(classes) - set(listed))
            raise DataError(
                f"{files.where('train/' + extra)} is not listed in {files.where('wnids.txt')}; correct one of them"
            )
        if len(listed) != len(classes):
            notices.append(f"wnids.txt lists {len(listed)} classes, train has {len(classes)}")
    return (*notices, f"{others} validation images of other classes are left out") if others else tuple(notices)
