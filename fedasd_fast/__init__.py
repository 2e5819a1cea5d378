"""Adaptive Self-Distillation (ASD) for federated learning, fast."""

from . import reference
from .loss.cache import TeacherCache, label_prior
from .loss.extension import build_info
from .loss.functional import asd_loss, asd_loss_and_grad, asd_objective
from .loss.module import ASDLoss

__version__ = "0.1.0"
__all__ = [
    "ASDLoss",
    "TeacherCache",
    "asd_loss",
    "asd_loss_and_grad",
    "asd_objective",
    "build_info",
    "label_prior",
    "reference",
]
