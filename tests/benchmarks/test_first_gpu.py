"""The GPU report without a GPU: its steps, predictions and page, and that it says so where it cannot run."""

import importlib.util
import json
import re
import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks import divergences, gpu, gpu_simulator
from benchmarks.cases import make_case
from benchmarks.first_gpu import __main__ as first_gpu
from benchmarks.first_gpu import predictions, steps
from benchmarks.first_gpu.page import page
from benchmarks.first_gpu.steps import Step
from benchmarks.roofline import GPUS, Gpu, LossCall, predicted


def python(code):
    return [sys.executable, "-c", code]


def test_a_step_passes_fails_or_says_what_is_missing(tmp_path):
    good = steps.run(Step("good", python("print('fine')")), tmp_path, {})
    assert (good["status"], good["last_lines"]) == ("passed", ["fine"])
    bad = steps.run(Step("a/b c", python("import sys; print('oh'); sys.exit(3)")), tmp_path, {})
    assert (bad["status"], bad["reason"], bad["log"]) == ("failed", "exit code 3: oh", "a-b-c.log")
    crash = steps.run(Step("crash", python("import os; os.abort()")), tmp_path, {})
    assert crash["reason"].startswith("killed by signal 6")
    missing = steps.run(Step("tool", ["x"], needs="no-such-program"), tmp_path, {})
    assert (missing["status"], missing["reason"]) == ("not run", "no-such-program is not on PATH")
    found = Step("tool", python("raise SystemExit(86)"), needs=sys.executable)
    assert steps.why(Step("", [], needs=steps.SANITIZER), 86) == "the tool found something"
    assert steps.run(found, tmp_path, {})["reason"] == "exit code 86"  # another program's 86 means nothing


def test_a_step_that_hangs_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "PER_TOOL_SECONDS", 0.5)
    stuck = steps.run(Step("stuck", python("import time; time.sleep(60)")), tmp_path, {})
    assert (stuck["status"], stuck["reason"]) == ("failed", "stopped after 0.5 s")


def test_tests_are_counted(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n"
        "@pytest.mark.skip(reason='no GPU')\ndef test_c(): pass\n"
    )
    junit = tmp_path / "counts.xml"
    step = Step("tests", [*steps.PYTEST, "-q", str(tmp_path), f"--junitxml={junit}"], counts=junit)
    outcome = steps.run(step, tmp_path, {})
    assert outcome["tests"] == {"passed": 1, "failed": 1, "skipped": 1}
    assert outcome["skips"] == ["no GPU"]
    assert steps.counted(tmp_path / "none.xml") == {}
    none = Step("tests", [*step.command, "-k", "test_c"], counts=junit)
    assert steps.run(none, tmp_path, {})["reason"] == "every test was skipped"


