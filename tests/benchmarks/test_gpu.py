"""The GPU benchmark without a GPU: what it counts and writes, and that it says so where it cannot run."""

import json
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gpu
from benchmarks.cases import make_case
from benchmarks.cuda import work_in
from benchmarks.gpu_report import DESCRIPTIONS, bytes_moved, markdown, peak_bandwidth, table
from benchmarks.results import summary
from fedasd_fast.kernels import loader

ENVIRONMENT = {"date": "2025-01-01", "versions": {"torch": "2", "python": "3", "fedasd_fast": "0"}}
DEVICE = {
    "name": "Some GPU", "capability": "9.0", "cuda": "12.8", "l2_bytes": 50 * 2**20, "flush_bytes": 100 * 2**20,
    "bandwidth": 2e12, "bandwidth_source": "theoretical: memory clock x bus width",
}  # fmt: skip


def row(name, median, **others):
    times = {"best": 0.9 * median, "median": median, "p20": 0.95 * median, "p80": 1.1 * median}
    rest = {"bandwidth": 0.5, "launches": 1, "back_to_back": None, "grad_error": 1e-7, "loss_error": 0.0}
    return {"shape": "5x4", "implementation": name, **times, **rest, **others}


@pytest.mark.parametrize(("shape", "clients", "rows", "classes"), [((5, 4), 1, 5, 4), ((3, 5, 4), 3, 15, 4)], ids=str)
def test_bytes(shape, clients, rows, classes):
    case = make_case(shape)
    matrix = 4 * rows * classes
    assert bytes_moved(case, cached=False) == 3 * matrix + rows * (8 + 4) + 4 * clients
    assert bytes_moved(case, cached=True) == 3 * matrix + rows * (8 + 8 + 8 + 8 + 8) + 4 * clients


def test_theoretical_bandwidth():
    h100 = SimpleNamespace(memory_clock_rate=2_619_000, memory_bus_width=5120)
    assert peak_bandwidth(h100) == pytest.approx(3.352e12, rel=1e-3)
    assert peak_bandwidth(SimpleNamespace()) is None
    assert peak_bandwidth(SimpleNamespace(memory_clock_rate=0, memory_bus_width=0)) is None


def test_summary():
    assert summary([3.0, 1.0, 2.0, 6.0, 4.0, 5.0]) == {"best": 1.0, "median": 3.5, "p20": 2.0, "p80": 5.0}


def test_only_work_of_the_gpu_counts_as_a_launch():
    events = [
        {"ph": "M", "name": "process_name"},
        {"ph": "X", "cat": "kernel", "name": "second", "ts": 2.0},
        {"ph": "X", "cat": "gpu_memset", "name": "first", "ts": 1.0},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0.5},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "a range", "ts": 0.0},
    ]
    assert work_in({"traceEvents": events}) == [("gpu_memset", "first"), ("kernel", "second")]


def test_table():
    unknown = row("copy", 5e-6, launches=None, grad_error=None)
    text = table([row("eager_minimal", 2e-4), row("loss_and_grad", 1.25e-5, back_to_back=6e-6), unknown])
    lines = text.splitlines()
    assert lines[2] == "| `eager_minimal` | 200 | 180 | 190 - 220 | 1 | 50% | 1 | - | 1e-07 |"
    assert lines[3] == "| `loss_and_grad` | 12.5 | 11.2 | 11.9 - 13.8 | 16 | 50% | 1 | 6 | 1e-07 |"
    assert lines[4] == "| `copy` | 5 | 4.5 | 4.75 - 5.5 | 40 | 50% | - | - | - |"


def test_results_are_written(tmp_path):
    rows = [row("eager_minimal", 2e-4), row("copy", 5e-6)]
    result = {
        "environment": ENVIRONMENT,
        "gpu": DEVICE,
        "settings": {"quick": True, "rounds": 5},
        "skipped": {"5x4 compiled_minimal": "no triton"},
        "rows": rows,
    }
    gpu.write(tmp_path / "new", result)
    assert json.loads((tmp_path / "new/results.json").read_text()) == result
    text = (tmp_path / "new/results.md").read_text()
    assert text == markdown(result)
    for part in ("Some GPU", "2,000 GB/s (theoretical", "## 5 x 4", "| `copy` |", "no triton", "quick run"):
        assert part in text


def test_every_implementation_is_described_and_measured(monkeypatch):
    """All but the timing itself, on the CPU."""
    monkeypatch.setattr(gpu, "Graph", lambda call: call)
    monkeypatch.setattr(gpu, "launches", lambda call: [call()])
    monkeypatch.setattr(gpu, "back_to_back", lambda call, calls, rounds: [2e-6])
    monkeypatch.setattr(gpu.torch, "compile", lambda function, dynamic: function)
    timer = SimpleNamespace(device_times=lambda calls, rounds: {name: [1e-6, 2e-6, 3e-6] for name in calls})
    case = gpu.on_device(make_case((3, 5, 4)), torch.device("cpu"))
    rows = gpu.measure(case, timer, 1e12, 3, {})
    assert [row["implementation"] for row in rows] == list(DESCRIPTIONS) == list(gpu.GPU_IMPLEMENTATIONS)
    for measured in rows:
        if measured["implementation"] != "copy":
            assert measured["grad_error"] < 1e-5
        assert measured["bandwidth"] == pytest.approx(measured["bytes"] / 2e-6 / 1e12)
    assert "| `eager` |" in table(rows)


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a CUDA device"):  # a text as exit code is code 1
        gpu.main([])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(loader, "devices", ("cpu",))
    with pytest.raises(SystemExit, match="FORCE_CUDA=1 pip install"):
        gpu.main([])
