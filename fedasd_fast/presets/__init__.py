"""Settings by name: the paper's tables with their numbers, and small experiments that run offline.

A preset is a YAML file of this folder:

    description, source, notes      for people
    base                            another preset that it starts from
    config                          settings, where they are not the defaults
    rules                           [{when: settings, set: settings}]: what depends on the method or the partition
    grid                            what the table spans: {setting: [values]}
    compares                        which averaged model (all, sel, cloud) the paper's accuracies are of
    expected                        the paper's cells: [{settings.., mean, std, top_eigenvalue, trace, note}]
    inferred, suspect               settings that the paper does not state; cells that are not to be trusted

In rules, cells and grids a setting is written with dots (`asd.weighting`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from ..common.schema import ConfigError, merge, nearest
from ..config import Config, from_dict, parse_overrides

Overrides = Sequence[str] | Mapping[str, Any]

_FIRST = ("quickstart", "digits", "cifar100-500clients")
_NUMBERS = ("mean", "std", "top_eigenvalue", "trace", "note")
# Settings that say where, how often or with which luck; the experiment is the same.
_INCIDENTAL = {"name", "seed", "eval_every", "eval_models", "eval_batch_size", "checkpoint_every", "on_client_error",
               "device", "executor", "workers", "clients_at_once", "threads", "data_dir", "out"}  # fmt: skip
_CLOSE = {"rounds", "augment", "teacher", "sampling"}


@dataclass(frozen=True)
class Expected:
    """What the paper reports for a configuration; accuracies in percent."""

    mean: float
    std: float | None
    model: str  # which averaged model: all, sel or cloud
    source: str
    rounds: int
    differs: tuple[str, ...]  # settings in which the configuration is not the paper's
    suspect: str | None  # why the number is not to be trusted
    others: Mapping[str, float]  # top_eigenvalue, trace

    @property
    def comparable(self) -> bool:
        """Whether the number can stand beside a curve of this run: not if it is, say, of another model."""
        return set(self.differs) <= _CLOSE

    def __str__(self) -> str:
        number = f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")
        differs = f"; here other {', '.join(self.differs)}" if self.differs else ""
        suspect = f"; suspect: {self.suspect}" if self.suspect else ""
        return f"{number} % ({self.source.split(' (')[0]}, model {self.model}, {self.rounds} rounds{differs}{suspect})"


def names() -> list[str]:
    files = (file.name for file in resources.files(__package__).iterdir())
    found = [name.removesuffix(".yaml") for name in files if name.endswith(".yaml")]
    return sorted(found, key=_place)


def describe(name: str) -> dict[str, Any]:
    """The preset as it is written, with what it has from its base."""
    return copy.deepcopy(_read(name))


def load(name: str, overrides: Overrides = ()) -> Config:
    """The configuration of a preset; the preset's rules see the overrides, and the overrides win."""
    preset = _read(name)
    changes = dict(overrides) if isinstance(overrides, Mapping) else parse_overrides(overrides)
    own = {"name": name, **preset["config"]}
    for what in ("model", "dataset"):
        if changes.get(what, own[what]) != own[what]:
            own.pop(f"{what}_args", None)  # they are another one's
    values = merge(own, changes)
    for rule in preset.get("rules", ()):
        if all(_value(values, key) in _list(wanted) for key, wanted in rule["when"].items()):
            values = merge(values, rule["set"])
    values = merge(values, changes)
    asd = values.get("asd")
    if "method" not in changes and isinstance(asd, Mapping) and asd.get("enabled") is False:
        values["method"] = str(values["method"]).removesuffix("+asd")  # the preset's name gives way to the user's wish
    return from_dict(values)


def expected(what: str | Config, overrides: Overrides = ()) -> Expected | None:
    """The paper's number for a preset or for a configuration that came from one; None where there is none."""
    config = load(what, overrides) if isinstance(what, str) else what
    if config.name not in names():
        return None
    preset, settings = _read(config.name), config.to_dict()
    for cell in preset.get("expected", ()):
        where = {key: value for key, value in cell.items() if key not in _NUMBERS}
        if all(_value(settings, key) == value for key, value in where.items()):
            paper = load(preset.get("base", config.name), nested(where))
            why = [s["why"] for s in preset.get("suspect", ()) if s["settings"].items() <= where.items()]
            return Expected(
                mean=cell["mean"],
                std=cell.get("std"),
                model=preset["compares"],
                source=preset["source"],
                rounds=paper.rounds,
                differs=tuple(sorted(differences(settings, paper.to_dict()))),
                suspect="; ".join([*why, *([cell["note"]] if "note" in cell else [])]) or None,
                others={key: cell[key] for key in ("top_eigenvalue", "trace") if key in cell},
            )
    return None


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the settings that differ and that matter for the result."""
    result = []
    for key in one.keys() | other.keys():
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            result += differences(a, b, f"{prefix}{key}.")
        elif a != b and (prefix or key not in _INCIDENTAL):
            result.append(prefix + key)
    return result


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"asd.weight": 3} as {"asd": {"weight": 3}}."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        result = merge(result, value)
    return result


@cache
def _read(name: str) -> dict[str, Any]:
    if name not in names():
        begin = [known for known in names() if name and known.startswith(name)]
        meant = f"; did you mean {' or '.join(begin)}?" if begin else nearest(name, names())
        raise ConfigError(f"there is no preset {name!r}{meant}")
    text = (resources.files(__package__) / f"{name}.yaml").read_text(encoding="utf-8")
    preset: dict[str, Any] = yaml.safe_load(text)
    return merge(_read(preset["base"]), preset) if "base" in preset else preset


def _value(settings: Mapping[str, Any], key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [value]


def _place(name: str) -> tuple[int, int, str]:
    """The small ones, the tables by their number, then the figures."""
    if name in _FIRST:
        return _FIRST.index(name), 0, name
    digits = re.search(r"\d+", name)
    return len(_FIRST) + name.startswith("fig"), int(digits[0]) if digits else 0, name
