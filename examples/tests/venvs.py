"""Virtual environments for the examples: each has its own packages, and shares torch with the project's environment.

torch and what else fedasd-fast needs is linked, not installed: it would be hundreds of megabytes for each environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
VENVS = ROOT / "build" / "examples"
THREADS = {"OMP_NUM_THREADS": "1"}  # matrices are small, and examples start processes of their own
SHARED = ("fedasd-fast[simulation]", "setuptools")


@dataclass(frozen=True)
class Example:
    """A copy of an example's folder, and the programs of its environment."""

    folder: Path
    bin: Path

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """What the program prints, started in the example's folder as a reader would start it."""
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [self.bin / program, *arguments], cwd=self.folder, env={**os.environ, "PATH": path, **THREADS, **variables},
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def install(source: Path) -> Example:
    """build/examples/NAME: an environment with what the pyproject.toml in `source` asks for.  An old one is used again.

    From a copy, because an installation leaves files in the folder it is made from.
    """
    folder = VENVS / source.name
    copy = folder / source.name
    venv.create(folder, symlinks=True)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    site = Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(folder), "platbase": str(folder)}))
    link(with_dependencies(SHARED), folder / "shared")
    (site / "shared.pth").write_text(f"import site; site.addsitedir({str(folder / 'shared')!r})\n")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-q", "--no-build-isolation",
         "-c", ROOT / "constraints.txt", copy],
        capture_output=True, text=True,
    )  # fmt: skip
    if "requires a different Python" in done.stderr:
        pytest.skip(f"{source.name}: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, f"the packages of {source} cannot be installed:\n{done.stdout}{done.stderr}"
    return Example(copy, folder / "bin")


def with_dependencies(names: tuple[str, ...]) -> dict[str, Distribution]:
    """The installed distributions of these names and of all that they require, by name."""
    found: dict[str, Distribution] = {}
    wanted = [Requirement(name) for name in names]
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name not in found or requirement.extras:
            found[name] = distribution(name)
            wanted += [
                needed
                for needed in map(Requirement, found[name].requires or ())
                if needed.marker is None
                or any(needed.marker.evaluate({"extra": extra}) for extra in requirement.extras or {""})
            ]
    return found


def link(distributions: dict[str, Distribution], folder: Path) -> None:
    """Makes a folder of links to them.  It is not the site-packages of an environment: there pip, replacing one by
    another version, would remove files of the environment that they come from."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for found in distributions.values():
        for name in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            (folder / name).symlink_to(found.locate_file(name))
