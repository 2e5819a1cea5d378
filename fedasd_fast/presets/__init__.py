"""Configurations by name: the paper's tables with their numbers, and small experiments that run offline.

A preset is a YAML file in this folder:

    description, source, notes      for the reader
    base                            another preset that this one extends
    config                          settings that differ from the defaults
    rules                           [{when: settings, set: settings}]: settings that depend on the method or partition
    grid                            the rows and columns of the table: {setting: [values]}
    compares                        the averaged model (all, sel, cloud) whose accuracy the paper reports
    expected                        the paper's numbers: [{settings.., mean, std, top_eigenvalue, trace, note}]
    inferred, suspect               settings that the paper does not state; numbers that should not be trusted

A number may have a `compares` of its own, which wins over that of the table.

In rules, grids and expected numbers a setting is written with dots (`asd.weighting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..common import dotted
from ..common.formatting import MODEL_DESCRIPTIONS, format_accuracy
from ..common.schema import merge
from ..config import Config, from_dict, parse_overrides
from ..preset_files import describe, names, read

__all__ = [
    "Expected",
    "Overrides",
    "describe",
    "differences",
    "essential_settings",
    "expected",
    "headline_model",
    "load",
    "names",
]

Overrides = Sequence[str] | Mapping[str, Any]
"""Settings that differ from a preset's: `["asd.weight=10"]` or `{"asd": {"weight": 10}}`."""

_NUMBER_KEYS = ("mean", "std", "top_eigenvalue", "trace", "note", "compares")
# Settings of where and how a run is computed, and of its randomness: the experiment is the same whatever they are.
_INCIDENTAL_SETTINGS = {"name", "seed", "random_streams", "eval_every", "eval_models", "eval_batch_size",
                        "checkpoint_every", "on_client_error", "device", "executor", "workers", "clients_at_once",
                        "client_op", "threads", "data_dir", "out", "class_accuracy", "client_accuracy",
                        "client_test_accuracy", "target_accuracy", "stop_at_target", "keep_best"}  # fmt: skip
# A run that differs from the paper in these only may still be plotted with the paper's number.
_COMPARABLE_SETTINGS = {"rounds", "augment", "teacher", "sampling", "precision"}


@dataclass(frozen=True)
class Expected:
    """What the paper reports for a configuration; accuracies in percent."""

    mean: float
    std: float | None
    model: str  # which averaged model: all, sel or cloud
    source: str
    rounds: int
    differs: tuple[str, ...]  # settings that differ from the paper's
    suspect: str | None  # why the number should not be trusted
    others: Mapping[str, float]  # top_eigenvalue, trace

    @property
    def comparable(self) -> bool:
        """Whether the number may be plotted with a curve of this run: not if that has, say, another model."""
        return set(self.differs) <= _COMPARABLE_SETTINGS

    def __str__(self) -> str:
        number = format_accuracy(self.mean, self.std)
        differs = f"; different here: {', '.join(self.differs)}" if self.differs else ""
        suspect = f"; suspect: {self.suspect}" if self.suspect else ""
        return f"{number} % ({self.source.split(' (')[0]}, model {self.model}, {self.rounds} rounds{differs}{suspect})"


def load(name: str, overrides: Overrides = ()) -> Config:
    """The configuration of a preset.  Its rules apply to the overridden settings; overrides win over rules."""
    preset = read(name)
    changes = dict(overrides) if isinstance(overrides, Mapping) else parse_overrides(overrides)
    own = {"name": name, **preset["config"]}
    for what in ("model", "dataset"):
        if changes.get(what, own[what]) != own[what]:
            own.pop(f"{what}_args", None)  # they belong to the preset's own
    values = merge(own, changes)
    for rule in preset.get("rules", ()):
        if all(dotted.lookup(values, key) in _as_list(wanted) for key, wanted in rule["when"].items()):
            values = merge(values, rule["set"])
    values = merge(values, changes)
    asd = values.get("asd")
    if "method" not in changes and isinstance(asd, Mapping) and asd.get("enabled") is False:
        values["method"] = str(values["method"]).removesuffix("+asd")  # else the method's name would enable it again
    return from_dict(values)


def expected(what: str | Config, overrides: Overrides = ()) -> Expected | None:
    """The paper's number for a preset, or for a configuration that came from one; None if there is none."""
    config = load(what, overrides) if isinstance(what, str) else what
    if config.name not in names():
        return None
    preset, settings = read(config.name), config.to_dict()
    for cell in preset.get("expected", ()):
        where = {key: value for key, value in cell.items() if key not in _NUMBER_KEYS}
        if all(dotted.lookup(settings, key) == value for key, value in where.items()):
            paper = load(preset.get("base", config.name), dotted.nest(where))
            why = [s["why"] for s in preset.get("suspect", ()) if s["settings"].items() <= where.items()]
            return Expected(
                mean=cell["mean"],
                std=cell.get("std"),
                model=cell.get("compares", preset["compares"]),
                source=preset["source"],
                rounds=paper.rounds,
                differs=tuple(sorted(differences(settings, paper.to_dict()))),
                suspect="; ".join([*why, *([cell["note"]] if "note" in cell else [])]) or None,
                others={key: cell[key] for key in ("top_eigenvalue", "trace") if key in cell},
            )
    return None


def headline_model(config: Config) -> str:
    """The averaged model whose accuracy stands for a run: the one that the preset's table reports, else `cloud`, which
    is what one would deploy.  If the run does not evaluate it, the first that it does."""
    compared: str | None = read(config.name).get("compares") if config.name in names() else None
    order = dict.fromkeys((*([compared] if compared else []), *MODEL_DESCRIPTIONS))
    return str(next(model for model in order if model in config.eval_models))


def essential_settings(config: Config) -> dict[str, Any]:
    """What the result depends on, and what is random in it: two runs that agree in it are the same run."""
    needed = {"name", "seed", "random_streams"}
    return {key: value for key, value in config.to_dict().items() if key in needed or key not in _INCIDENTAL_SETTINGS}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Dotted names of the settings that differ and that matter for the result."""
    return [key for key in dotted.differences(one, other) if key not in _INCIDENTAL_SETTINGS]


def _as_list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [value]
