"""Reproduction of the paper's tables and figures: grids of runs, compared with the paper's numbers."""

from __future__ import annotations

from .comparison import compare_with_paper
from .comparison_report import AsdGain, CellResult, PaperComparison
from .grid import Cell, Grid, load_grid
from .time_budget import GridPlan, fit_to_budget
from .verdict import RULE, verdict

__all__ = [
    "RULE",
    "AsdGain",
    "Cell",
    "CellResult",
    "Grid",
    "GridPlan",
    "PaperComparison",
    "compare_with_paper",
    "fit_to_budget",
    "load_grid",
    "verdict",
]
