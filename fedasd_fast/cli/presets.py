"""fedasd presets: what there is, and what the paper reports for it."""

from __future__ import annotations

import argparse
from typing import Any

import yaml

from .. import presets
from ..common.table import Table


def add(subparsers: Any) -> None:
    text = "Lists the presets, or describes one: settings, what it spans, the paper's numbers."
    parser = subparsers.add_parser("presets", help="list the experiments that are ready to run", description=text)
    parser.add_argument("name", nargs="?", metavar="NAME", help="describe this one")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        width = max(map(len, presets.names()))
        for name in presets.names():
            print(f"{name:{width}}  {presets.describe(name)['description']}")
    else:
        print(description(arguments.name))
    return 0


def description(name: str) -> str:
    preset = presets.describe(name)
    parts = [f"{name}: {preset['description']}"]
    if "source" in preset:
        parts.append(f"source: {preset['source']} of the paper")
    parts.append("settings:\n" + _indented(preset["config"]))
    if "rules" in preset:
        rules = (f"  {_settings(rule['set'])}   where {_settings(rule['when'])}" for rule in preset["rules"])
        parts.append("\n".join(["and:", *rules]))
    if "grid" in preset:
        parts.append("choices:\n" + "\n".join(f"  {key}={'|'.join(map(str, v))}" for key, v in preset["grid"].items()))
    if "inferred" in preset:
        parts.append(f"not stated in the paper: {', '.join(preset['inferred'])}")
    parts += [f"note: {note}" for note in preset.get("notes", ())]
    parts += [f"suspect: {_settings(cell['settings'])}: {cell['why']}" for cell in preset.get("suspect", ())]
    if "expected" in preset:
        parts.append(f"The paper's accuracies (%, model {preset['compares']}):\n{_cells(preset['expected']).text()}")
    return "\n".join(parts)


def _cells(cells: list[dict[str, Any]]) -> Table:
    columns = list(dict.fromkeys(key for cell in cells for key in cell))
    return Table(columns, [[str(cell.get(column, "")) for column in columns] for cell in cells])


def _settings(settings: dict[str, Any]) -> str:
    text = yaml.safe_dump(settings, default_flow_style=True, sort_keys=False, width=1000).strip()
    return text.removeprefix("{").removesuffix("}")


def _indented(settings: dict[str, Any]) -> str:
    text = yaml.safe_dump(settings, sort_keys=False, default_flow_style=None)
    return "\n".join(f"  {line}" for line in text.splitlines())
