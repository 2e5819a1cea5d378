"""The paper's tables and figures, run as whole grids and set beside the paper's numbers."""

from __future__ import annotations

from .comparison import results
from .comparison_report import Gain, Number, Results
from .grid import Cell, Grid, grid
from .time_budget import Plan, choose, seconds
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
