"""fedasd reproduce: a table or figure of the paper, run as a whole, with the paper's numbers beside ours."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import presets
from ..common.formatting import pretty
from ..common.schema import ConfigError
from ..report import setting_plot as over
from ..report.accuracy_plot import setting_text
from ..reproduce.comparison import results
from ..reproduce.comparison_report import Results
from ..reproduce.grid import SEEDS, Cell, Grid, grid, names
from ..reproduce.time_budget import Plan, choose, duration, existing, paces, seconds
from ..simulation.storage.recorded_run import Run
from .compare import seeds as parsed_seeds
from .execution import draw, ensure, picture, refuse_other_settings, write_page
from .settings import add_running
from .sweep import MOST_CURVES

_TEXT = """Runs every method, with and without ASD, in every setting of a table or figure of the paper, and sets the
numbers beside the paper's.  Finished runs are not repeated, interrupted ones are resumed: the same command goes on."""
_EXAMPLES = """examples:
  fedasd reproduce                                        what there is
  fedasd reproduce table4_500clients --dry-run            the runs, and how long they would take
  fedasd reproduce table4_500clients --only fedavg,fedavg+asd --seeds 2024
  fedasd reproduce table2_cifar100 --only iid --budget 2h
  fedasd reproduce quickstart                             to try it: offline, a minute"""
