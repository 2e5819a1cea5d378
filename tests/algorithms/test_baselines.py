"""Every baseline, with and without ASD, against its arithmetic written out by hand; and stacked, against serial."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedasd_fast.algorithms import registry
from fedasd_fast.algorithms.hooks import HOOKS
from fedasd_fast.cli.setting_meanings import MEANINGS

from .numpy_baselines import RULES
from .numpy_rounds import simulate
from .problem import SIZES, advance, prepare, settings, skewed
from .test_methods import EXACT, METHODS, OPTIMIZERS, name_of

BASELINES: list[tuple[str, dict[str, Any]]] = [
    ("fedavgm", {}),
    ("fedavgm", {"beta": 0.5, "lr": 0.7}),
    ("fedadam", {}),
    ("fedadam", {"lr": 0.3, "beta1": 0.5, "beta2": 0.8, "tau": 0.1}),
    ("fedyogi", {}),
    ("fedyogi", {"lr": 0.3, "beta1": 0.5, "beta2": 0.8, "tau": 0.1}),
    ("fednova", {}),
    ("fedexp", {}),
    ("fedexp", {"epsilon": 1.0}),
    ("fedcm", {}),
    ("fedcm", {"alpha": 0.6}),
    ("fedinit", {}),
    ("fedinit", {"beta": 0.4}),
    ("fedgkd", {}),
    ("fedgkd", {"models": 2, "coefficient": 2.0, "temperature": 3.0}),
    ("fedgkd", {"models": 1}),
    ("fedgmt", {}),
    ("fedgmt", {"alpha": 0.5, "gamma": 0.3, "tau": 2.0, "beta": 3.0}),
    ("fedlesam", {}),
    ("fedlesam", {"rho": 0.7}),
    ("fedsmoo", {}),
    ("fedsmoo", {"alpha": 0.02, "rho": 0.4}),
    ("feddc", {}),
    ("feddc", {"alpha": 0.3}),
    ("fedlc", {}),
    ("fedlc", {"tau": 0.4}),
    ("fedrs", {}),
    ("fedrs", {"alpha": 0.2, "soft": True}),
    ("fedsol", {}),
    ("fedsol", {"rho": 0.3, "temperature": 1.5}),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("asd", ["", "+asd"])
@pytest.mark.parametrize(("method", "arguments"), BASELINES, ids=name_of)
def test_three_rounds_by_hand(method: str, arguments: dict[str, Any], asd: str, optimizer: str) -> None:
    changes: dict[str, Any] = OPTIMIZERS[optimizer]
    if method == "fedcm" and optimizer == "clipped":
        changes = changes | {"clip_norm": 0.8 if arguments else 0.4}  # its directions are short
    config = settings(method=method + asd, method_args=arguments, optimizer=changes)
    data = skewed()
    context = prepare(config, data)
    expected = simulate(config, data, context.initial.numpy().copy())
    final, _ = advance(context)

    np.testing.assert_allclose(final.cloud, expected.cloud, rtol=0, atol=EXACT)
    np.testing.assert_allclose(final.model("all"), expected.all, rtol=0, atol=EXACT)
    for k in range(len(SIZES)):
        for name, vector in (context.records.read(k) or {}).items():
            if name != "upload":
                found = expected.rule.states[name][k]
                np.testing.assert_allclose(vector, found, rtol=0, atol=EXACT, err_msg=f"{name} of client {k}")
    assert not all(expected.clipped)
    assert any(expected.clipped) == (optimizer != "plain")


@pytest.mark.parametrize("method", sorted(RULES))
def test_a_single_step_by_hand(method: str) -> None:
    """One client, one batch, one step: what the round tests sum up."""
    config = settings(method=method, clients=1, participation=1.0, rounds=1, local_epochs=1, batch_size=7)
    data = skewed((7,))
    context = prepare(config, data)
    expected = simulate(config, data, context.initial.numpy().copy())
    assert len(expected.clipped) == 1
    np.testing.assert_allclose(advance(context)[0].cloud, expected.cloud, rtol=0, atol=EXACT)


@pytest.mark.parametrize("asd", ["", "+asd"])
@pytest.mark.parametrize("method", sorted(RULES))
@pytest.mark.parametrize("teacher", ["cache", "recompute"])
def test_stacked_as_serial(method: str, asd: str, teacher: str) -> None:
    """Clients of unequal sizes: some have no batch in the last steps."""
    config = settings(method=method + asd, teacher=teacher)
    alone, _ = advance(prepare(config.replace(executor="serial")))
    stacked = prepare(config.replace(executor="stacked", clients_at_once=3))
    together, _ = advance(stacked)
    assert stacked.parallelism.clients_at_once == 3
    for name in ("cloud", "sel", "all"):
        torch.testing.assert_close(together.model(name), alone.model(name), rtol=0, atol=EXACT)


def test_every_method_is_pinned() -> None:
    pinned = {name for name, _ in (*METHODS, *BASELINES)} | {"moon"}  # test_moon.py
    builtin = {name for name, cls in registry._methods.items() if cls.__module__.startswith("fedasd_fast.")}
    assert builtin == pinned


def test_every_method_is_documented() -> None:
    """In the table of methods, and in what the command line says of the setting."""
    page = (Path(__file__).parents[2] / "docs/methods.md").read_text()
    table = page[: page.index("## Where paper")]
    builtin = {name for name, cls in registry._methods.items() if cls.__module__.startswith("fedasd_fast.")}
    assert {name for name in builtin if f"`{name}`" not in table} == set()
    assert set(re.findall(r"\w+", MEANINGS["method"])) >= builtin


def test_every_hook_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/methods.md").read_text()
    always = {"correction", "finish", "weights", "combine", "distillation", "frozen_models"}
    assert {hook for hook in HOOKS | always if f"`{hook}(" not in page} == set()
