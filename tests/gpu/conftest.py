"""Everything in this folder needs a GPU, and an extension that was built with the CUDA kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedasd_fast.kernels import loader

FOLDER = Path(__file__).parent


def missing() -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA device, or a torch without CUDA"
    if "cuda" not in loader.devices:
        return f"{loader.missing('cuda')}; build them with FORCE_CUDA=1 pip install --no-build-isolation -e ."
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:  # of the whole session, not only of this folder
        if item.path.is_relative_to(FOLDER):
            item.add_marker("gpu")
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def device() -> torch.device:
    """With its number, as tensors report it."""
    return torch.device("cuda", torch.cuda.current_device())
