"""Loading: what happens without the compiled extension, with one for another torch, and in a fresh interpreter."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import fedasd_fast as fa
from fedasd_fast.kernels import loader

ROOT = Path(fa.__file__).parents[1]

USE_TWICE = """
import warnings, torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import fedasd_fast as fa
    y, p = torch.tensor([0, 1, 2]), torch.tensor([0.5, 0.25, 0.25])
    z, t = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    for _ in range(2):
        fa.asd_objective(z, t, y, p, 3.0).backward()
    loss, gradient = fa.asd_loss_and_grad(z, fa.TeacherCache.from_logits(t, y, p)[:], y, None, 3.0)
    assert torch.allclose(2 * gradient, z.grad, atol=1e-5)
ours = [str(w.message) for w in caught if "fedasd_fast" in str(w.message)]
print(len(ours), ours[:1], fa.build_info()["reason"])
try:
    fa.asd_loss(z, t, y, p, implementation="fused")
except RuntimeError as error:
    print("refused:", error)
"""


CAPABILITY = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import fedasd_fast as fa
    print(fa.build_info()["cpu_capability"])
for warning in caught:
    if "FEDASD" in str(warning.message):
        print(warning.message)
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def no_choice(monkeypatch):
    """The tests of loading choose for themselves, also where the suite runs on one build."""
    monkeypatch.delenv("FEDASD_EXTENSION", raising=False)


def test_build_info_tells_what_is_active():
    info = fa.build_info()
    assert info["extension"] is True
    assert info["reason"] is None
    assert "cpu" in info["devices"]
    assert info["cpu_capability"] in ("avx512", "avx2", "generic")
    assert info["build"] in ("_C", "_stable")
    if info["build"] == "_C":
        assert info["torch_built"].split(".")[:2] == torch.__version__.split(".")[:2]


OPS = ["asd_objective", "asd_loss_and_grad", "teacher_cache", "local_step_", "ascend_", "accumulate_"]


@pytest.mark.parametrize("op", OPS)
def test_ops_are_registered_for_the_devices_that_were_built(op):
    for device in ("cpu", "cuda"):
        registered = torch._C._dispatch_has_kernel_for_dispatch_key(f"fedasd::{op}", device.upper())
        assert registered == (device in loader.devices), device


def test_without_the_extension_the_reference_runs_and_says_so_once():
    output = run(USE_TWICE, FEDASD_DISABLE_EXTENSION="1")
    assert output.startswith("1 ['fedasd_fast runs on its slower PyTorch reference"), output
    assert "FEDASD_DISABLE_EXTENSION" in output
    assert "refused: implementation = 'fused', but" in output


def test_an_extension_that_was_never_built_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # the tests' own package is compiled
    loaded = loader._load(tmp_path)
    assert loaded.module is None
    assert "has not been compiled" in loaded.reason
    assert "pip install" in loaded.reason


def test_an_extension_of_an_older_version_is_not_used(tmp_path, monkeypatch):
    class Older:
        asd_objective = asd_loss_and_grad = None

    (tmp_path / "_built_for.txt").write_text(torch.__version__)
    monkeypatch.setattr(loader.importlib, "import_module", lambda name: Older)
    loaded = loader._load(tmp_path)
    assert loaded.module is None
    assert "older version" in loaded.reason
    assert "local_step_" in loaded.reason
    assert "rebuild" in loaded.reason


def test_an_extension_whose_loss_lacks_an_argument_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDASD_EXTENSION", loader.build)
    (tmp_path / "_built_for.txt").write_text(torch.__version__)
    (tmp_path / "_stable.abi3.so").touch()
    assert loader._load(tmp_path) == (loader.module, None, loader.build, None)
    assert not loader._takes("an argument of tomorrow")
    monkeypatch.setattr(loader, "_takes", lambda argument: False)
    loaded = loader._load(tmp_path)
    assert loaded.module is None
    assert "older version (it lacks the argument alpha_normalizer of asd_objective)" in loaded.reason


def test_an_extension_for_another_torch_is_not_loaded(tmp_path):
    (tmp_path / "_built_for.txt").write_text("1.2.3\n")
    loaded = loader._load(tmp_path)
    assert loaded.module is None
    assert "built for torch 1.2.3" in loaded.reason
    assert torch.__version__ in loaded.reason


def test_a_library_linked_from_objects_of_another_torch_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "_built_for.txt").write_text(torch.__version__)
    stale = SimpleNamespace(**dict.fromkeys(loader._REQUIRED_OF_C))
    stale.build_info = lambda: {"torch_built": "1.2.3"}
    monkeypatch.setattr(loader.importlib, "import_module", lambda name: stale)
    loaded = loader._load(tmp_path)
    assert loaded.module is None
    assert "built for torch 1.2.3" in loaded.reason
    assert "rebuild" in loaded.reason


def test_a_source_folder_that_hides_the_installed_package_is_named(tmp_path, monkeypatch):
    clone, site = tmp_path / "clone" / "fedasd_fast", tmp_path / "site" / "fedasd_fast"
    for folder in (clone, site):
        folder.mkdir(parents=True)
    (site / "_built_for.txt").write_text(torch.__version__)
    monkeypatch.setattr(sys, "path", [str(clone.parent), str(site.parent)])
    loaded = loader._load(clone)
    assert loaded.module is None
    assert f"the source folder {clone} hides the package that is installed in {site}" in loaded.reason
    assert "run from another directory" in loaded.reason


def test_the_build_for_every_torch_takes_the_place_of_one_that_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDASD_EXTENSION", raising=False)
    monkeypatch.delitem(sys.modules, "fedasd_fast._C", raising=False)
    other = SimpleNamespace(**dict.fromkeys(loader._REQUIRED_OF_C))
    monkeypatch.setattr(loader.importlib, "import_module", {"fedasd_fast.kernels.stable": other}.__getitem__)
    (tmp_path / "_stable.abi3.so").touch()
    assert loader._load(tmp_path) == (other, None, "_stable", None)
    (tmp_path / "_built_for.txt").write_text("1.2.3\n")
    loaded = loader._load(tmp_path)
    assert loaded[:3] == (other, None, "_stable")
    assert "built for torch 1.2.3" in loaded.refused
    monkeypatch.setenv("FEDASD_EXTENSION", "_C")
    assert "built for torch 1.2.3" in loader._load(tmp_path).reason


def test_a_build_can_be_chosen_by_environment(tmp_path, monkeypatch):
    (tmp_path / "_built_for.txt").write_text(torch.__version__)
    monkeypatch.setenv("FEDASD_EXTENSION", "_stable")
    loaded = loader._load(tmp_path)
    assert loaded.module is None
    assert "FEDASD_EXTENSION = '_stable', which has not been compiled" in loaded.reason
    assert "FEDASD_BUILD=_stable pip install" in loaded.reason
    monkeypatch.setenv("FEDASD_EXTENSION", "_D")
    with pytest.raises(ValueError, match="FEDASD_EXTENSION = '_D'; expected _C or _stable"):
        loader._load(tmp_path)


@pytest.mark.parametrize("name", ["avx512", "avx2", "generic", "no such set"])
def test_instruction_set_can_be_chosen_by_environment(name):
    chosen, *warned = run(CAPABILITY, FEDASD_CPU_CAPABILITY=name).splitlines()
    best = fa.build_info()["cpu_capability"]
    known = loader.module.select_cpu_capability(name)
    loader.module.select_cpu_capability(best)
    assert chosen == (name if known else best)
    expected = (
        f"FEDASD_CPU_CAPABILITY = '{name}' is ignored, and '{best}' is used: expected 'avx512', 'avx2' or 'generic'"
    )
    assert len(warned) == (not known), warned
    assert known or warned[0].startswith(expected), warned


def test_demo_runs_end_to_end():
    output = run("import benchmarks.demo as d; d.timed = lambda call, seconds=1.0: (call(), 1.0)[1]; d.main()")
    assert "fused, cached teacher" in output
    assert "epoch 5" in output
