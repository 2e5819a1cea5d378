"""fedasd doctor: checks the installation, and says how to fix what is missing."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from .. import __version__, asd_loss_and_grad, build_info, label_prior, models
from ..data import data_directory, list_datasets
from ..loss import reference
from ..models.layer_order import pool_before_relu
from ..simulation import simulate
from ..simulation.client.step_timing import time_steps
from ..simulation.system import half_precision
from ..simulation.system.threads import threads
from .options import add_data_dir

_OPTIONAL_PACKAGES = {
    "matplotlib": "plots: pip install 'fedasd-fast[simulation]'",
    "PIL": "images: pip install 'fedasd-fast[simulation]'",
    "sklearn": "the digits dataset: pip install 'fedasd-fast[simulation]'",
    "curvlinops": "the Hessian: pip install 'fedasd-fast[analysis]'",
    "timm": "ViT models: pip install 'fedasd-fast[vit]'",
    "tensorboard": "--tensorboard: pip install 'fedasd-fast[tensorboard]'",
    "wandb": "--wandb: pip install 'fedasd-fast[wandb]'",
    "mlflow": "--mlflow: pip install 'fedasd-fast[mlflow]'",
}
_DISTRIBUTION_NAMES = {
    "yaml": "pyyaml",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "curvlinops": "curvlinops-for-pytorch",
}


class Finding(NamedTuple):
    state: Literal["ok", "note", "broken"]
    what: str
    text: str


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Lists what is installed and tests it; exits with 1 if something essential is broken."
    add_data_dir(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    findings = list(examine(arguments.data_dir))
    width = max(len(finding.what) for finding in findings)
    for state, what, text in findings:
        print(f"{state:6}  {what:{width}}  {text}")
    broken = sum(finding.state == "broken" for finding in findings)
    print(
        f"{broken} essential part{'s are' if broken > 1 else ' is'} broken" if broken else "everything essential works"
    )
    return 1 if broken else 0


def examine(data_dir: str | None = None) -> Iterator[Finding]:
    yield Finding("ok", "fedasd_fast", f"{__version__}, python {platform.python_version()}, {platform.platform()}")
    threads = f"{torch.get_num_threads()} threads of {os.cpu_count()} cores"
    yield Finding("ok", "torch", f"{torch.__version__}, {threads}")
    for package in ("numpy", "yaml", "rich"):
        yield from _package(package)
    yield from _kernels()
    comparison = "loss, fused against reference"
    if build_info()["extension"]:
        yield _tested(comparison, self_test)
    else:
        yield Finding("note", comparison, "not compared: without compiled kernels both are the reference")
    yield _tested("a small run", small_run)
    yield _half_precision()
    for package, use in _OPTIONAL_PACKAGES.items():
        yield from _package(package, use)
    yield from _data(data_dir)
    free = shutil.disk_usage(Path.cwd()).free
    yield Finding("ok" if free > 1e9 else "note", "disk", f"{free / 1e9:.1f} GB free in the current directory")


def self_test() -> str:
    """The loss used in training against the reference, in float64."""
    random = torch.Generator().manual_seed(0)
    student, teacher = (3 * torch.randn(32, 20, generator=random, dtype=torch.float64) for _ in range(2))
    targets = torch.randint(0, 20, (32,), generator=random)
    prior = label_prior(targets, 20).double()
    loss, gradient = asd_loss_and_grad(student, teacher, targets, prior, 10.0)
    leaf = student.clone().requires_grad_()
    objective = reference.asd_objective(leaf, teacher, targets, prior, 10.0)
    (true_gradient,) = torch.autograd.grad(objective, leaf)
    true_loss = objective.detach()
    error = max(float((loss - true_loss).abs() / true_loss.abs()), float((gradient - true_gradient).abs().max()))
    if not error < 1e-10:
        raise ArithmeticError(f"they differ by {error:.1e}; rebuild the extension")
    return f"they agree to {error:.0e}"


def small_run() -> str:
    settings = {"clients": 4, "participation": 1.0, "rounds": 1, "local_epochs": 1, "method": "fedavg+asd"}
    result = simulate({**settings, "synthetic": {"classes": 3, "test_samples": 30}, "eval_models": ["sel"]})
    return f"4 clients trained, loss {result.metrics[-1]['loss']:.2f}"


def _half_precision() -> Finding:
    """What bfloat16 gains on this CPU, with the paper's CNN and batches of 50."""
    shape, what = (3, 32, 32), "half precision"
    module = models.build("cnn_cifar", num_classes=100, input_shape=shape)
    pool_before_relu(module)  # as in a run
    with threads(1):
        times = time_steps(module, torch.zeros(50, *shape), "bfloat16")
    measured = f"a step of cnn_cifar on one thread takes {times}"
    if not half_precision.has_instructions("bfloat16"):
        return Finding("note", what, f"this CPU has no instructions for bfloat16, keep precision=float32: {measured}")
    return Finding("ok", what, f"this CPU has instructions for bfloat16 (precision=bfloat16): {measured}")


def _kernels() -> Iterator[Finding]:
    info = build_info()
    if info["extension"]:
        parts = f"for {', '.join(info['devices'])}; CPU kernels: {info['cpu_capability']}; compiler {info['compiler']}"
        yield Finding("ok", "compiled kernels", parts)
    else:
        yield Finding("note", "compiled kernels", f"none, the slower PyTorch reference is used: {info['reason']}")
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Finding("ok", "GPU", names)
    else:
        yield Finding("note", "GPU", "none that this torch can use; device=cpu works")


def _package(name: str, use: str | None = None) -> Iterator[Finding]:
    """A package with a `use` is optional."""
    distribution = _DISTRIBUTION_NAMES.get(name, name)
    try:
        version = metadata.version(distribution)
        if use is None:
            importlib.import_module(name)
    except (metadata.PackageNotFoundError, ImportError) as error:
        text = f"not installed; for {use}" if use else f"{error}; pip install {distribution}"
        yield Finding("note" if use else "broken", distribution, text)
    else:
        yield Finding("ok", distribution, version)


def _tested(what: str, test: Callable[[], str]) -> Finding:
    try:
        return Finding("ok", what, test())
    except Exception as error:
        return Finding("broken", what, f"{type(error).__name__}: {error}")


def _data(data_dir: str | None) -> Iterator[Finding]:
    known = list_datasets(data_dir)
    folder = data_directory(data_dir)
    missing = "" if folder.is_dir() else "does not exist; `fedasd data get NAME` creates it; "
    yield Finding("note" if missing else "ok", "data directory", f"{folder} ({missing}--data-dir or FEDASD_DATA)")
    present = [f"{s.name} ({s.part})" if s.part else s.name for s in known if s.present]
    yield Finding("ok", "datasets", f"{', '.join(present)}; others: fedasd data list")
    for s in known:
        if s.lacks:
            yield Finding("note", s.name, f"incomplete: {s.where} lacks {', '.join(s.lacks)}")
