"""Everything that a round passes on to the next, apart from the clients' own records (see store.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..algorithms import Method
from ..config import Config
from .aggregation import fixed_point
from .devices import SimulatedClock
from .loss_scale import LossScale


@dataclass(frozen=True)
class State:
    round: int  # rounds done
    initial: Tensor  # [P]
    cloud: Tensor  # [P] what clients start from next: w_t
    sel: Tensor  # [P] the last participants' mean
    all_change: Tensor | None  # [P] fixed point: mean over all clients of (last upload - initial); None: not tracked
    server: dict[str, Tensor]  # the method's own vectors, float64 [P]
    loss_scale: LossScale | None = None  # of precision = float16
    clock: SimulatedClock | None = None  # of simulated devices

    def model(self, name: str) -> Tensor:
        """all, sel or cloud as a vector [P]."""
        if name != "all":
            return self.sel if name == "sel" else self.cloud
        if self.all_change is None:
            raise ValueError("the all-clients average was not tracked; add `all` to eval_models")
        return (self.initial.double() + fixed_point.to_float(self.all_change)).to(self.initial.dtype)


_PARTS = {"loss_scale": LossScale, "clock": SimulatedClock}  # which not every run has


def first(config: Config, method: Method, initial: Tensor, clock: SimulatedClock | None = None) -> State:
    device = initial.device
    return State(
        round=0,
        initial=initial,
        cloud=initial,
        sel=initial,
        all_change=fixed_point.zeros(len(initial), device) if "all" in config.eval_models else None,
        server={name: torch.zeros(len(initial), dtype=torch.float64, device=device) for name in method.server_state},
        loss_scale=LossScale() if config.precision == "float16" else None,
        clock=clock,
    )


def to_plain(state: State) -> dict[str, Any]:
    """Tensors, numbers and mappings only: what torch.load(weights_only=True) accepts."""
    values = dict(vars(state))
    parts = {name: values.pop(name) for name in _PARTS}
    return values | {name: dict(vars(part)) for name, part in parts.items() if part}


def from_plain(values: Mapping[str, Any], device: torch.device) -> State:
    def move(x: Any) -> Any:
        if isinstance(x, dict):
            return {name: move(item) for name, item in x.items()}
        return x.to(device) if isinstance(x, Tensor) else x

    state = {name: move(x) for name, x in values.items()}
    return State(**{name: _PARTS[name](**value) if name in _PARTS else value for name, value in state.items()})
