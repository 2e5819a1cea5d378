"""How methods, averaged models and numbers are written where people read them."""

from __future__ import annotations

_METHODS = {"fedavg": "FedAvg", "fedprox": "FedProx", "fedntd": "FedNTD", "feddyn": "FedDyn", "fedsam": "FedSAM",
            "feddisco": "FedDisco", "fedspeed": "FedSpeed", "scaffold": "SCAFFOLD"}  # fmt: skip
MODELS = {
    "all": "average over all clients of their last models",
    "sel": "average of the round's participants",
    "cloud": "the model that the server sends",
}


def pretty(method: str) -> str:
    """fedavg+asd as FedAvg+ASD."""
    base, plus, _ = method.partition("+asd")
    return _METHODS.get(base, base) + ("+ASD" if plus else "")


def written(value: float) -> str:
    """Four digits; from a thousand on whole numbers, 12,161 rather than 1.216e+04."""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:.4g}"
