"""What a method may say: who is asked, what is refused, and that FedAvg's own answers change no bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedasd_fast.algorithms import (
    Batch,
    Client,
    Correction,
    LogitChange,
    Method,
    Perturbation,
    Server,
    create,
    hooks_used,
)
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_dict
from fedasd_fast.simulation import SimulationError
from fedasd_fast.simulation.executors.autotune import choose_executor

from .problem import advance, outcome, prepare, same, settings, skewed
from .test_moon import network

HERE = __name__


def test_hooks_of_the_methods() -> None:
    expected = {
        "fedavg": set(), "fedprox": set(), "feddyn": set(), "fedntd": set(), "fedsam": set(), "scaffold": set(),
        "fedspeed": set(), "feddisco": set(), "fedavgm": set(), "fedadam": set(), "fedexp": set(), "feddc": set(),
        "fednova": {"contribution"}, "fedcm": {"gradient_factor"}, "fedinit": {"start", "contribution"},
        "fedgkd": {"teacher"}, "fedgmt": {"teacher"}, "fedlesam": {"perturbation"}, "fedsmoo": {"perturbation"},
        "fedlc": {"logits"}, "fedrs": {"logits"}, "moon": {"local_loss"}, "fedsol": {"ascent_loss"},
    }  # fmt: skip
    assert {name: set(hooks_used(create(name, {}))) for name in expected} == expected


@dataclass(frozen=True)
class SaysFedAvg(Method):
    """Every hook that a stack can run, with FedAvg's answer."""

    def start(self, server: Server, client: Client) -> Tensor:
        return server.model.clone()

    def teacher(self, server: Server) -> Tensor | None:
        return server.model.double()

    def gradient_factor(self, server: Server, client: Client) -> float:
        return 1.0

    def perturbation(self, server: Server, client: Client) -> Perturbation | None:
        return None

    def logits(self, server: Server, client: Client) -> LogitChange | None:
        return None

    def contribution(self, server: Server, client: Client, end: Tensor, steps: int) -> Tensor:
        return end.clone()


@pytest.mark.parametrize("asd", ["", "+asd"])
@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize("teacher", ["cache", "recompute"])
def test_the_default_answers_change_no_bit(executor: str, asd: str, teacher: str) -> None:
    config = settings(method=f"{HERE}:SaysFedAvg{asd}", executor=executor, teacher=teacher)
    assert len(hooks_used(config.create_method())) == 6
    assert same(outcome(config), outcome(config.replace(method=f"fedavg{asd}")))


@dataclass(frozen=True)
class Broken(Method):
    hook: str = ""
    client_state = ("x",)

    def _fail(self, hook: str) -> None:
        if self.hook == hook:
            raise ZeroDivisionError("on purpose")

    def start(self, server: Server, client: Client) -> Tensor:
        self._fail("start")
        return server.model

    def teacher(self, server: Server) -> Tensor | None:
        self._fail("teacher")
        return server.model

    def correction(self, server: Server, client: Client) -> Correction:
        self._fail("correction")
        return Correction()

    def gradient_factor(self, server: Server, client: Client) -> float:
        self._fail("gradient_factor")
        return 1.0

    def perturbation(self, server: Server, client: Client) -> Perturbation | None:
        self._fail("perturbation")
        return None

    def logits(self, server: Server, client: Client) -> LogitChange | None:
        self._fail("logits")
        return None

    def finish(self, server: Server, client: Client, end: Tensor, steps: int) -> dict[str, Tensor]:
        self._fail("finish")
        return {"x": end}

    def contribution(self, server: Server, client: Client, end: Tensor, steps: int) -> Tensor:
        self._fail("contribution")
        return end

    def weights(self, cohort: Any) -> np.ndarray:
        self._fail("weights")
        return super().weights(cohort)

    def combine(self, server: Server, mean: Tensor, change: Any) -> tuple[Tensor, dict[str, Tensor]]:
        self._fail("combine")
        return mean, {}


@dataclass(frozen=True)
class BrokenLoss(Broken):
    def frozen_models(self, server: Server, client: Client) -> dict[str, Tensor]:
        self._fail("frozen_models")
        return {}

    def local_loss(self, batch: Batch) -> Tensor:
        self._fail("local_loss")
        return batch.outputs.logits.sum()


