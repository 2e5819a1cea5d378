"""Loads one of the two builds of the compiled kernels, or records why there is none.

`_C` was compiled for one release of torch and has its own binding and derivative in C++; `_stable` serves every torch
since 2.10 through LibTorch's stable ABI, with the derivative in Python (stable.py).  Where both are, `_C` is taken.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch

_REQUIRED_FUNCTIONS = ("asd_objective", "asd_loss_and_grad", "local_step_", "ascend_", "accumulate_", "train_clients",
                       "epoch_orders", "synthetic_samples")  # fmt: skip
_REQUIRED_OF_C = (*_REQUIRED_FUNCTIONS, "why_not_trained_on_gpu")  # _stable is for the CPU
_REBUILD_ADVICE = "rebuild it in this environment with `pip install --no-build-isolation --force-reinstall --no-deps .`"
_BUILD_ADVICE = {
    name: f"build it with `FEDASD_BUILD={name} pip install --no-build-isolation --force-reinstall --no-deps .`"
    for name in ("_C", "_stable")
}


def _release(version: str) -> list[str]:
    return version.split("+")[0].split(".")[:2]


def _other_torch(built_for: str) -> str:
    return f"the extension was built for torch {built_for}, this is torch {torch.__version__}; {_REBUILD_ADVICE}"


def _takes(argument: str) -> bool:
    """Whether the loss of the extension that was loaded has such an argument."""
    schema = torch.ops.fedasd.asd_objective.default._schema
    return any(a.name == argument for a in schema.arguments)


class Loaded(NamedTuple):
    """The functions of a build; or None and the reason.  `refused` says why `_C` was not taken, if it was there."""

    module: Any
    reason: str | None = None
    build: str | None = None
    refused: str | None = None


def _is_compiled(folder: Path) -> bool:
    return (folder / "_built_for.txt").exists() or any(folder.glob("_stable.*"))


def _hidden_by(folder: Path) -> Path | None:
    """The compiled package that this folder hides: Python looks in the current directory first."""
    for entry in sys.path:
        other = Path(entry).resolve() / "fedasd_fast"
        if other != folder.resolve() and _is_compiled(other):
            return other
    return None


def _lacks(loaded: Any, required: tuple[str, ...] = _REQUIRED_FUNCTIONS) -> str | None:
    """What this build, of an older version of the package, does not have."""
    lacking = [name for name in required if not hasattr(loaded, name)]
    if not lacking and not _takes("alpha_normalizer"):
        lacking = ["the argument alpha_normalizer of asd_objective"]
    if lacking:
        return f"the extension was built from an older version (it lacks {', '.join(lacking)}); {_REBUILD_ADVICE}"
    return None


def _load_c(folder: Path) -> Loaded:
    # torch keeps no binary interface across releases: loading would fail with mangled symbols, or worse, succeed.
    built_for = (folder / "_built_for.txt").read_text().strip()
    if _release(built_for) != _release(torch.__version__):
        return Loaded(None, _other_torch(built_for))
    try:
        loaded = importlib.import_module("fedasd_fast._C")
    except ImportError as error:
        return Loaded(None, f"the extension does not load ({error}); {_REBUILD_ADVICE}")
    if lack := _lacks(loaded, _REQUIRED_OF_C):
        return Loaded(None, lack)
    if _release(torch_built := loaded.build_info()["torch_built"]) != _release(torch.__version__):
        return Loaded(None, _other_torch(torch_built))  # objects of an older build, whatever stands beside the library
    return Loaded(loaded, build="_C")


def _load_stable() -> Loaded:
    try:
        loaded = importlib.import_module("fedasd_fast.kernels.stable")
    except (ImportError, AttributeError) as error:  # AttributeError: an op of a newer version is not there
        return Loaded(None, f"the extension for every torch does not load ({error}); {_REBUILD_ADVICE}")
    if lack := _lacks(loaded):
        return Loaded(None, lack)
    return Loaded(loaded, build="_stable")


def _load(folder: Path) -> Loaded:
    if os.environ.get("FEDASD_DISABLE_EXTENSION", "0") not in ("", "0"):
        return Loaded(None, "switched off by FEDASD_DISABLE_EXTENSION")
    wanted = os.environ.get("FEDASD_EXTENSION") or None
    if wanted not in (None, "_C", "_stable"):
        raise ValueError(f"FEDASD_EXTENSION = {wanted!r}; expected _C or _stable, or nothing to take what is there")
    if not _is_compiled(folder):
        if installed := _hidden_by(folder):
            return Loaded(None, (
                f"the source folder {folder} hides the package that is installed in {installed}; "
                "run from another directory, or install with `pip install --no-build-isolation -e .`"
            ))  # fmt: skip
        return Loaded(None, f"the extension has not been compiled; with a C++ compiler at hand, {_REBUILD_ADVICE}")
    there = {"_C": (folder / "_built_for.txt").exists(), "_stable": any(folder.glob("_stable.*"))}
    if wanted and not there[wanted]:
        return Loaded(None, f"FEDASD_EXTENSION = {wanted!r}, which has not been compiled; {_BUILD_ADVICE[wanted]}")
    refused = None
    if there["_C"] and wanted != "_stable":
        loaded = _load_c(folder)
        # Once its library is in the process its ops are registered, and those of another build cannot be.
        if loaded.module or wanted or not there["_stable"] or "fedasd_fast._C" in sys.modules:
            return loaded
        refused = loaded.reason
    return _load_stable()._replace(refused=refused)


module, reason, build, refused = _load(Path(__file__).parents[1])
available = module is not None
devices: tuple[str, ...] = ()
if available:
    devices = ("cpu", "cuda") if module.build_info()["cuda_architectures"] else ("cpu",)
_warned = False


def _check_capability() -> None:
    """A misspelt or missing instruction set would otherwise be replaced by the best one without a word."""
    wanted = os.environ.get("FEDASD_CPU_CAPABILITY")
    if not wanted or not available:
        return
    active = module.build_info()["cpu_capability"]
    if active != wanted:
        warnings.warn(
            f"FEDASD_CPU_CAPABILITY = {wanted!r} is ignored, and {active!r} is used: expected 'avx512', 'avx2' or "
            "'generic', and one that this CPU has",
            RuntimeWarning,
            stacklevel=2,
        )


_check_capability()


def missing(device: str) -> str:
    """Why there is no fused kernel for this device."""
    return reason or f"this build has no fused kernels for {device!r} tensors (it has: {', '.join(devices)})"


def use_fused(implementation: str, tensor: torch.Tensor) -> bool:
    """What `implementation` ("auto", "fused" or "reference") means for this tensor's device."""
    has_kernel = tensor.device.type in devices
    if implementation == "auto":
        if not has_kernel:
            warn_once()
        return has_kernel
    if implementation == "fused":
        if not has_kernel:
            raise RuntimeError(f"implementation = 'fused', but {missing(tensor.device.type)}")
        return True
    if implementation == "reference":
        return False
    raise ValueError(f"implementation = {implementation!r}; expected 'auto', 'fused' or 'reference'")


def warn_once() -> None:
    global _warned
    if not _warned and not available:
        _warned = True
        warnings.warn(f"fedasd_fast runs on its slower PyTorch reference: {reason}", RuntimeWarning, stacklevel=5)


def build_info() -> dict[str, Any]:
    """What was compiled, what is active, for which CPU and GPU; `reason` says why nothing is.

    `build` is `_C` (for this torch) or `_stable` (for every torch since 2.10); `refused` says why a `_C` that is there
    was not taken.
    """
    info: dict[str, Any] = {
        "extension": available,
        "reason": reason,
        "build": build,
        "refused": refused,
        "devices": list(devices),
        "torch_running": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch_built": None,
        "compiler": None,
        "cpu_capability": None,
        "cuda_architectures": None,
    }
    if available:
        info.update(module.build_info())
        if info["cuda_architectures"]:
            info["cuda_architectures"] = info["cuda_architectures"].split(";")
    return info
