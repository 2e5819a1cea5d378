"""MOON (Li et al., CVPR 2021, arXiv:2103.16257): features near the global model's, far from the client's last model's.

    loss + mu mean(-log(e^(cos(z, z_global)/tau) / (e^(cos(z, z_global)/tau) + e^(cos(z, z_previous)/tau))))

z are the inputs of the last linear layer; the authors' networks (QinbinLi/MOON) have a projection head before it, which
a model of one's own may have too.  The previous model of a client that never took part is w_0.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..common.schema import ConfigError
from .base import Batch, Client, Method, Server
from .registry import register


@register("moon")
@dataclass(frozen=True)
class MOON(Method):
    mu: float = 1.0
    tau: float = 0.5

    client_state = ("previous",)  # as its distance from w_0: zeros at first

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tau == 0:
            raise ConfigError("method_args.tau = 0; expected a positive number")

    def frozen_models(self, server: Server, client: Client) -> dict[str, Tensor]:
        return {"global": server.model, "previous": server.initial + client.state["previous"]}

    def local_loss(self, batch: Batch) -> Tensor:
        names = ("global", "previous")
        near = [F.cosine_similarity(batch.outputs.features, batch.frozen[name].features) for name in names]
        return self.mu * F.cross_entropy(torch.stack(near, 1) / self.tau, torch.zeros_like(batch.targets))

    def finish(self, server: Server, client: Client, end: Tensor, steps: int | Tensor) -> dict[str, Tensor]:
        return {"previous": end - server.initial}
