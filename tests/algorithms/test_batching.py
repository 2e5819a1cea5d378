"""Methods whose hooks take all clients of a cohort at once give each the bits that it has alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fedasd_fast.algorithms import Client, Correction, Method, Server, create, names
from fedasd_fast.algorithms.batching import is_batched
from fedasd_fast.algorithms.fedavg import FedAvg
from fedasd_fast.algorithms.feddyn import FedDyn
from fedasd_fast.simulation.client.cohort_clients import CohortClients, cohort_correction, cohort_finish
from fedasd_fast.simulation.context import build_context
from tests.simulation.small_runs import small_config


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_at_once_is_one_by_one(name: str, dtype: str) -> None:
    context = build_context(small_config(method=name, dtype=dtype, size_sigma=0.8))
    experiment, model, rng = context.experiment, context.initial, torch.Generator().manual_seed(0)
    method, ids = experiment.method, np.array([7, 2, 11, 5])

    def vectors(*shape: int) -> Tensor:
        return torch.randn(*shape, len(model), generator=rng, dtype=torch.float64).to(model.dtype)

    for client in (2, 5):  # the others have no record yet
        context.records.write(client, dict.fromkeys(context.records.names, vectors()))
    state = {key: vectors().double() for key in method.server_state}
    server = Server(3, 0.07, model, state, experiment.data.num_clients, vectors())
    clients = CohortClients(experiment, ids, context.records, model)
    assert clients.known.tolist() == [False, True, False, True]
    assert [client.id for client in clients] == ids.tolist()
    assert [client.id for client in clients[1:3]] == [2, 11]
    together, decays = cohort_correction(method, server, clients, 1e-3)
    alone, decays_alone = cohort_correction(method, server, list(clients), 1e-3)
    assert torch.equal(decays, decays_alone)
    assert decays.shape == (4,)
    assert (together.linear is None) == (alone.linear is None)
    if together.linear is not None and alone.linear is not None:
        assert torch.equal(together.linear.expand_as(alone.linear), alone.linear)
    assert (together.quadratic, together.rho, together.rho_epsilon) == (alone.quadratic, alone.rho, alone.rho_epsilon)
    if name == "fedsmoo":  # finishes client by client, each with its own dual vector
        return
    ends, steps = vectors(4), torch.tensor([3, 1, 8, 5])
    kept, kept_alone = (cohort_finish(method, server, group, ends, steps) for group in (clients, list(clients)))
    assert kept.keys() == kept_alone.keys() == {*method.client_state, *method.sent}
    assert all(torch.equal(kept[key], kept_alone[key]) for key in kept)


def test_who_is_asked_once() -> None:
    asked = {name for name in names() if is_batched(create(name, {}))}
    assert {"fedavg", "fedprox", "fedntd", "feddyn", "fedsam", "feddisco", "fedspeed"} <= asked


@dataclass(frozen=True)
class Own(FedAvg):
    """Says nothing of cohorts, so it is not asked about one, whatever its base class says."""

    def correction(self, server: Server, client: Client) -> Correction:
        assert isinstance(client.relative_size, float)
        return Correction(decay=0.1 if client.relative_size > 1 else 0.0)


@dataclass(frozen=True)
class OwnState(FedDyn):
    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        return {"h": end * int(steps)}


@dataclass(frozen=True)
class Said(OwnState):
    batched = True


@dataclass(frozen=True)
class Unsaid(FedDyn):
    batched = False


@pytest.mark.parametrize(("method", "expected"), [(Method(), True), (Own(), False), (OwnState(), False), (Said(), True),
                                                  (Unsaid(), False)])  # fmt: skip
def test_a_subclass_that_replaces_a_hook_must_say_it_again(method: Method, expected: bool) -> None:
    assert is_batched(method) is expected
