from __future__ import annotations

import numpy as np
import pytest
import torch

from fedasd_fast.data.transform import augment, to_float


def image_by_image(inputs, rng, pad):
    """The same draws, in the same order, one image at a time."""
    n, channels, height, width = inputs.shape
    flips, shifts, offsets = rng.random(n), rng.random(n), rng.integers(0, 2 * pad + 1, size=(n, 2))
    out = []
    for i, image in enumerate(inputs.numpy()):
        if flips[i] < 0.5:
            image = image[:, :, ::-1]
        if shifts[i] < 0.5:
            canvas = np.zeros((channels, height + 2 * pad, width + 2 * pad), image.dtype)
            canvas[:, pad : pad + height, pad : pad + width] = image
            top, left = offsets[i]
            image = canvas[:, top : top + height, left : left + width]
        out.append(image)
    return torch.from_numpy(np.stack(out))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("shape", "pad"), [((64, 3, 32, 32), 4), ((33, 1, 6, 9), 2), ((5, 2, 3, 3), 0), ((1, 3, 4, 4), 6)]
)
def test_augment_agrees_with_image_by_image(shape, pad, dtype):
    x = torch.arange(1, 1 + int(np.prod(shape)), dtype=dtype).view(shape)
    before = x.clone()
    out = augment(x, np.random.default_rng(1), pad)
    assert torch.equal(out, image_by_image(x, np.random.default_rng(1), pad))
    assert out.dtype == dtype
    assert out.is_contiguous()
    assert torch.equal(x, before)
    assert torch.equal(out, augment(x, np.random.default_rng(1), pad))


def test_augment_of_a_strided_view():
    x = torch.randn(6, 8, 8, 3, generator=torch.Generator().manual_seed(0)).permute(0, 3, 1, 2)
    expected = image_by_image(x.contiguous(), np.random.default_rng(2), 4)
    assert torch.equal(augment(x, np.random.default_rng(2)), expected)


def test_how_often_images_are_mirrored_and_shifted():
    image = torch.arange(9.0).view(1, 1, 3, 3) + 1
    out = augment(image.expand(4000, 1, 3, 3), np.random.default_rng(0), 1)
    kept = (out == image).flatten(1).all(1).double().mean().item()
    mirrored = (out == image.flip(3)).flatten(1).all(1).double().mean().item()
    assert kept == pytest.approx(0.5 * (0.5 + 0.5 / 9), abs=0.03)  # one shift in nine is none
    assert mirrored == pytest.approx(kept, abs=0.04)


@pytest.mark.parametrize("x", [torch.zeros(2, 3), torch.zeros(2, 3, 4, 4, dtype=torch.uint8)])
def test_only_float_images_are_augmented(x):
    with pytest.raises(ValueError, match=r"needs floating point images .* augment: none"):
        augment(x, np.random.default_rng(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalisation(dtype):
    x = torch.randint(0, 256, (7, 3, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    out = to_float(x, mean, std, dtype)
    expected = np.stack([(x[:, c].numpy() / 255 - mean[c]) / std[c] for c in range(3)], axis=1)
    assert out.dtype == dtype
    np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-14)
    assert torch.equal(to_float(x, None, None, dtype), x.to(dtype) / 255)


def test_features_are_only_cast():
    x = torch.randn(4, 6)
    assert to_float(x, None, None, torch.float32) is x
    assert torch.equal(to_float(x, None, None, torch.float64), x.double())
