"""Bytes that clients receive and send: whole vectors, uncompressed, without what the network adds."""

from __future__ import annotations

from torch import Tensor

from .experiment import Experiment


def bytes_per_client(experiment: Experiment, model: Tensor) -> tuple[int, int]:
    """Down and up."""
    method, each = experiment.method, experiment.layout.exchanged(len(model)) * model.element_size()
    return each * (1 + method.extra_down), each * (1 + len(method.sent) + method.extra_up)


def traffic(experiment: Experiment, model: Tensor, started: int, finished: int) -> dict[str, int]:
    """Of a round."""
    down, up = bytes_per_client(experiment, model)
    return {"bytes_down": started * down, "bytes_up": finished * up}
