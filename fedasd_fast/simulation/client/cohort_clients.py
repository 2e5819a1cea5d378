"""The clients of a cohort at the start of their update, with their state as matrices, and what a method says to them.

A method whose hooks take all clients at once (algorithms/batching.py) is asked once, others client by client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

import numpy as np
import torch
from torch import Tensor

from ...algorithms import Client, Correction, Method, Server
from ...algorithms.batching import is_batched
from ...data.host_to_device import send
from ..experiment import Experiment
from ..storage.client_store import ClientRecords
from .hook_errors import vector_like


class CohortClients(Sequence[Client]):
    """A sequence of clients that are made when they are asked for."""

    def __init__(self, experiment: Experiment, ids: np.ndarray, records: ClientRecords, like: Tensor) -> None:
        """What the records say, zeros like the whole vector `like` [N] for clients that have none."""
        self.ids, self.relative_sizes = ids, experiment.relative_sizes(ids)  # [K]
        names, self._label_counts = experiment.method.client_state, experiment.label_counts
        self._experiment = experiment
        # [K] who has a record; nobody asks where nothing is kept
        self.known = records.known(ids) if records.names else np.zeros(len(ids), bool)
        trained = experiment.layout.trained
        self.state = {name: trained(self._read(name, records, like)).contiguous() for name in names}  # [K, P] each
        self._uploads = None if experiment.layout.local is None else self._read("upload", records, like)  # [K, N]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, k: int) -> Client: ...
    @overload
    def __getitem__(self, k: slice) -> list[Client]: ...
    def __getitem__(self, k: int | slice) -> Client | list[Client]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        id, state = int(self.ids[k]), {name: rows[k] for name, rows in self.state.items()}
        return Client(id, float(self.relative_sizes[k]), state, self._label_counts(id))

    def __iter__(self) -> Iterator[Client]:
        return (self[k] for k in range(len(self)))

    def servers(self, server: Server) -> list[Server] | None:
        """The server as each client sees it; None: all see the same."""
        if self._uploads is None:
            return None
        own = zip(self._uploads, self.known.tolist(), strict=True)
        return [self._experiment.personal(server, upload if known else None) for upload, known in own]

    def together(self, like: Tensor) -> Client:
        """All of them as one client, for hooks that take cohorts."""
        sizes = send(torch.from_numpy(self.relative_sizes), like.device)
        return Client(-1, sizes.unsqueeze(1), self.state)

    def _read(self, name: str, records: ClientRecords, like: Tensor) -> Tensor:
        rows = like.new_empty(len(self), len(like))
        if self.known.all():
            records.read_cohort(name, self.ids, rows)
            return rows
        rows.zero_()
        if self.known.any():
            known = rows.new_empty(int(self.known.sum()), len(like))
            records.read_cohort(name, self.ids[self.known], known)
            rows[send(torch.from_numpy(self.known), like.device)] = known
        return rows


def cohort_correction(
    method: Method,
    server: Server,
    clients: Sequence[Client],
    weight_decay: float,
    servers: Sequence[Server] | None = None,  # as each client sees it; None: all see the same
) -> tuple[Correction, Tensor]:
    """One correction for K clients, whose v is [K, P] or the same for all, [P]; and what decays each of them, [K]:
    the optimizer's weight decay and that of its correction."""
    like = server.model
    if servers is None and isinstance(clients, CohortClients) and is_batched(method):
        correction = method.correction(server, clients.together(like))
        decays = torch.as_tensor(weight_decay + correction.decay, dtype=torch.float64, device=like.device)
        return correction, decays.reshape(-1).expand(len(clients)).contiguous()
    each = servers or [server] * len(clients)
    corrections = [method.correction(own, client) for own, client in zip(each, clients, strict=True)]
    decay = [weight_decay + correction.decay for correction in corrections]
    return _stacked(corrections), send(torch.tensor(decay, dtype=torch.float64), like.device)


def cohort_finish(
    method: Method, server: Server, clients: Sequence[Client], ends: Tensor, steps: Tensor
) -> dict[str, Tensor]:
    """What the clients keep and send beside their models, [K, P] each, after so many steps [K] ended at `ends`."""
    names = (*method.client_state, *method.sent)
    if not names:
        return {}
    if isinstance(clients, CohortClients) and is_batched(method):
        state = method.finish(server, clients.together(ends), ends, steps.unsqueeze(1))
        return {name: vector_like(state[name], ends, name) for name in names}
    result = {name: torch.empty_like(ends) for name in names}
    for k, (client, count) in enumerate(zip(clients, steps.tolist(), strict=True)):
        state = method.finish(server, client, ends[k], count)
        for name, rows in result.items():
            rows[k] = vector_like(state[name], ends[k], name)
    return result


def _stacked(corrections: Sequence[Correction]) -> Correction:
    last = corrections[-1]
    if any(
        (one.quadratic, one.rho, one.rho_epsilon) != (last.quadratic, last.rho, last.rho_epsilon) for one in corrections
    ):  # one by one, then
        raise ValueError("corrections with different quadratic, rho or rho_epsilon cannot be stacked")
    if last.linear is None:
        return last
    linear = last.linear.new_empty(len(corrections), len(last.linear))
    for row, correction in zip(linear, corrections, strict=True):
        assert correction.linear is not None
        row.copy_(correction.linear)
    return replace(last, linear=linear)