CLIENT_HOOKS = ["start", "teacher", "correction", "gradient_factor", "perturbation", "logits", "finish", "contribution"]


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize("hook", CLIENT_HOOKS)
def test_an_error_names_method_hook_client_and_round(hook: str, executor: str) -> None:
    config = settings(method=f"{HERE}:Broken+asd", method_args={"hook": hook}, executor=executor)
    with pytest.raises(
        SimulationError, match=rf"client \d failed in round 1 .*Broken.{hook}: ZeroDivisionError: on pu"
    ):
        outcome(config)


@pytest.mark.parametrize("hook", ["frozen_models", "local_loss"])
def test_an_error_in_the_own_loss_names_them_too(hook: str) -> None:
    config = settings(method=f"{HERE}:BrokenLoss", method_args={"hook": hook}, executor="serial")
    with pytest.raises(SimulationError, match=rf"client \d failed in round 1 .*BrokenLoss.{hook}: ZeroDivisionError"):
        outcome(config)


@pytest.mark.parametrize("hook", ["weights", "combine"])
def test_an_error_of_the_server_names_method_hook_and_round(hook: str) -> None:
    config = settings(method=f"{HERE}:Broken", method_args={"hook": hook})
    with pytest.raises(SimulationError, match=rf"Broken.{hook} failed in round 1: ZeroDivisionError: on purpose"):
        outcome(config)


@dataclass(frozen=True)
class Wrong(Method):
    """Answers that cannot be used."""

    what: str = ""

    def correction(self, server: Server, client: Client) -> Correction:
        return Correction(rho=0.1 if self.what == "both" else 0.0)

    def perturbation(self, server: Server, client: Client) -> Perturbation | None:
        if self.what == "empty":
            return Perturbation()
        return Perturbation(fixed=server.model) if self.what == "both" else None

    def logits(self, server: Server, client: Client) -> LogitChange | None:
        return LogitChange(shift=torch.zeros(3)) if self.what == "shape" else None

    def contribution(self, server: Server, client: Client, end: Tensor, steps: int) -> Tensor:
        return end * float("inf") if self.what == "infinite" else end

    def finish(self, server: Server, client: Client, end: Tensor, steps: int) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True)
class Forgetful(Wrong):
    client_state = ("kept",)
    sent = ("told",)


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize(
    ("method", "what", "message"),
    [
        ("Wrong", "both", "a perturbation and a correction with rho = 0.1"),
        ("Wrong", "empty", "Wrong.perturbation: .*expected a Perturbation with `fixed`, or with `dual` and `common`"),
        ("Wrong", "shape", r"Wrong.logits: .*shift has shape \(3,\); expected \[4\]"),
        ("Wrong", "infinite", "the largest entry of its contribution is inf"),
        ("Forgetful", "", "Forgetful.finish: .*kept, told not in what it returned"),
    ],
)
def test_answers_that_cannot_be_used(method: str, what: str, message: str, executor: str) -> None:
    with pytest.raises(SimulationError, match=message):
        outcome(settings(method=f"{HERE}:{method}", method_args={"what": what}, executor=executor))


@dataclass(frozen=True)
class Short(Method):
    """Vectors of one entry, which torch would stretch to any length."""

    hook: str

    client_state = ("kept",)
    server_state = ("own",)

    def start(self, server: Server, client: Client) -> Tensor:
        return server.model[:1] if self.hook == "start" else server.model

    def teacher(self, server: Server) -> Tensor | None:
        return server.model[:1] if self.hook == "teacher" else server.model

    def finish(self, server: Server, client: Client, end: Tensor, steps: int) -> dict[str, Tensor]:
        return {"kept": end[:1] if self.hook == "finish" else end}

    def contribution(self, server: Server, client: Client, end: Tensor, steps: int) -> Tensor:
        return end[:1] if self.hook == "contribution" else end

    def combine(self, server: Server, mean: Tensor, change: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return mean[:1] if self.hook == "combine" else mean, {} if self.hook == "forgets" else {"own": mean}


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("start", r"client \d+ .*Short.start: .*has shape \(1,\); expected a tensor of shape \(16,\)"),
        ("teacher", r"client \d+ .*Short.teacher: .*has shape \(1,\)"),
        ("finish", r"client \d+ .*Short.finish: .*kept has shape \(1,\)"),
        ("contribution", r"client \d+ .*Short.contribution: .*has shape \(1,\)"),
        ("combine", r"Short.combine failed in round 1: .*the model that it returned has shape \(1,\)"),
        ("forgets", r"Short.combine failed in round 1: .*the state own that it returned has type NoneType"),
    ],
)
def test_vectors_of_another_length_are_refused(hook: str, message: str, executor: str) -> None:
    with pytest.raises(SimulationError, match=message):
        outcome(settings(method=f"{HERE}:Short+asd", method_args={"hook": hook}, executor=executor))


