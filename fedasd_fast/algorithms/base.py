"""The interface of a federated learning method, in terms that every executor can run.

All methods share one local step on the flat parameter vector w:

    g   = gradient of the client's loss at w, or at w + rho g/||g|| for sharpness-aware methods
    w  <- w - lr (clip(g + a w + v) + (weight_decay + decay) w)

A method defines a, v, decay and rho for a client (`correction`), the state that a client keeps (`finish`), the
aggregation weight of each participant (`weights`), and the server update (`combine`).  No penalty is built into an
autograd graph, so none can lose its gradient there.  ASD changes the loss only (`distillation`), so it can be combined
with every method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ..common.schema import ConfigError
from ..loss.options import ASDOptions


@dataclass(frozen=True)
class Distillation(ASDOptions):
    """The distillation term of a client's loss: weight * sum_i alpha_i D_i."""

    weight: float

    def options(self) -> dict[str, Any]:
        """As keyword arguments of the loss, besides its weight."""
        return {option.name: getattr(self, option.name) for option in fields(ASDOptions)}

    def teacher_options(self) -> dict[str, Any]:
        """As keyword arguments of TeacherCache.build."""
        return {name: getattr(self, name) for name in (*self.TEACHER_FIELDS, "ignore_index")}


@dataclass(frozen=True)
class Correction:
    """a, v, decay and rho of the local step."""

    quadratic: float = 0.0  # a
    linear: Tensor | None = None  # v [P]
    decay: float | Tensor = 0.0  # added after clipping, as by the SGD of the authors' code; of K clients [K, 1]
    rho: float = 0.0  # radius of the ascent step
    rho_epsilon: float = 1e-16  # rho g / (||g|| + epsilon)


@dataclass(frozen=True)
class Server:
    """The server at the start of a round: what it sends to the clients."""

    round: int  # 0-based
    lr: float
    model: Tensor  # [P] w_t: where clients start, and their teacher
    state: Mapping[str, Tensor]  # float64 [P] each
    clients: int  # K, the whole population
    loss_scale: float | None = None  # of float16: what losses are multiplied by before they are differentiated


@dataclass(frozen=True)
class Client:
    """A client at the start of its update, or all K clients of a cohort for methods whose hooks take them at once."""

    id: int  # -1 for K clients
    relative_size: float | Tensor  # n_k / mean n; of K clients float64 [K, 1]
    state: Mapping[str, Tensor]  # [P] each, zeros at first; of K clients [K, P]


@dataclass(frozen=True)
class Cohort:
    """The clients whose models the server will aggregate, known before they train."""

    clients: np.ndarray  # [m] sorted
    sizes: np.ndarray  # [m] n_k
    all_sizes: np.ndarray  # [K]
    label_proportions: Callable[[np.ndarray], np.ndarray] = field(repr=False)  # clients [j] -> [j, C]


class Method:
    """FedAvg, and the base class of all other methods.  The arguments of a method are the fields of its dataclass."""

    client_state: ClassVar[tuple[str, ...]] = ()  # vectors [P] that a client keeps from round to round
    server_state: ClassVar[tuple[str, ...]] = ()  # vectors [P] that the server keeps
    weighted: ClassVar[bool] = True  # by number of samples; else all clients equally
    batched: ClassVar[bool] = True  # correction and finish, as they are here, take K clients at once: see batching.py

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and value < 0:
                raise ConfigError(f"method_args.{name} = {value}; expected 0 or more")

    def distillation(self, asd: Distillation, enabled: bool) -> Distillation | None:
        """The distillation term of the client's loss, None for none.  `asd` has the settings of ASD, which is on if
        `enabled`."""
        return asd if enabled and asd.weight else None

    def correction(self, server: Server, client: Client) -> Correction:
        """What the method adds to the client's local step."""
        return Correction()

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        """The client's new state, after its `steps` local steps ended at `end` [P]; of K clients [K, 1] and [K, P]."""
        return {}

    def weights(self, cohort: Cohort) -> np.ndarray:
        """[m] the aggregation weight of each participant; need not sum to 1."""
        return cohort.sizes.astype(np.float64) if self.weighted else np.ones(len(cohort.sizes))

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The next model and server state (float64), from the participants' weighted mean [P] and the change of each
        client state, averaged over all K clients."""
        return mean, dict(server.state)
