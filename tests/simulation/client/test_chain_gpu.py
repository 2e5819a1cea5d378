"""The whole-client op on a GPU as far as a CPU can tell: who is trained by it, and that nothing is on the wrong device.

The fake GPU does the work with the CPU's op; tests/cpp/test_chain_cuda.cpp runs the GPU's kernel.
"""

from __future__ import annotations

import pytest

from fedasd_fast.config import from_dict
from fedasd_fast.kernels import loader
from fedasd_fast.simulation import simulate
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.executors.stacked import StackedExecutor
from tests.simulation import device_checks as on_device
from tests.simulation.device_checks import FEATURES
from tests.simulation.fake_gpu import fake_gpu

pytestmark = pytest.mark.skipif(not loader.available, reason="needs the compiled extension")

CHAIN = FEATURES | {"client_op": True, "executor": "stacked"}
THERE = CHAIN | {"device": "cuda:0"}
# MLP 64-128-64-10, batches of 10.
LARGER = [64, 128, 0, 8192, 1, 128, 64, 8320, 16512, 1, 64, 10, 16576, 17216, 0]


@pytest.mark.parametrize("method", ["fedavg", "feddyn+asd", "scaffold", "fedsam+asd"])
def test_no_tensor_is_on_the_wrong_device(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackedExecutor, "train_one", None)  # an error must not lead to the serial way
    with fake_gpu():
        on_device.as_on_the_cpu(CHAIN | {"method": method}, "cuda:0", 1e-12)


def test_what_fits_is_trained_by_it() -> None:
    with fake_gpu():
        assert build_context(from_dict(THERE)).training == "whole-client op, up to 6 clients a call"
    with fake_gpu(shared_memory=4000):
        training = build_context(from_dict(THERE)).training
        assert training.startswith("stacked, 6 clients at a time (no whole-client op: a client takes ")
        assert training.endswith(" bytes of shared memory, and a block of this GPU has 4000)")
        on_device.assert_equal(simulate(THERE), simulate(THERE | {"client_op": False}), 0)
    with fake_gpu(kernels=False):
        assert "no fused kernels for 'cuda'" in build_context(from_dict(THERE)).training


def test_a_batch_is_no_larger_than_the_largest_client() -> None:
    """A batch size that means all samples does not take the memory of that many."""
    with fake_gpu():
        whole = THERE | {"batch_size": 10**6}
        assert build_context(from_dict(whole)).chain is not None
        on_device.assert_equal(simulate(whole), simulate(whole | {"client_op": False}), 1e-12)


def test_the_host_waits_no_more_for_more_steps() -> None:
    with fake_gpu() as gpu:
        simulate(THERE | {"rounds": 1})
        waits = gpu.waits.copy()
        gpu.waits.clear()
        simulate(THERE | {"rounds": 1, "local_epochs": 4})
        assert gpu.waits == waits


def test_bytes_by_hand() -> None:
    """Weights in rows of an odd number of fours, biases; inputs and gradients of ten rows, logits; two int a row."""
    parameters = 128 * 68 + 128 + 64 * 132 + 64 + 12 * 68 + 12
    activations = 10 * ((64 + 128) + (128 + 64) + (64 + 12) + 12)
    needed = 1024 + 4 * (parameters + activations) + 10 * 8

    def reason(limit: int, f64: bool = False) -> str:
        text: str = loader.module.why_not_trained_on_gpu(LARGER, 10, f64, limit)
        return text

    assert reason(needed) == ""
    assert f"{needed} bytes" in reason(needed - 1)
    assert needed < 99 * 1024  # of sm_86, 89 and 120
    assert reason(99 * 1024, f64=True)
    assert reason(227 * 1024, f64=True) == ""  # sm_90
    assert "17 layers" in loader.module.why_not_trained_on_gpu([4, 4, 0, -1, 0] * 17, 1, False, 10**6)
