"""FedRS (Li & Zhan, KDD 2021): a restricted softmax, whose logits of classes that the client lacks are scaled by alpha.

`soft: true` scales by alpha + (1 - alpha) n_c / max n, as the authors' code (lxcnju/FedRepo), which is for classifiers
without bias; here the bias is scaled with the rest of the logit.
"""

from dataclasses import dataclass

import torch

from .base import Client, LogitChange, Method, Server
from .registry import register


@register("fedrs")
@dataclass(frozen=True)
class FedRS(Method):
    alpha: float = 0.5
    soft: bool = False

    def logits(self, server: Server, client: Client) -> LogitChange | None:
        assert client.label_counts is not None
        counts = client.label_counts.double()
        known = counts / counts.max() if self.soft else torch.sign(counts)
        return LogitChange(scale=self.alpha + (1 - self.alpha) * known)
