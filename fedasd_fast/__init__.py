"""Adaptive Self-Distillation (ASD) for federated learning, fast.

Names are loaded when they are first used: who imports the loss does not load the simulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import algorithms, callbacks, data, presets
    from .api import resume, simulate
    from .config import Config
    from .kernels.loader import build_info
    from .loss import reference
    from .loss.alpha import alpha_normalizer
    from .loss.functional import asd_loss, asd_loss_and_grad, asd_objective
    from .loss.label_prior import label_prior
    from .loss.module import ASDLoss
    from .loss.row_numbers import with_rows
    from .loss.teacher_cache import TeacherCache
    from .simulation.result import Result

_SUBMODULES = {
    "algorithms": ".algorithms",
    "callbacks": ".callbacks",
    "data": ".data",
    "presets": ".presets",
    "reference": ".loss.reference",
}
_DEFINED_IN = {
    "ASDLoss": ".loss.module",
    "Config": ".config",
    "Result": ".simulation",
    "TeacherCache": ".loss.teacher_cache",
    "alpha_normalizer": ".loss.alpha",
    "asd_loss": ".loss.functional",
    "asd_loss_and_grad": ".loss.functional",
    "asd_objective": ".loss.functional",
    "build_info": ".kernels.loader",
    "label_prior": ".loss.label_prior",
    "resume": ".api",
    "simulate": ".api",
    "with_rows": ".loss.row_numbers",
}

__all__ = [
    "ASDLoss",
    "Config",
    "Result",
    "TeacherCache",
    "__version__",
    "algorithms",
    "alpha_normalizer",
    "asd_loss",
    "asd_loss_and_grad",
    "asd_objective",
    "build_info",
    "callbacks",
    "data",
    "label_prior",
    "presets",
    "reference",
    "resume",
    "simulate",
    "with_rows",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        value: Any = importlib.import_module(_SUBMODULES[name], __name__)
    elif name in _DEFINED_IN:
        value = getattr(importlib.import_module(_DEFINED_IN[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
