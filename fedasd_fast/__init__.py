"""Adaptive Self-Distillation (ASD) for federated learning, fast."""

from . import algorithms, presets, reference
from .config import Config
from .loss.cache import TeacherCache, label_prior
from .loss.extension import build_info
from .loss.functional import asd_loss, asd_loss_and_grad, asd_objective
from .loss.module import ASDLoss
from .simulation import Result, resume, simulate

__version__ = "0.1.0"
__all__ = [
    "ASDLoss",
    "Config",
    "Result",
    "TeacherCache",
    "algorithms",
    "asd_loss",
    "asd_loss_and_grad",
    "asd_objective",
    "build_info",
    "label_prior",
    "presets",
    "reference",
    "resume",
    "simulate",
]
