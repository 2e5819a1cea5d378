"""scikit-learn's handwritten digits: 1,797 real images of 8x8 that come with the library, so nothing is downloaded.

Pixels 0 .. 16 become uint8 by x * 255 / 16, rounded: [n, 1, 8, 8].  There is no published split; every fifth sample of
a class (the 5th, 10th, ...) is for testing, so that both parts have the same label distribution: 1,442 and 355 samples.
"""

from __future__ import annotations

import numpy as np

from .reader import DecodedArrays, import_optional


def read_digits() -> DecodedArrays:
    bunch = import_optional("sklearn.datasets").load_digits()
    y = bunch.target.astype(np.int64)
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    test = np.zeros(len(y), bool)
    for label in range(10):
        test[np.flatnonzero(y == label)[4::5]] = True
    return DecodedArrays(x[~test], y[~test], x[test], y[test], num_classes=10)
