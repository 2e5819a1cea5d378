"""FedLC (Zhang et al., ICML 2022, arXiv:2209.00189): logits are calibrated by the client's label counts n_c.

z_c - tau n_c^(-1/4) in the cross-entropy; a class that the client does not have takes no part (n_c -> 0).  The paper's
denominator leaves out the true class, which lets the loss fall without bound; this is the usual softmax, as in
KarhouTam/FL-bench, whose authors saw training collapse without it (issue 5).
"""

from dataclasses import dataclass

from .base import Client, LogitChange, Method, Server
from .registry import register


@register("fedlc")
@dataclass(frozen=True)
class FedLC(Method):
    tau: float = 1.0

    def logits(self, server: Server, client: Client) -> LogitChange | None:
        assert client.label_counts is not None
        counts = client.label_counts.double()
        shift = -self.tau * counts.clamp(min=1.0).pow(-0.25)
        return LogitChange(shift=shift.masked_fill(counts == 0, -float("inf")))
