"""Federated learning methods, one short file each; every one can be combined with ASD."""

from . import fedavg, feddisco, feddyn, fedntd, fedprox, fedsam, fedspeed, scaffold
from .base import Client, Cohort, Correction, Distillation, Method, Server
from .registry import create, names, register

__all__ = [
    "Client",
    "Cohort",
    "Correction",
    "Distillation",
    "Method",
    "Server",
    "create",
    "fedavg",
    "feddisco",
    "feddyn",
    "fedntd",
    "fedprox",
    "fedsam",
    "fedspeed",
    "names",
    "register",
    "scaffold",
]
