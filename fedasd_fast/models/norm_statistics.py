"""Running statistics of BatchNorm: which layers have them, and the refusal of buffers that training would change.

Clients exchange parameters.  Running means and variances are not parameters, and differ between clients with different
label distributions: `norm_statistics` says what becomes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from torch import nn

from ..common.schema import ConfigError

BatchNorm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_RUNNING_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_POWER_ITERATION_BUFFERS = (
    "_u",
    "_v",
    "weight_u",
    "weight_v",
)  # spectral normalisation, as a parametrisation and as a hook


def batch_norms(model: nn.Module) -> Iterator[tuple[str, BatchNorm]]:
    """Name and layer of every BatchNorm, with running statistics or without."""
    return ((name, layer) for name, layer in model.named_modules() if isinstance(layer, _BATCH_NORMS))


def check_buffers(model: nn.Module, norm_statistics: str = "refuse", name: str = "") -> None:
    """Raises for buffers that training changes, but for those of BatchNorm if `norm_statistics` says what to do with
    them; constant buffers (masks, position indices) are accepted."""
    for path, _ in model.named_buffers():
        owner, _, buffer = path.rpartition(".")
        if buffer not in _RUNNING_BUFFERS + _POWER_ITERATION_BUFFERS:
            continue
        layer = model.get_submodule(owner)
        where = f"model {name or type(model).__name__}: layer {owner or 'itself'} ({type(layer).__name__})"
        if buffer in _POWER_ITERATION_BUFFERS:
            raise ConfigError(
                f"{where} is changed by every forward pass ({buffer}), so a client's result would depend on which "
                "clients trained before; remove its spectral normalisation"
            )
        if not isinstance(layer, _BATCH_NORMS):
            raise ConfigError(
                f"{where} keeps running statistics ({buffer}), which norm_statistics knows of nn.BatchNorm1d, 2d and "
                "3d only; use one of these, nn.GroupNorm, or track_running_stats=False"
            )
        if norm_statistics == "refuse":
            raise ConfigError(
                f"{where} keeps running statistics ({buffer}), which clients with different labels cannot share "
                "unnoticed; set norm_statistics = average (clients' statistics are averaged) or local (each client "
                "keeps its own: FedBN), or use nn.GroupNorm (for instance nn.GroupNorm(2, channels)) or "
                "track_running_stats=False"
            )
        if layer.momentum is None:
            raise ConfigError(
                f"{where} has momentum=None: its cumulative average needs the number of batches so far, which clients "
                "do not exchange; give it a momentum, such as 0.1"
            )


def reset_batch_counts(model: nn.Module) -> None:
    """num_batches_tracked is 0 in every model that is handed out: which process trained how often says nothing."""
    for _, layer in batch_norms(model):
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.zero_()
