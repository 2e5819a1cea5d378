"""The interface of a federated learning method, in terms that every executor can run.

All methods share one local step on the flat parameter vector w:

    g   = gradient of the client's loss at w, or at w + e for sharpness-aware methods: e = rho g/||g|| or `perturbation`
    w  <- w - lr (clip(c g + a w + v) + (weight_decay + decay) w)

A method overrides what differs from FedAvg; docs/methods.md has the table of hooks.  A hook that is not overridden is
not called (hooks.py).  No penalty needs to be built into an autograd graph, where it could lose its gradient.  ASD
changes the loss only (`distillation`), so it can be combined with every method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import torch
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
class Perturbation:
    """Where the loss gradient is taken: at w + e, with the same e in all steps of a client (`fixed`), or

        u = g - mu - s,    e = rho u / (||u|| + epsilon),    mu <- mu + e - s

    in every step, with a dual vector mu of the client and a common one s."""

    fixed: Tensor | None = None  # e [P]
    dual: Tensor | None = None  # mu [P] before the first step; `finish` gets the last one as client.dual
    common: Tensor | None = None  # s [P]
    rho: float = 0.0
    epsilon: float = 1e-7


@dataclass(frozen=True)
class LogitChange:
    """scale * z + shift in place of the logits z in the cross-entropy.  The distillation term compares the networks'
    own logits, so the teacher's cache is not concerned."""

    scale: Tensor | None = None  # [C]
    shift: Tensor | None = None  # [C]; -inf leaves a class out


@dataclass(frozen=True)
class Updates:
    """What came back from the clients of a round, in the order of their ids."""

    weights: np.ndarray  # [m] of their models in the mean; sum to 1
    steps: np.ndarray  # [m] local steps that changed the model: not those skipped in float16
    lengths: np.ndarray  # [m] ||w_k - w_t||

    @property
    def participants(self) -> int:
        return len(self.weights)

    @property
    def mean_square(self) -> float:
        """The mean squared length of the changes."""
        return float(self.weights @ self.lengths**2)


_NO_UPDATES = Updates(np.zeros(0), np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class Server:
    """The server at the start of a round: what it sends to the clients."""

    round: int  # 0-based
    lr: float
    model: Tensor  # [P] w_t: where clients start, and their teacher
    state: Mapping[str, Tensor]  # float64 [P] each
    clients: int  # K, the whole population
    initial: Tensor = field(default_factory=lambda: torch.zeros(0))  # [P] w_0
    momentum: float = 0.0  # of the clients' optimizer
    loss_scale: float | None = None  # of float16: what losses are multiplied by before they are differentiated
    updates: Updates = _NO_UPDATES  # in `combine` only
    statistics: Tensor | None = None  # [S] running statistics of BatchNorm, which methods do not touch


@dataclass(frozen=True)
class Client:
    """A client at the start of its update, or all K clients of a cohort for methods whose hooks take them at once."""

    id: int  # -1 for K clients
    relative_size: float | Tensor  # n_k / mean n; of K clients float64 [K, 1]
    state: Mapping[str, Tensor]  # [P] each, zeros at first; of K clients [K, P]
    label_counts: Tensor | None = None  # int64 [C], for `logits` and `local_loss`
    dual: Tensor | None = None  # [P] in `finish`: the dual vector of the perturbation after the last step


@dataclass(frozen=True)
class Outputs:
    """Of a network for a batch."""

    logits: Tensor  # [B, C]
    features: Tensor  # [B, F] the inputs of its last linear layer


@dataclass(frozen=True)
class Batch:
    """What `local_loss` may use."""

    outputs: Outputs  # of the model in training, with their autograd graph
    targets: Tensor  # [B]
    frozen: Mapping[str, Outputs]  # of the models that `frozen_models` names, without one
    client: Client


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
    sent: ClassVar[tuple[str, ...]] = ()  # vectors [P] that a client sends beside its model, and does not keep
    server_state: ClassVar[tuple[str, ...]] = ()  # vectors [P] that the server keeps
    extra_down: ClassVar[int] = 0  # vectors [P] that a client needs beside the model; for the bytes of a round only
    extra_up: ClassVar[int] = 0  # changes of client state that the server cannot tell from the model; likewise
    weighted: ClassVar[bool] = True  # by number of samples; else all clients equally
    sgd_only: ClassVar[bool] = False  # its formulas take a client's change for a sum of lr times gradient
    batched: ClassVar[bool] = True  # correction and finish, as they are here, take K clients at once: see batching.py

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and value < 0:
                raise ConfigError(f"method_args.{name} = {value}; expected 0 or more")

    def distillation(self, asd: Distillation, enabled: bool) -> Distillation | None:
        """The distillation term of the client's loss, None for none.  `asd` has the settings of ASD, which is on if
        `enabled`."""
        return asd if enabled and asd.weight else None

    def start(self, server: Server, client: Client) -> Tensor:
        """Where local training begins, [P]."""
        return server.model

    def teacher(self, server: Server) -> Tensor | None:
        """The parameters [P] of the model that clients distil from; None: no distillation in this round."""
        return server.model

    def correction(self, server: Server, client: Client) -> Correction:
        """What the method adds to the client's local step."""
        return Correction()

    def gradient_factor(self, server: Server, client: Client) -> float:
        """c: what the gradient of the loss is multiplied by, before a w + v is added."""
        return 1.0

    def perturbation(self, server: Server, client: Client) -> Perturbation | None:
        """Where the gradient is taken, if not at w; takes the place of the correction's rho."""
        return None

    def ascent_loss(self, asd: Distillation) -> Distillation | None:
        """The distillation term whose gradient alone is the ascent direction of a correction with rho; None: that of
        the client's loss.  `asd` has the settings of ASD."""
        return None

    def logits(self, server: Server, client: Client) -> LogitChange | None:
        """A change of the logits, class by class, before the cross-entropy."""
        return None

    def frozen_models(self, server: Server, client: Client) -> dict[str, Tensor]:
        """The models whose outputs `local_loss` needs: name -> parameters [P]."""
        return {}

    def local_loss(self, batch: Batch) -> Tensor:
        """A differentiable scalar that is added to the client's loss."""
        raise NotImplementedError

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        """The client's new state, and what it sends, after its `steps` local steps ended at `end` [P]; of K clients
        [K, 1] and [K, P]."""
        return {}

    def contribution(self, server: Server, client: Client, end: Tensor, steps: int) -> Tensor:
        """What the client sends as its model, [P]: `mean` is the weighted mean of it."""
        return end

    def weights(self, cohort: Cohort) -> np.ndarray:
        """[m] the aggregation weight of each participant; need not sum to 1."""
        return cohort.sizes.astype(np.float64) if self.weighted else np.ones(len(cohort.sizes))

    def combine(self, server: Server, mean: Tensor, change: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The next model and server state (float64), from the participants' weighted mean [P], and from `change`: of
        each client state its change averaged over all K clients, of each vector in `sent` its weighted mean.
        server.updates has the number of participants, their steps and the lengths of their changes."""
        return mean, dict(server.state)