@dataclass(frozen=True)
class NotAScalar(Method):
    def local_loss(self, batch: Batch) -> Tensor:
        return batch.outputs.logits


def test_an_own_loss_without_a_gradient_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"MOON.local_loss has no gradient: it must depend on"):
        outcome(settings(method="moon"))  # whose features are the inputs themselves


def test_an_own_loss_must_be_a_scalar() -> None:
    with pytest.raises(SimulationError, match=r"NotAScalar.local_loss returned shape \(3, 4\); expected a scalar"):
        outcome(settings(method=f"{HERE}:NotAScalar"))


@dataclass(frozen=True)
class OwnQuadratic(Method):
    """A factor a of its own for each client."""

    def correction(self, server: Server, client: Client) -> Correction:
        return Correction(quadratic=0.1 * client.relative_size, linear=server.model * -0.1 * client.relative_size)


def test_factors_that_differ_between_clients_are_not_mixed_up_in_a_stack() -> None:
    config = settings(method=f"{HERE}:OwnQuadratic")
    alone, together = (outcome(config.replace(executor=name)) for name in ("serial", "stacked"))
    assert same(alone, together)  # one after the other, after all


class TestOwnLoss:
    def test_stacked_is_refused_with_the_reason(self) -> None:
        with pytest.raises(ConfigError, match="the local_loss of MOON needs an autograd graph for each client"):
            prepare(settings(method="moon", executor="stacked"))

    def test_auto_goes_another_way_and_says_why(self) -> None:
        context = prepare(settings(method="moon", executor="auto", workers=1), skewed(), network())
        chosen, choice = choose_executor(context)
        assert chosen.executor == "serial"
        assert "the local_loss of MOON needs an autograd graph for each client, so clients are not stacked" in choice

    def test_label_counts_and_frozen_outputs_reach_it(self) -> None:
        context = prepare(settings(method=f"{HERE}:Looks", rounds=1))
        advance(context)
        counts = [tuple(skewed().label_counts(k).tolist()) for k in range(5)]
        assert LOOKED
        assert all(label_counts in counts and equal for label_counts, equal in LOOKED)


LOOKED: list[tuple[tuple[int, ...], bool]] = []


@dataclass(frozen=True)
class Looks(Method):
    def frozen_models(self, server: Server, client: Client) -> dict[str, Tensor]:
        return {"twice": 2 * server.model, "global": server.model}

    def local_loss(self, batch: Batch) -> Tensor:
        assert batch.client.label_counts is not None
        one, two = batch.frozen["global"], batch.frozen["twice"]
        LOOKED.append((tuple(batch.client.label_counts.tolist()), torch.equal(two.logits, 2 * one.logits)))
        assert torch.equal(one.features, batch.outputs.features)  # the inputs themselves: the network has one layer
        assert not one.logits.requires_grad
        return 0.0 * batch.outputs.logits.sum()


@pytest.mark.parametrize("method", ["fedcm", "fedlc", "moon", "fedsmoo", "fedsol"])
def test_a_cuda_graph_is_refused(method: str) -> None:
    with pytest.raises(ConfigError, match=f"cuda_graph = true, but {method} has"):
        from_dict(dict(method=method, device="cuda", cuda_graph=True))


@pytest.mark.parametrize(
    ("method", "arguments", "base"),
    [
        ("fedavgm", {"beta": 0.0}, "fedavg"),
        ("fedgkd", {"coefficient": 0.0}, "fedavg"),
        ("fedrs", {"alpha": 1.0}, "fedavg"),
        ("fedsol", {"rho": 0.0}, "fedavg"),
        ("feddc", {"alpha": 0.0}, "scaffold"),
        ("fedsmoo", {"rho": 0.0, "alpha": 0.01}, "feddyn"),
    ],
)
def test_identities(method: str, arguments: dict[str, float], base: str) -> None:
    rounds, model = (1, "sel") if method == "feddc" else (3, "cloud")  # its server adds the drift; its clients do not
    found, plain = (
        advance(prepare(settings(method=name, method_args=given)), rounds)[0]
        for name, given in ((method, arguments), (base, {}))
    )
    torch.testing.assert_close(found.model(model), plain.model(model), rtol=0, atol=1e-12)
