"""Results of `fedasd analyse` (RUN/analysis/NAME.json) and their plots on the report page.

To show an analysis on the page, add an entry here: FIGURES[NAME] plots the results of several runs, each the content of
the file with the run's "label" and "seed" added; CAPTIONS[NAME] tells the reader what to look for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..analysis import registry
from ..common.files import read_bounded
from ..simulation.storage.recorded_run import RecordedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_BYTES = 1 << 26  # of a result
FigureFunction: TypeAlias = Callable[[list[dict[str, Any]]], "Figure | None"]
FIGURES: dict[str, FigureFunction] = {name: partial(registry.result_figure, name) for name in registry.ANALYSES}
SINGLE_RUN_NAMES = {name for name, analysis in registry.ANALYSES.items() if analysis.one_run}
HIDDEN_NAMES = {"drift"}  # the page plots it from the metrics, for all runs
TITLES = {
    "hessian": "Flatness: Hessian of the global model's loss",
    "dissimilarity": "Gradient dissimilarity",
    "forgetting": "Forgetting in one round of local training",
    "weights": "Adaptive weights and teacher entropy",
    "cost": "Accuracy against cost",
}
CAPTIONS = {
    "hessian": "Look at how far the density extends to the right: a smaller top eigenvalue and trace mean a flatter "
    "minimum.",
    "dissimilarity": "Look at how the curve falls with lambda: the closer to 1, the more the clients' gradients agree.",
    "forgetting": "Look at the classes of which a client has few samples: the less their accuracy falls, the less is "
    "forgotten.",
    "weights": "Look at the spread: if all weights were equal, adaptive weighting would be uniform weighting.",
    "cost": "Look at the cost of reaching an accuracy: the curve further to the left is cheaper.",
}


def load_results(runs: Sequence[RecordedRun]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The results of the runs by the name of the analysis; and messages about files that cannot be read."""
    found: dict[str, list[dict[str, Any]]] = {}
    problems = []
    for run in runs:
        files = sorted((run.out / "analysis").glob("*.json")) if run.out else ()
        for file in files:
            if file.stem in HIDDEN_NAMES:
                continue
            try:
                content = _read_object(file)
            except (OSError, ValueError, RecursionError) as error:
                problems.append(f"{file} cannot be read: {error}")
            else:
                found.setdefault(file.stem, []).append({**content, "label": run.label, "seed": run.config.seed})
    return found, problems


def _read_object(file: Path) -> dict[str, Any]:
    content = json.loads(read_bounded(file, MAX_BYTES).decode())
    if not isinstance(content, dict):
        raise ValueError(f"it contains a {type(content).__name__}; expected an object")
    return content
