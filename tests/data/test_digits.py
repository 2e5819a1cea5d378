"""The digits inside scikit-learn."""

from __future__ import annotations

import pytest
import torch

from fedasd_fast.data import load_dataset
from fedasd_fast.data.npz import channel_statistics
from fedasd_fast.data.reader import import_optional

sklearn = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")


def test_digits() -> None:
    data, source = load_dataset("digits"), sklearn.load_digits()
    assert data.train.inputs.shape == (1442, 1, 8, 8)
    assert data.test.inputs.shape == (355, 1, 8, 8)
    together = torch.cat([data.train.inputs, data.test.inputs])
    assert int(together.max()) == 255
    # Every sample is in exactly one part, and 0 .. 16 can be told from the bytes.
    levels = (together.double() * 16 / 255).round()
    assert torch.equal(levels.sum((1, 2, 3)).sort().values, torch.from_numpy(source.images.sum((1, 2))).sort().values)
    shares = data.test.targets.bincount() / torch.from_numpy(source.target).bincount()
    assert shares.min() > 0.19
    assert shares.max() < 0.21


def test_normalisation_is_of_the_training_part() -> None:
    data = load_dataset("digits")
    mean, std = channel_statistics(data.train.inputs.numpy())
    assert data.mean is not None
    assert data.mean == pytest.approx(mean, abs=1e-4)
    assert data.std == pytest.approx(std, abs=1e-4)


def test_missing_dependency() -> None:
    with pytest.raises(ImportError, match=r"pip install 'fedasd-fast\[simulation\]'"):
        import_optional("a_module_that_is_not_there")
