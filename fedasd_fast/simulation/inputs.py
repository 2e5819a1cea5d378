"""The caller's own data and model, and their fingerprints.

A configuration cannot name them.  It records their fingerprints instead (`Config.inputs`), so that a run that was
started with them is never continued, replayed or analysed with anything else.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..config import Config
from ..data.federated import Dataset, FederatedData
from ..data.load import as_federated
from .errors import SimulationError

_CLIENTS = 64  # whose labels are looked at: there may be millions, made on demand


@dataclass(frozen=True)
class Inputs:
    """The caller's own data and model; None: what the configuration names."""

    data: FederatedData | None = None
    model: nn.Module | None = None

    @cached_property
    def fingerprints(self) -> dict[str, dict[str, Any]]:
        found = {}
        if self.data is not None:
            found["data"] = _data_fingerprint(self.data)
        if self.model is not None:
            found["model"] = _model_fingerprint(self.model)
        return found


def own_inputs(config: Config, data: FederatedData | Dataset | None, model: nn.Module | None) -> Inputs:
    """What the caller passed, divided among clients as the configuration says unless it already is."""
    return Inputs(None if data is None else as_federated(data, config), model)


def with_fingerprints(config: Config, inputs: Inputs) -> Config:
    """The configuration of a run that is started with these inputs."""
    _require_all(config.inputs, inputs.fingerprints)
    return config.replace(inputs=inputs.fingerprints) if inputs.fingerprints else config


def check_inputs(recorded: Mapping[str, Mapping[str, Any]], inputs: Inputs) -> None:
    """Refuses other inputs than those whose fingerprints the run recorded; older versions recorded none."""
    _require_all(recorded, inputs.fingerprints)
    for name, before in recorded.items():
        now = inputs.fingerprints[name]
        changed = [f"{key} = {now[key]} (was {before[key]})" for key in now if before.get(key, now[key]) != now[key]]
        if changed:
            raise SimulationError(
                f"this is not the {name} that the run was started with: {', '.join(changed)}; pass the same {name}, or "
                "start a new run"
            )


def _require_all(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    missing = [name for name in recorded if name not in found]
    if missing:
        words = " and ".join(missing)
        keywords = ", ".join(f"{name}=..." for name in missing)
        raise SimulationError(
            f"the run was started with the caller's own {words}, which config.yaml cannot name; pass the same again "
            f"from Python ({keywords}), as to `simulate`"
        )


def _data_fingerprint(data: FederatedData) -> dict[str, Any]:
    return {
        "clients": data.num_clients,
        "classes": data.num_classes,
        "input_shape": list(data.input_shape),
        "samples": int(data.sizes.sum()),
        "sizes": _checksum(data.sizes),
        "labels": _label_checksum(data),
        "test_samples": len(data.test),
        "test_labels": _checksum(data.test.targets),
    }


def _label_checksum(data: FederatedData) -> str:
    """Of some clients, evenly spaced, in the order of their samples."""
    checksum = 0
    for k in np.linspace(0, data.num_clients - 1, min(data.num_clients, _CLIENTS)).astype(int):
        try:
            labels = data.client(int(k)).targets
        except Exception:  # fails again when it is trained, where on_client_error decides
            continue
        checksum = zlib.crc32(_bytes(labels), checksum)
    return f"{checksum:08x}"


def _model_fingerprint(model: nn.Module) -> dict[str, Any]:
    shapes = "".join(f"{name} {list(tensor.shape)}\n" for name, tensor in model.named_parameters())
    return {
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
        "shapes": f"{zlib.crc32(shapes.encode()):08x}",
    }


def _checksum(tensor: Tensor) -> str:
    return f"{zlib.crc32(_bytes(tensor)):08x}"


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()
