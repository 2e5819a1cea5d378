"""Federated learning methods, one short file each; every one can be combined with ASD."""

from . import fedavg, feddisco, feddyn, fedntd, fedprox, fedsam, fedspeed, scaffold
from .base import (
    Batch,
    Client,
    Cohort,
    Correction,
    Distillation,
    LogitChange,
    Method,
    Outputs,
    Perturbation,
    Server,
    Updates,
)
from .hooks import hooks_used
from .registry import create, names, register

__all__ = [
    "Batch",
    "Client",
    "Cohort",
    "Correction",
    "Distillation",
    "LogitChange",
    "Method",
    "Outputs",
    "Perturbation",
    "Server",
    "Updates",
    "create",
    "fedavg",
    "feddisco",
    "feddyn",
    "fedntd",
    "fedprox",
    "fedsam",
    "fedspeed",
    "hooks_used",
    "names",
    "register",
    "scaffold",
]
