"""setup.py: what it decides to build, and what it says; nothing is compiled."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import setuptools
import torch

SETUP = Path(__file__).parents[1] / "setup.py"
SWITCHES = ("CXX", "FEDASD_BUILD", "FEDASD_FORCE_CPU", "FEDASD_NO_EXTENSION", "FORCE_CUDA", "TORCH_CUDA_ARCH_LIST")


class Setup:
    """Runs setup.py up to its call of setup(), whose arguments it keeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.arguments: dict[str, Any] = {}
        monkeypatch.setattr(setuptools, "setup", self.arguments.update)
        monkeypatch.setenv("CUDA_HOME", "toolkit")  # nvcc is not asked
        for name in SWITCHES:
            monkeypatch.delenv(name, raising=False)

    def run(self, **environment: str) -> dict[str, Any]:
        for name, value in environment.items():
            self.patch.setenv(name, value)
        return runpy.run_path(str(SETUP))

    def compiler(self, folder: Path, macros: str) -> str:
        """A c++ that only says which macros it has, alone on the PATH."""
        (folder / "macros").write_text(macros)
        (folder / "c++").write_text(f"#!/bin/sh\n{shutil.which('cat')} {folder / 'macros'}\n")
        (folder / "c++").chmod(0o755)
        self.patch.setenv("PATH", str(folder))
        return str(folder / "c++")

    def flags(self) -> list[str]:
        (extension,) = self.arguments["ext_modules"]
        return list(extension.extra_compile_args["cxx"])


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(monkeypatch)


def test_no_compiler_means_the_reference_and_one_line(
    build: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build.patch.setenv("PATH", str(tmp_path))
    build.run()
    assert build.arguments == {}
    (line,) = capsys.readouterr().out.splitlines()
    assert "WARNING: no C++ compiler" in line
    with pytest.raises(SystemExit, match="no C\\+\\+ compiler"):
        build.run(FORCE_CUDA="1")
    with pytest.raises(SystemExit, match="CXX = 'no-such-compiler' was not found"):
        build.run(CXX="no-such-compiler")
    with pytest.raises(
        SystemExit, match=r"CXX = 'ccache g\+\+'; expected one program without arguments: for ccache put"
    ):
        build.run(CXX="ccache g++")


def test_the_extension_can_be_left_out(build: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    build.run(FEDASD_NO_EXTENSION="1")
    assert build.arguments == {}
    assert "FEDASD_NO_EXTENSION is set" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("macros", "openmp"),
    [("#define __GNUC__ 12", True), ("#define __GNUC__ 4\n#define __clang__ 1", False)],
    ids=["gcc", "clang"],
)
def test_only_gcc_gets_openmp(
    build: Setup, tmp_path: Path, macros: str, openmp: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = build.compiler(tmp_path, macros)
    build.run(FEDASD_FORCE_CPU="1")
    assert ("-fopenmp" in build.flags()) == openmp
    said = capsys.readouterr().out
    assert f"kernels for the CPU, compiled by {found} for torch {torch.__version__}" in said


def test_objects_of_another_torch_lie_elsewhere_and_a_wheel_names_its_torch(build: Setup, tmp_path: Path) -> None:
    build.compiler(tmp_path, "")
    build.run(FEDASD_FORCE_CPU="1")
    command = build.arguments["cmdclass"]["build_ext"](setuptools.Distribution())
    command.build_temp, command.build_lib = "temp", "lib"
    command.finalize_options()
    assert command.build_temp == os.path.join("temp", f"torch-{torch.__version__}")
    tag = build.arguments["options"]["bdist_wheel"]["build_number"]
    assert torch.__version__.startswith(tag + ".")


def test_the_build_for_every_torch_makes_a_wheel_for_every_python(
    build: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build.compiler(tmp_path, "")
    build.run(FEDASD_FORCE_CPU="1", FEDASD_BUILD="_stable")
    (extension,) = build.arguments["ext_modules"]
    assert extension.name == "fedasd_fast._stable"
    assert extension.py_limited_api
    assert "torch_python" not in extension.libraries
    assert ("TORCH_TARGET_VERSION", "0x020A000000000000") in extension.define_macros
    assert build.arguments["options"]["bdist_wheel"] == {"py_limited_api": "cp310"}
    assert "for every torch since 2.10" in capsys.readouterr().out
    build.run(FEDASD_BUILD="both")
    assert [e.name for e in build.arguments["ext_modules"]] == ["fedasd_fast._C", "fedasd_fast._stable"]
    assert "py_limited_api" not in build.arguments["options"]["bdist_wheel"]
    with pytest.raises(SystemExit, match="FEDASD_BUILD = 'all'; expected _C, _stable or both"):
        build.run(FEDASD_BUILD="all")


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/tmp/pip-build-env-x1/overlay/lib/python3.12/site-packages", "_stable"),
        ("/tmp/build-env-x1/lib/python3.12/site-packages", "_stable"),
        ("/home/user/.cache/uv/builds-v0/.tmpx1/lib/python3.12/site-packages", "_stable"),
        ("/home/me/my-build-environment/lib/python3.12/site-packages", "_C"),
    ],
)
def test_a_torch_that_was_fetched_for_the_build_alone_is_not_built_for(
    build: Setup, tmp_path: Path, folder: str, expected: str
) -> None:
    build.compiler(tmp_path, "")
    decide = build.run(FEDASD_FORCE_CPU="1")["wanted_builds"]
    build.patch.setattr(torch, "__file__", f"{folder}/torch/__init__.py")
    assert decide() == [expected]


@pytest.mark.parametrize("gpu", [True, False])
def test_cuda_is_built_where_there_is_a_gpu_or_it_is_asked_for(build: Setup, tmp_path: Path, gpu: bool) -> None:
    build.compiler(tmp_path, "")
    decide = build.run(FEDASD_FORCE_CPU="1")["use_cuda"]
    assert decide() is False
    build.patch.delenv("FEDASD_FORCE_CPU")
    build.patch.setitem(decide.__globals__, "CUDA_HOME", "toolkit")
    build.patch.setattr(torch.version, "cuda", "13.0")
    build.patch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert decide() is gpu
    build.patch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    assert decide() is True
    build.patch.setattr(torch.version, "cuda", None)
    with pytest.raises(SystemExit, match="is a CPU build"):
        decide()


def test_an_old_setuptools_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "setuptools.py").write_text('__version__ = "65.5.0"\n')
    done = subprocess.run(
        [sys.executable, str(SETUP), "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "setuptools 65.5.0 is too old: pip install --upgrade 'setuptools>=77'"
