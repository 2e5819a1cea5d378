"""Every method, with and without ASD, against its arithmetic written out by hand: clients, server, what both keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from . import numpy_reference
from .problem import SIZES, advance, prepare, settings, skewed

EXACT = 1e-12
METHODS = [
    ("fedavg", {}),
    ("fedprox", {}),
    ("fedprox", {"mu": 0.3}),
    ("fedntd", {}),
    ("fedntd", {"variant": "official"}),
    ("fedntd", {"variant": "official", "beta": 0.5, "temperature": 3.0}),
    ("feddyn", {}),
    ("feddyn", {"alpha": 0.3}),
    ("fedsam", {}),
    ("fedsam", {"rho": 0.4}),
    ("feddisco", {}),
    ("feddisco", {"variant": "paper"}),
    ("fedspeed", {}),
    ("fedspeed", {"alpha": 0.3, "rho": 0.4}),
    ("fedspeed", {"variant": "paper", "alpha": 0.3}),
    ("scaffold", {}),
]
OPTIMIZERS = {
    "plain": dict(clip_norm=1e3),  # never reached
    "clipped": dict(clip_norm=1.5, momentum=0.6),  # reached in some steps
}


def name_of(value: Any) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("asd", ["", "+asd"])
@pytest.mark.parametrize(("method", "arguments"), METHODS, ids=name_of)
def test_three_rounds_by_hand(method: str, arguments: dict[str, Any], asd: str, optimizer: str) -> None:
    config = settings(method=method + asd, method_args=arguments, optimizer=OPTIMIZERS[optimizer])
    data = skewed()
    context = prepare(config, data)
    expected = numpy_reference.simulate(config, data, context.initial.numpy().copy())
    final, _ = advance(context)

    for model in ("cloud", "sel", "all"):
        np.testing.assert_allclose(final.model(model), getattr(expected, model), rtol=0, atol=EXACT, err_msg=model)
    for k in range(len(SIZES)):
        for name, vector in (context.records.read(k) or {}).items():
            found = {"h": expected.h, "c": expected.c, "upload": expected.uploads}[name]
            np.testing.assert_allclose(vector, found[k], rtol=0, atol=EXACT, err_msg=f"{name} of client {k}")
    assert any(expected.clipped) == (optimizer != "plain")
    assert not all(expected.clipped)


def test_the_cases_use_what_a_client_remembers() -> None:
    """Some client takes part twice, or its state would not be tested."""
    context = prepare(settings(method="feddyn"))
    _, rows = advance(context)
    seen = [k for k in range(len(SIZES)) if context.records.read(k)]
    assert len(seen) < sum(row["client_updates"] for row in rows)


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        ("temperature", dict(temperature=3.0)),
        ("weighting", dict(weighting="uniform")),
        ("entropy_temperature", dict(entropy_temperature=2.0)),
        ("entropy_power", dict(entropy_power=0.0)),
        ("prior_power", dict(prior_power=0.0)),
        ("divergence", dict(divergence="js")),
        ("weight", dict(weight=2.0)),
    ],
)
def test_every_asd_setting_reaches_the_loss(setting: str, change: dict[str, Any]) -> None:
    usual, other = (advance(prepare(settings(method="fedavg+asd", asd=asd)), 1)[0].cloud for asd in ({}, change))
    assert (usual - other).abs().max() > 1e-6, f"asd.{setting} has no effect"


def test_uniform_asd_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    config, data = settings(method="fedavg+asd", asd=dict(weighting="uniform")), skewed()
    context = prepare(config, data)
    term = dict(weight=3.0, tau=2.0, adaptive=False, not_true=False)
    monkeypatch.setattr(numpy_reference, "distillation", lambda *_: term)
    expected = numpy_reference.simulate(config, data, context.initial.numpy().copy())
    np.testing.assert_allclose(advance(context)[0].cloud, expected.cloud, rtol=0, atol=EXACT)


def test_the_learning_rate_decays_by_0998_a_round() -> None:
    config = settings(method="fedavg", optimizer=dict(lr=0.1, lr_decay_per_round=0.998))
    _, rows = advance(prepare(config), 3)
    assert [row["lr"] for row in rows] == pytest.approx([0.1, 0.0998, 0.0996004], rel=1e-15)
