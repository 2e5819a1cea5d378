"""Buffers that training changes have no place in a federated average of parameters."""

from __future__ import annotations

from torch import nn

from ..common.schema import ConfigError

_RUNNING_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_POWER_ITERATION_BUFFERS = (
    "_u",
    "_v",
    "weight_u",
    "weight_v",
)  # spectral normalisation, as a parametrisation and as a hook


def refuse_running_statistics(model: nn.Module, name: str = "") -> None:
    """An error for BatchNorm and the like; buffers that stay as they are (masks, position indices) are fine.

    Clients exchange parameters.  Running means and variances are not among them, and on skewed clients they differ so
    much that an average of them fits nobody: evaluating with them is a well-known way to lose accuracy unnoticed.
    """
    for path, _ in model.named_buffers():
        owner, _, buffer = path.rpartition(".")
        if buffer not in _RUNNING_BUFFERS + _POWER_ITERATION_BUFFERS:
            continue
        layer = model.get_submodule(owner)
        where = f"model {name or type(model).__name__}: layer {owner or 'itself'} ({type(layer).__name__})"
        if buffer in _RUNNING_BUFFERS:
            raise ConfigError(
                f"{where} keeps running statistics ({buffer}), which clients with different labels cannot share; use "
                "nn.GroupNorm instead (for instance nn.GroupNorm(2, channels)), or track_running_stats=False"
            )
        raise ConfigError(
            f"{where} is changed by every forward pass ({buffer}), so a client's result would depend on who trained "
            "before; remove its spectral normalisation"
        )
