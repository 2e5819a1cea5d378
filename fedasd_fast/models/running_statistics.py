"""Refuses models whose buffers change in training, such as the running statistics of BatchNorm."""

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
    """Raises for BatchNorm and the like; constant buffers (masks, position indices) are accepted.

    Clients exchange parameters only.  Running means and variances are not parameters, and they differ so much between
    clients with different label distributions that their average fits no client: evaluating with it loses accuracy
    unnoticed.
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
            f"{where} is changed by every forward pass ({buffer}), so a client's result would depend on which clients "
            "trained before; remove its spectral normalisation"
        )
