"""Results of `fedasd analyse`, RUN/analysis/NAME.json, and who draws them.

An analysis takes part in the page by an entry here: FIGURES[NAME] draws the results of several runs, each the content
of the file with the run's "label" and "seed" added; CAPTIONS[NAME] says what to look for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analysis import registry
from ..simulation.storage.recorded_run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[list[dict[str, Any]]], "Figure | None"]
FIGURES: dict[str, Drawing] = {name: partial(registry.draw, name) for name in registry.ANALYSES}
ONE_BY_ONE = {name for name, analysis in registry.ANALYSES.items() if analysis.one_run}
HIDDEN = {"drift"}  # the page draws it from the metrics, for all runs
TITLES = {
    "hessian": "Flatness: the Hessian of the global model's loss",
    "dissimilarity": "Gradient dissimilarity",
    "forgetting": "Forgetting in one round of local training",
    "weights": "Weights and entropies of the distillation",
    "cost": "Accuracy against cost",
}
CAPTIONS = {
    "hessian": "Look at how far the density reaches to the right: a smaller top eigenvalue and trace are a flatter "
    "minimum.",
    "dissimilarity": "Look at how the curve falls with lambda: closer to 1, the clients' gradients agree more.",
    "forgetting": "Look at the classes that a client has few samples of: the less their accuracy falls, the less is "
    "forgotten.",
    "weights": "Look at the spread: if all weights were alike, adaptive weighting would be uniform weighting.",
    "cost": "Look at what an accuracy costs: the curve further to the left is cheaper.",
}


def results(runs: Sequence[Run]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """By the name of the analysis, the results of the runs that have it; and what could not be read."""
    found: dict[str, list[dict[str, Any]]] = {}
    problems = []
    for run in runs:
        files = sorted((run.out / "analysis").glob("*.json")) if run.out else ()
        for file in files:
            if file.stem in HIDDEN:
                continue
            try:
                content = _content(file)
            except (OSError, ValueError) as error:
                problems.append(f"{file} cannot be read: {error}")
            else:
                found.setdefault(file.stem, []).append({**content, "label": run.label, "seed": run.config.seed})
    return found, problems


def _content(file: Path) -> dict[str, Any]:
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}; expected an object with names")
    return content