def test_the_commands_are_those_of_the_documents(tmp_path):
    planned = {step.name: step for step in steps.steps(tmp_path, quick=True)}
    text = (gpu.Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    assert f"SUBSET='{steps.SUBSET}'" in text
    for tool in ("memcheck", "racecheck", "synccheck"):
        assert f"--tool {tool}" in " ".join(planned[f"compute-sanitizer {tool}"].command)
    assert planned["loss"].command[-1] == planned["simulator"].command[-1] == "--quick"


def measured_loss(name="NVIDIA H100 SXM 80GB", **others):
    device = {"name": name, "bandwidth": 1e12, "l2_bytes": 2**25, "multiprocessors": 40, "clock": 2e9}
    times = {"best": 1e-5, "median": 1e-5, "p20": 1e-5, "p80": 1e-5, "launches": 1, "bandwidth": 0.5}
    ways = ("eager_minimal", "loss_and_grad", "loss_and_grad_cached")
    rows = [{"shape": shape, "implementation": how, **times} for shape in ("50x100", "100x50x100") for how in ways]
    return {"gpu": device | others, "rows": rows}


def test_predictions_stand_beside_measurements():
    h100 = next(gpu for gpu in GPUS if gpu.name == "H100 SXM")
    rows = predictions.beside_predictions(measured_loss())
    assert [(row["shape"], row["implementation"]) for row in rows] == [
        (shape, how) for shape in ("50x100", "100x50x100") for how in ("loss_and_grad", "loss_and_grad_cached")
    ]
    least, most, bound = predicted(LossCall(100, 50, 100, cached=True), h100)
    assert (rows[-1]["predicted"], rows[-1]["bound"], rows[-1]["measured"]) == ([least, most], bound, 1e-5)
    own = predictions.gpu_of(measured_loss("Some GPU")["gpu"])
    assert own == Gpu("Some GPU", 1e12, 2**25, 40, 2e9)
    assert predictions.gpu_of(measured_loss("Some GPU", clock=None)["gpu"]).clock == predictions.USUAL_CLOCK


@pytest.mark.parametrize(
    ("measured", "word"), [(0.7, "faster"), (0.8, "as predicted"), (2.4, "as predicted"), (2.6, "slower")]
)
def test_verdicts(measured, word):
    assert predictions.verdict(measured, 1.0, 2.0) == word


@pytest.mark.parametrize("name", ["eager_kl", "fused_kl", "eager_js", "fused_js"])
def test_divergences_are_the_same(name):
    case = make_case((50, 10))
    loss, gradient = divergences.prepare(name, case)()
    torch.testing.assert_close(gradient.double(), divergences.truth(name, case), rtol=1e-5, atol=1e-7)
    other = divergences.prepare(name.replace("eager", "fused"), case)()
    torch.testing.assert_close(loss, other[0], rtol=1e-5, atol=0)


@pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is not None, reason="Liger-Kernel is installed")
def test_without_liger_it_is_left_out():
    timer = SimpleNamespace(device_times=lambda calls, rounds: {name: [1e-6, 2e-6] for name in calls})
    skipped = {}
    rows = gpu.measure_divergences(make_case((50, 10)), timer, 2, skipped)
    assert [row["implementation"] for row in rows] == ["eager_kl", "fused_kl", "eager_js", "fused_js"]
    assert set(skipped) == {"50x10 liger_kl", "50x10 liger_js"}
    assert all("pip install liger-kernel" in why for why in skipped.values())


def test_ways_that_cannot_run_say_why(tmp_path, monkeypatch):
    small = dict(
        synthetic={"shape": [6], "classes": 3, "samples_per_client": 8}, clients=6, participation=0.5, batch_size=4
    )
    monkeypatch.setattr(gpu_simulator, "WORKLOADS", {"small": small})
    gpu_simulator.main(["--quick", "--device", "cpu", "--out", str(tmp_path / "rows.json")])
    rows = {row["way"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert list(rows) == list(gpu_simulator.WAYS)
    assert "set device = cuda" in rows["CUDA graph"]["problem"]
    assert all(rows[way]["updates_per_second"] > 0 for way in rows if way != "CUDA graph")


def writes(path, value):
    """A command that leaves a JSON file, as a benchmark does."""
    code = "import pathlib as p, sys; f = p.Path(sys.argv[1]); f.parent.mkdir(exist_ok=True); f.write_text(sys.argv[2])"
    return [*python(code), str(path), json.dumps(value)]


def test_a_report_is_written_after_every_step(tmp_path, monkeypatch):
    divergence = {"shape": "50x100", "implementation": "fused_kl", "median": 2e-6, "grad_error": 1e-7}
    times = {"best": 0.01, "median": 0.02, "updates_per_second": 5000.0, "trained": "stacked"}
    rows = [{"workload": "MLP", "way": "stacked", **times}, {"workload": "MLP", "way": "graph", "problem": "<none>"}]
    plan = [
        Step("loss", writes(tmp_path / "loss" / "results.json", measured_loss() | {"divergences": [divergence]})),
        Step("simulator", writes(tmp_path / "simulator.json", {"rows": rows})),
        Step("bad", python("raise SystemExit(2)")),
    ]
    seen = []
    monkeypatch.setattr(first_gpu, "steps", lambda folder, quick: plan)
    monkeypatch.setattr(first_gpu, "write", lambda folder, report: seen.append(page(report)))
    assert first_gpu.main(["--rehearse", "--out", str(tmp_path), "--commit", "abc"]) == 1
    assert len(seen) == 3
    for part in ("No number on this page is of a GPU", "as predicted", "fused_kl", "5,000", "&lt;none&gt;", "abc"):
        assert part in seen[-1]
    assert "exit code 2" in seen[2]
    assert "exit code 2" not in seen[1]
    assert not re.search(r"(src|href)=\"http", seen[-1])  # nothing from the network


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"needs a CUDA device.*--rehearse"):
        first_gpu.main([])
