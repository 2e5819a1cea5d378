"""Bytes that clients receive and send: whole vectors, uncompressed, without what the network adds."""

from __future__ import annotations

from torch import Tensor

from ..algorithms import Method


def bytes_per_client(method: Method, model: Tensor) -> tuple[int, int]:
    """Down and up."""
    return model.nbytes * (1 + method.extra_down), model.nbytes * (1 + len(method.sent) + method.extra_up)


def traffic(method: Method, model: Tensor, started: int, finished: int) -> dict[str, int]:
    """Of a round."""
    down, up = bytes_per_client(method, model)
    return {"bytes_down": started * down, "bytes_up": finished * up}
