"""How far a run got, and how to go on with it or to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from .. import presets
from ..common import html
from ..common.html import Html, details, element, joined
from ..common.schema import ConfigError, plain
from ..config import Config, parse_overrides
from ..simulation.storage.recorded_run import Run
from .results_tables import rounds_text

_PLACES = {"out", "data_dir"}  # of one machine


def details_of(run: Run) -> Html:
    config = run.config
    badge = Html("") if run.finished else element("span", "unfinished", class_="badge")
    summary = joined([f"{run.label}, seed {config.seed}, {rounds_text([run])} rounds", badge], " ")
    parts = [element("p", f"Folder: {run.out}. {made_with(run)}", class_="muted")]
    if not run.finished:
        share = f"{run.rounds / config.rounds:.0%}"
        parts.append(element("p", f"Done: {run.rounds} of {config.rounds} rounds ({share}). To go on:"))
        parts.append(html.command(go_on(run)))
    parts += [element("p", "To repeat it:"), html.command(command(run))]
    text = yaml.safe_dump(settings(config), sort_keys=False)
    parts.append(details("Configuration", element("pre", element("code", text))))
    return details(summary, *parts)


def made_with(run: Run) -> str:
    """Made with fedasd_fast 0.1.0, torch 2.13.0, ...; from round 120 on with ..."""
    parts: list[str] = []
    for row in run.versions:
        named = ", ".join(f"{name} {version}" for name, version in row.items() if name != "round")
        parts.append(f"from round {row['round'] + 1} on with {named}" if row["round"] else f"with {named}")
    if not run.versions or run.versions[0]["round"]:  # it was begun before they were
        parts.insert(0, "with versions that were not recorded")
    return f"Made {'; '.join(parts)}."


def settings(config: Config) -> dict[str, Any]:
    """Every setting that another machine can use."""
    return {key: value for key, value in config.to_dict().items() if key not in _PLACES}


def command(run: Run) -> str:
    """From the preset where it has one, else from the configuration in its folder."""
    words = _overrides(run.config)
    if words is not None:
        return shlex.join(["fedasd", "run", run.config.name, *words])
    return shlex.join(["fedasd", "run", f"{run.out}/config.yaml", "--out", f"{run.out}-again"])


def go_on(run: Run) -> str:
    return shlex.join(["fedasd", "resume", str(run.out)])


def _overrides(config: Config) -> list[str] | None:
    """What to set beside the preset; None if that does not give the same settings."""
    if config.name not in presets.names():
        return None
    own = settings(config)
    words = [f"method={config.method}", f"seed={config.seed}"]
    try:
        preset = settings(presets.load(config.name, words))
        words += [f"{key}={_text(value)}" for key, value in _changed(own, preset) if key not in ("method", "seed")]
        repeated = presets.load(config.name, parse_overrides(words))
    except ConfigError:
        return None
    return words if settings(repeated) == own else None


def _changed(own: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    result: list[tuple[str, Any]] = []
    for key, value in own.items():
        if isinstance(value, Mapping) and isinstance(other.get(key), Mapping):
            result += _changed(value, other[key], f"{prefix}{key}.")
        elif value != other.get(key):
            result.append((prefix + key, value))
    return result


def _text(value: Any) -> str:
    text = yaml.safe_dump(plain(value), default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...").strip()
