"""Registering and importing methods of the user's own."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from fedasd_fast.algorithms import Method, create, names, register, registry
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.simulation import simulate

from .problem import advance, linear, outcome, prepare, same, settings, skewed

FILE = '''
"""FedAvgM (Hsu et al., 2019): the server moves by a running sum of the clients' updates."""

from dataclasses import dataclass

from fedasd_fast.algorithms import Method, register


@register("my_fedavgm")
@dataclass(frozen=True)
class FedAvgM(Method):
    momentum: float = 0.9

    server_state = ("velocity",)

    def combine(self, server, mean, change):
        velocity = self.momentum * server.state["velocity"] + (server.model - mean)
        return server.model - velocity, {"velocity": velocity}
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "a_file_of_my_own"
    (tmp_path / f"{name}.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(importlib.sys.modules, name, raising=False)  # type: ignore[attr-defined]
    return name


def test_by_registered_name(module: str) -> None:
    importlib.import_module(module)
    assert "my_fedavgm" in names()
    context = prepare(settings(method="my_fedavgm+asd", method_args={"momentum": 0.5}))
    first, _ = advance(context, 1)
    mean = advance(prepare(settings(method="fedavg+asd")), 1)[0].cloud
    torch.testing.assert_close(first.cloud, mean, rtol=0, atol=1e-15)  # nothing to remember yet
    v1 = context.initial - mean

    second, _ = advance(prepare(settings(method="my_fedavgm+asd", method_args={"momentum": 0.5})), 2)
    v2 = 0.5 * v1 + (first.cloud - second.sel)
    torch.testing.assert_close(second.server["velocity"], v2, rtol=0, atol=1e-15)
    torch.testing.assert_close(second.cloud, first.cloud - v2, rtol=0, atol=1e-15)
    assert not torch.equal(second.cloud, second.sel)


def test_by_import_path(module: str) -> None:
    config = settings(method=f"{module}:FedAvgM+asd")
    assert config.distillation is not None
    result = simulate(config, data=skewed(), model=linear())
    importlib.import_module(module)
    assert torch.equal(result.models["cloud"], outcome(settings(method="my_fedavgm+asd")).cloud)


def test_unregistered_without_state(module: str) -> None:
    """momentum 0 is FedAvg, whichever way the method was found."""
    plain = settings(method=f"{module}:FedAvgM", method_args={"momentum": 0.0})
    torch.testing.assert_close(outcome(plain).cloud, outcome(settings()).cloud, rtol=0, atol=1e-14)


def test_registering_again_is_fine_but_not_another_class() -> None:
    register("fedavg")(registry._methods["fedavg"])
    with pytest.raises(ValueError, match="'fedavg' already exists"):

        @register("fedavg")
        class Other(Method):
            pass


def test_another_class_of_the_same_name_does_not_replace_a_method_silently() -> None:
    mine = type("FedAvg", (Method,), {"__module__": "mine", "__qualname__": "FedAvg"})
    with pytest.raises(ValueError, match="already exists"):
        register("fedavg")(mine)


@pytest.mark.parametrize("name", ["fedavg+asd", "a:b"])
def test_names_with_a_meaning_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a method"):
        register(name)(Method)


def test_only_methods_can_be_registered() -> None:
    with pytest.raises(TypeError, match="not a subclass"):
        register("mine")(dict)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fedagv", {}, "did you mean fedavg"),
        ("nowhere:Method", {}, "cannot be imported"),
        ("fedasd_fast.algorithms:Nothing", {}, "cannot be imported"),
        (":Method", {}, "cannot be imported"),
        ("fedasd_fast.algorithms:create", {}, "not a subclass"),
        ("collections:OrderedDict", {}, "not a subclass"),
        ("feddyn", {"alhpa": 0.1}, "method_args.alhpa; did you mean alpha"),
        ("feddyn", {"alpha": -0.1}, r"method_args.alpha = -0.1; expected 0 or more"),
        ("feddyn", {"alpha": "much"}, "method_args.alpha = 'much'"),
        ("feddisco", {"variant": "papre"}, "did you mean paper"),
        ("fedspeed", {"variant": "papre"}, "did you mean paper"),
        ("fedspeed", {"rho": -0.1}, r"method_args.rho = -0.1; expected 0 or more"),
        ("fedavg", {"mu": 1.0}, "unknown setting method_args.mu"),
        ("fedntd", {"temperature": 0.0}, "temperature"),
    ],
)
def test_mistakes_are_named(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create(name, arguments)


class NotADataclass(Method):
    pass


def test_a_method_that_is_no_dataclass_is_named() -> None:
    with pytest.raises(ConfigError, match="dataclass"):
        create(f"{__name__}:NotADataclass", {})


@dataclass(frozen=True)
class SendsWhatItKeeps(Method):
    client_state = ("c",)
    sent = ("c",)


@dataclass(frozen=True)
class KeepsAnUpload(Method):
    client_state = ("upload",)


@pytest.mark.parametrize(("cls", "vector"), [(SendsWhatItKeeps, "c"), (KeepsAnUpload, "upload")])
def test_vectors_of_one_name_are_refused(cls: type[Method], vector: str) -> None:
    """Their sums, or records, would be mixed up."""
    with pytest.raises(ConfigError, match=f"have {vector} twice.*rename it"):
        create(f"{__name__}:{cls.__name__}", {})


def test_asd_is_one_switch() -> None:
    by_name = settings(method="feddyn+asd")
    by_setting = settings(method="feddyn", asd=dict(enabled=True))
    assert by_name == by_setting
    assert same(outcome(by_name), outcome(by_setting))
    with pytest.raises(ConfigError, match=r"asd.enabled = false"):
        settings(method="feddyn+asd", asd=dict(enabled=False))


@dataclass(frozen=True)
class Nobody(Method):
    """Gives weight to none."""

    def weights(self, cohort: Any) -> Any:
        return 0.0 * cohort.sizes


def test_weights_that_sum_to_nothing_are_an_error() -> None:
    with pytest.raises((ValueError, RuntimeError), match="weight"):
        outcome(settings(method=f"{__name__}:Nobody"))
