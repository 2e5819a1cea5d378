"""fedasd presets: lists the presets, or describes one."""

from __future__ import annotations

import argparse
from typing import Any

import yaml

from .. import preset_files
from ..common.table import Table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Lists the presets, or describes one: settings, grid, the paper's numbers."
    parser.add_argument("name", nargs="?", metavar="NAME", help="the preset to describe")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        print_names(preset_files.names())
    else:
        print(description(arguments.name))
    return 0


def print_names(names: list[str]) -> None:
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {preset_files.describe(name)['description']}")


def description(name: str) -> str:
    preset = preset_files.describe(name)
    parts = [f"{name}: {preset['description']}"]
    if "source" in preset:
        parts.append(f"source: {preset['source']} of the paper")
    parts.append("settings:\n" + _indented(preset["config"]))
    if "rules" in preset:
        rules = (f"  {_one_line(rule['set'])}   where {_one_line(rule['when'])}" for rule in preset["rules"])
        parts.append("\n".join(["and:", *rules]))
    if "grid" in preset:
        parts.append("choices:\n" + "\n".join(f"  {key}={'|'.join(map(str, v))}" for key, v in preset["grid"].items()))
    if "inferred" in preset:
        parts.append(f"not stated in the paper: {', '.join(preset['inferred'])}")
    parts += [f"note: {note}" for note in preset.get("notes", ())]
    parts += [f"suspect: {_one_line(cell['settings'])}: {cell['why']}" for cell in preset.get("suspect", ())]
    if "expected" in preset:
        table = _expected_table(preset["expected"])
        unless = " where no other is named" if "compares" in table.columns else ""
        parts.append(f"The paper's accuracies (%, model {preset['compares']}{unless}):\n{table.text()}")
    return "\n".join(parts)


def _expected_table(cells: list[dict[str, Any]]) -> Table:
    columns = list(dict.fromkeys(key for cell in cells for key in cell))
    return Table(columns, [[str(cell.get(column, "")) for column in columns] for cell in cells])


def _one_line(settings: dict[str, Any]) -> str:
    text = yaml.safe_dump(settings, default_flow_style=True, sort_keys=False, width=1000).strip()
    return text.removeprefix("{").removesuffix("}")


def _indented(settings: dict[str, Any]) -> str:
    text = yaml.safe_dump(settings, sort_keys=False, default_flow_style=None)
    return "\n".join(f"  {line}" for line in text.splitlines())
