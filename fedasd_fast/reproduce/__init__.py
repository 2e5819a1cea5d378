"""The paper's tables and figures, run as whole grids and set beside the paper's numbers."""

from __future__ import annotations

from .beside import results
from .budget import Plan, choose, seconds
from .grid import Cell, Grid, grid
from .results import Gain, Number, Results
from .verdict import RULE, verdict

__all__ = [
    "RULE",
    "Cell",
    "Gain",
    "Grid",
    "Number",
    "Plan",
    "Results",
    "choose",
    "grid",
    "results",
    "seconds",
    "verdict",
]
