"""Details of one run on the report page: how far it got, and the commands that resume or repeat it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import yaml

from .. import presets
from ..common import dotted, html
from ..common.durations import format_duration
from ..common.html import Html, details, element, joined, table
from ..common.schema import ConfigError, plain
from ..config import Config, parse_overrides
from ..simulation.storage.recorded_run import RecordedRun
from .results_tables import rounds_text

_PATH_SETTINGS = {"out", "data_dir"}  # they are of one machine


def run_details(run: RecordedRun) -> Html:
    config = run.config
    badge = Html("") if run.finished else element("span", "unfinished", class_="badge")
    summary = joined([f"{run.label}, seed {config.seed}, {rounds_text([run])} rounds", badge], " ")
    parts = [element("p", f"Run directory: {run.out}. {versions_text(run)}", class_="muted")]
    if not run.finished:
        proportion = f"{run.rounds / config.rounds:.0%}"
        parts.append(element("p", f"Done: {run.rounds} of {config.rounds} rounds ({proportion}). To continue it:"))
        parts.append(html.command(resume_command(run)))
    parts += [element("p", "To repeat it:"), html.command(repeat_command(run))]
    text = yaml.safe_dump(portable_settings(config), sort_keys=False)
    parts.append(details("Configuration", element("pre", element("code", text))))
    return details(summary, *parts)


def runs_table(runs: Sequence[RecordedRun]) -> Html:
    """When, where and how long: dates and processors are recorded in versions.jsonl, not by older versions."""
    rows = [
        [
            run.label,
            run.config.seed,
            rounds_text([run]),
            started_text(run),
            processors_text(run),
            format_duration(run.seconds),
        ]
        for run in runs
    ]
    return table(["", "seed", "rounds", "started", "processor", "duration"], rows, "Duration: training and evaluation")


def started_text(run: RecordedRun) -> str:
    """`2025-03-01 14:05 UTC`."""
    date = run.versions[0].get("date") if run.versions else None
    if not isinstance(date, str) or not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", date):
        return "-"
    return f"{date[:10]} {date[11:16]} UTC"


def processors_text(run: RecordedRun) -> str:
    return ", then ".join(dict.fromkeys(str(row["cpu"]) for row in run.versions if row.get("cpu"))) or "-"


def versions_text(run: RecordedRun) -> str:
    """Run with fedasd_fast 0.1.0, torch 2.13.0, ...; from round 120 on with ..."""
    parts: list[str] = []
    for row in run.versions:
        named = ", ".join(f"{name} {version}" for name, version in row.items() if name not in ("round", "date", "cpu"))
        parts.append(f"from round {row['round'] + 1} on with {named}" if row["round"] else f"with {named}")
    if not run.versions or run.versions[0]["round"]:  # the run began before versions were recorded
        parts.insert(0, "with versions that were not recorded")
    return f"Run {'; '.join(parts)}."


def portable_settings(config: Config) -> dict[str, Any]:
    """Every setting that another machine can use."""
    return {key: value for key, value in config.to_dict().items() if key not in _PATH_SETTINGS}


def repeat_command(run: RecordedRun) -> str:
    """With the preset's name if the run came from one, else with the configuration in its run directory."""
    words = _overrides(run.config)
    if words is not None:
        return shlex.join(["fedasd", "run", run.config.name, *words])
    return shlex.join(["fedasd", "run", f"{run.out}/config.yaml", "--out", f"{run.out}-again"])


def resume_command(run: RecordedRun) -> str:
    return shlex.join(["fedasd", "resume", str(run.out)])


def _overrides(config: Config) -> list[str] | None:
    """The overrides that turn the preset into this configuration; None if no such overrides are found."""
    if config.name not in presets.names():
        return None
    own = portable_settings(config)
    words = [f"method={config.method}", f"seed={config.seed}"]
    try:
        preset = portable_settings(presets.load(config.name, words))
        changed = [key for key in dotted.differences(own, preset) if key not in ("method", "seed")]
        words += [f"{key}={_yaml_text(dotted.lookup(own, key))}" for key in changed]
        repeated = presets.load(config.name, parse_overrides(words))
    except ConfigError:
        return None
    return words if portable_settings(repeated) == own else None


def _yaml_text(value: Any) -> str:
    text = yaml.safe_dump(plain(value), default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...").strip()
