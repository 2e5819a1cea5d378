"""Groups of runs with one name, dataset and partition, which are shown side by side."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .. import presets
from ..common import dotted
from ..common.formatting import method_label
from ..simulation.storage.recorded_run import RecordedRun
from .seed_curves import run_labels


@dataclass(frozen=True)
class RunGroup:
    """Runs of one name, dataset and partition.  Those with the same label differ in their seed only."""

    title: str
    runs: Sequence[RecordedRun]

    @property
    def labels(self) -> list[str]:
        return run_labels(self.runs)

    def with_label(self, label: str) -> list[RecordedRun]:
        return [run for run in self.runs if run.label == label]

    @property
    def expected(self) -> dict[str, presets.Expected]:
        """The paper's number for each label that has one."""
        found = {label: presets.expected(self.with_label(label)[0].config) for label in self.labels}
        return {label: number for label, number in found.items() if number is not None}

    @property
    def model(self) -> str:
        """The averaged model to show: the paper's, if the runs evaluate it."""
        return presets.headline_model(self.runs[0].config)


def group_runs(runs: Iterable[RecordedRun]) -> list[RunGroup]:
    groups: dict[tuple[str, str, str], list[RecordedRun]] = {}
    for run in runs:
        groups.setdefault((run.config.name, run.config.dataset, run.config.partition), []).append(run)
    names = [name for name, _, _ in groups]
    return [
        RunGroup(key[0] if names.count(key[0]) == 1 else ", ".join(key), _labelled(groups[key]))
        for key in sorted(groups, key=lambda key: [_natural_order(word) for word in key])
    ]


def _labelled(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """A label is the method's name, and the settings that differ between the runs of that method."""
    result = []
    for method in dict.fromkeys(run.config.method for run in runs):
        same = [run for run in runs if run.config.method == method]
        settings = [run.config.to_dict() for run in same]
        keys = sorted({key for other in settings for key in presets.differences(settings[0], other)})
        for run, values in zip(same, settings, strict=True):
            parts = [method_label(method), *(f"{key}={dotted.lookup(values, key)}" for key in keys)]
            result.append(dataclasses.replace(run, label=", ".join(parts)))
    return sorted(result, key=lambda run: (_natural_order(run.label), run.config.seed, str(run.out)))


def _natural_order(label: str) -> list[tuple[float, str]]:
    """A sort key by which 3 comes before 10."""
    words = re.split(r"(\d+(?:\.\d+)?)", label)
    return [(float(word), "") if i % 2 else (math.inf, word) for i, word in enumerate(words)]