_ONLY = (
    "a part of the grid: methods or other values (fedavg,fedavg+asd), or key=values (partition=iid); may be repeated"
)
_BUDGET = "a time (45m, 2h, 1d) into which the grid shall fit; fewer seeds and, if need be, fewer rounds are run"


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "reproduce",
        help="run a table or figure of the paper and compare the numbers",
        description=_TEXT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a table or figure (without a name: lists them)")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings that differ from the paper's")
    parser.add_argument("--rounds", type=int, metavar="N", help="so many rounds (default: the paper's)")
    default = ",".join(map(str, SEEDS))
    parser.add_argument("--seeds", metavar="0,1", help=f"comma-separated (default: {default})")
    parser.add_argument("--only", action="append", default=[], metavar="A,B", help=_ONLY)
    parser.add_argument("--budget", metavar="TIME", help=_BUDGET)
    parser.add_argument("--dry-run", action="store_true", help="list the runs and the time they take; run nothing")
    parser.add_argument("--report", action="store_true", help="report on the runs there are; run nothing")
    parser.add_argument("--out", metavar="DIR", help="holds a folder for each run (default: runs/NAME)")
    parser.add_argument("--data-dir", metavar="DIR", help="where datasets are (default: FEDASD_DATA)")
    add_running(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    from ..simulation.errors import Interrupted

    if arguments.name is None:
        return show_names()
    budget = None if arguments.budget is None else seconds(arguments.budget)
    whole = the_grid(arguments)
    out = Path(arguments.out or Path("runs") / whole.name)
    chosen = parsed_seeds(arguments.seeds, whole.cells[0].config) if arguments.seeds else list(SEEDS)
    plan = Plan(tuple(dict.fromkeys(chosen)), None)
    begun = existing(whole, out, plan.seeds)
    for cell, seed in whole.runs(plan.seeds):  # all of them before the first run: errors come early
        if (cell.name, seed) in begun:
            refuse_other_settings(plan.config(cell, seed), begun[cell.name, seed])
    if arguments.dry_run:
        return show_plan(whole, out, plan, budget, arguments)
    if budget is not None:
        plan = within(budget, whole, out, plan, arguments)
    command = repeated(arguments)
    if arguments.report:
        if not begun:
            raise ConfigError(f"there is no run of this grid in {out} to report on; without --report it is run")
        return show(whole, plan, begun, out, command)
    try:
        for number, (cell, seed) in enumerate(todo := whole.runs(plan.seeds), 1):
            if not arguments.quiet:
                print(f"[{number}/{len(todo)}] {cell.label}, seed {seed}", flush=True)
            ensure(plan.config(cell, seed), whole.folder(out, cell, seed), arguments)
            write(results(whole, plan, existing(whole, out, plan.seeds), command), out)
    except (Interrupted, KeyboardInterrupt) as error:
        if begun := existing(whole, out, plan.seeds):
            tell(results(whole, plan, begun, command), out)
        raise Interrupted(f"stopped; what is done is kept, and the same command goes on: {command}") from error
    return show(whole, plan, existing(whole, out, plan.seeds), out, command)


def show_names() -> int:
    width = max(map(len, names()))
    for name in names():
        print(f"{name:{width}}  {presets.describe(name)['description']}")
    return 0


def the_grid(arguments: argparse.Namespace) -> Grid:
    changes: dict[str, Any] = {}
    if arguments.rounds is not None:
        changes["rounds"] = arguments.rounds
    if arguments.data_dir:
        changes["data_dir"] = arguments.data_dir
    for word in arguments.settings:
        if word.partition("=")[0] in ("seed", "out"):
            raise ConfigError(f"{word}: a grid has several runs; use --{'seeds' if word[0] == 's' else 'out'}")
    return grid(arguments.name, arguments.settings, arguments.only, **changes)


def within(budget: float, whole: Grid, out: Path, plan: Plan, arguments: argparse.Namespace) -> Plan:
    """The plan that fits.  The same request keeps the plan it has led to, however far it has come since."""
    from ..simulation.storage.checkpoint import write_atomically

    path = out / "plan.json"
    asked = {
        "budget": budget,
        "seeds": list(plan.seeds),
        "cells": [cell.config.to_dict() | {"name": cell.name} for cell in whole.cells],
    }
    before = json.loads(path.read_text()) if path.is_file() else {}
    if before.get("asked") == asked:
        plan = Plan(tuple(before["seeds"]), before["rounds"], before["seconds"], before["choice"])
    else:
        plan = timed(whole, out, plan, budget, arguments)
        out.mkdir(parents=True, exist_ok=True)
        kept = {"rounds": plan.rounds, "seeds": plan.seeds, "seconds": plan.seconds, "choice": plan.choice}
        write_atomically(path, (json.dumps({**kept, "asked": asked}, indent=1) + "\n").encode())
    print(f"--budget {arguments.budget}: {plan.choice}", flush=True)
    return plan


def timed(whole: Grid, out: Path, plan: Plan, budget: float | None, arguments: argparse.Namespace) -> Plan:
    done = existing(whole, out, plan.seeds)
    any_seed = {name: run for (name, _), run in sorted(done.items(), key=lambda item: item[1].rounds)}
    known = paces(whole, any_seed, tell=lambda text: None if arguments.quiet else print(text, flush=True))
    return choose(whole, plan, known, done, budget, keep_seeds=arguments.seeds is not None)


def show_plan(whole: Grid, out: Path, plan: Plan, budget: float | None, arguments: argparse.Namespace) -> int:
    """Every run with its rounds, and the time, which is measured; that may take a while, so the list comes first."""
    from ..data.directory import DatasetNotFound

    if budget is None:
        list_runs(whole, out, plan)
    try:
        plan = timed(whole, out, plan, budget, arguments)
        time = f"about {duration(plan.seconds or 0)} on this machine"
    except DatasetNotFound as error:
        if budget is not None:
            raise
        time = f"time unknown: {error}"
    if budget is not None:
        list_runs(whole, out, plan)
        print(f"--budget {arguments.budget}: {plan.choice}")
    number = len(whole.runs(plan.seeds))
    print(f"{number} run{'s' * (number != 1)}, {time}")
    return 0


def list_runs(whole: Grid, out: Path, plan: Plan) -> None:
    done = existing(whole, out, plan.seeds)
    for cell, seed in whole.runs(plan.seeds):
        begun = done.get((cell.name, seed))
        so_far = f" ({begun.rounds} done)" if begun else ""
        print(f"{whole.folder(out, cell, seed)}  {plan.config(cell, seed).rounds} rounds{so_far}", flush=True)


def repeated(arguments: argparse.Namespace) -> str:
    """The command that goes on with this grid, or repeats it elsewhere."""
    words = ["fedasd", "reproduce", arguments.name, *arguments.settings]
    for option in ("rounds", "seeds", "budget", "out", "data_dir"):
        if (value := getattr(arguments, option)) is not None:
            words += [f"--{option.replace('_', '-')}", str(value)]
    for word in arguments.only:
        words += ["--only", word]
    return shlex.join(words)


def write(found: Results, out: Path) -> None:
    """After every run, so that a grid that is killed leaves what it has."""
    from ..simulation.storage.checkpoint import write_atomically

    for ending, text in (("md", found.markdown()), ("txt", found.text() + "\n"), ("json", found.json())):
        write_atomically(out / f"report.{ending}", text.encode())


def tell(found: Results, out: Path) -> None:
    write(found, out)
    print("\n" + found.text())
    print(f"\n  report    {out / 'report.md'} (also .txt, .json)")


def show(whole: Grid, plan: Plan, runs: Mapping[tuple[str, int], Run], out: Path, command: str) -> int:
    """Tables, pictures, and a page of all."""
    found = results(whole, plan, runs, command)
    tell(found, out)
    pictures(whole, runs, out, found)
    data_dir = whole.cells[0].config.data_dir
    write_page(runs.values(), out, title=whole.name, data_dir=data_dir, first=found.section())
    return 0


def pictures(whole: Grid, runs: Mapping[tuple[str, int], Run], out: Path, found: Results) -> None:
    """Accuracy against rounds, a picture for each setting; and against the setting, where that is a number."""
    numbers = {number.label: number for number in found.numbers}
    model = found.numbers[0].model
    for where, curves in panels(whole):
        shown = [
            replace(run, label=label) for label, cell in curves for (name, _), run in runs.items() if name == cell.name
        ]
        paper = {label: number.paper for label, cell in curves if (number := numbers[cell.label]).drawable}
        rounds = max((numbers[cell.label].paper_rounds or 0 for _, cell in curves), default=0) or None
        title = f"{whole.name}{', ' * bool(where)}{where}"
        if shown:
            name = f"accuracy{'-' * bool(where)}{where}.png"
            draw(out / name, shown, model=model, paper=paper, paper_rounds=rounds, title=title)
    if axis := over.numeric_axis(whole.axes):
        points = [over.Point(n.point, n.values, n.paper if n.drawable else None) for n in found.numbers]
        at = sorted({number.round for number in found.numbers if number.round is not None})
        when = f", after round {at[0]}" + (f" to {at[-1]}" if len(at) > 1 else "") if at else ""
        subtitle = setting_text([cell.config for cell in whole.cells]) + when
        picture(
            out / "over.png",
            lambda: over.over_figure(points, axis, model=model, title=whole.name, subtitle=subtitle),
        )


def panels(whole: Grid) -> Iterator[tuple[str, list[tuple[str, Cell]]]]:
    """Which curves go into one picture: the methods in one setting; or all cells, if there is but one method."""
    groups: dict[str, list[Cell]] = {}
    for cell in whole.cells:
        where = ",".join(f"{key}={cell.elsewhere[key]}" for key in cell.shown if key in cell.elsewhere)
        groups.setdefault(where, []).append(cell)
    if len(groups) == len(whole.cells) > 1:
        if len(groups) <= MOST_CURVES:
            yield "", [(cell.label, cell) for cell in whole.cells]
        return
    for where, cells in groups.items():
        weights = "asd.weighting" in cells[0].point
        yield (
            where,
            [
                (pretty(c.config.method) + (f", {c.point['asd.weighting']} weights" if weights else ""), c)
                for c in cells
            ],
        )
