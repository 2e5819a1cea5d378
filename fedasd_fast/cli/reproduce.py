"""fedasd reproduce: runs a table or figure of the paper and compares the numbers."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from ..common.durations import format_duration, parse_duration
from ..common.files import write_atomically
from ..common.formatting import plural
from ..common.schema import ConfigError
from ..data.directory import DatasetNotFound
from ..reproduce.comparison import compare_with_paper
from ..reproduce.grid import DEFAULT_SEEDS, Grid, grid_names, load_grid
from ..reproduce.run_timing import measure_grid
from ..reproduce.time_budget import GridPlan, fit_to_budget
from ..simulation import Interrupted
from ..simulation.distributed.process_group import started_by_torchrun
from .execution import across_ranks, announce, check_same_settings, complete_run
from .options import add_data_dir, add_run_options, parse_seeds
from .presets import print_names
from .reproduce_outputs import print_comparison, show_comparison, write_comparison

_DESCRIPTION = """Runs every method, with and without ASD, in every setting of a table or figure of the paper, and
compares the numbers with the paper's.  Finished runs are not repeated, interrupted ones are resumed: repeat the same
command to continue."""
_EXAMPLES = """examples:
  fedasd reproduce                                        list the tables and figures
  fedasd reproduce table4_500clients --dry-run            the runs, and how long they would take
  fedasd reproduce table4_500clients --only fedavg,fedavg+asd --seeds 2024
  fedasd reproduce table2_cifar100 --only iid --budget 2h
  fedasd reproduce quickstart                             to try it: offline, a minute"""
_ONLY_HELP = (
    "a part of the grid: methods or other values (fedavg,fedavg+asd), or key=values (partition=iid); may be repeated"
)
_BUDGET_HELP = "a time (45m, 2h, 1d) that the grid should fit into; runs fewer seeds and, if necessary, fewer rounds"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", nargs="?", metavar="NAME", help="a table or figure (without a name: lists them)")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings that differ from the paper's")
    parser.add_argument("--rounds", type=int, metavar="N", help="number of rounds (default: the paper's)")
    default = ",".join(map(str, DEFAULT_SEEDS))
    parser.add_argument("--seeds", metavar="0,1", help=f"comma-separated (default: {default})")
    parser.add_argument("--only", action="append", default=[], metavar="A,B", help=_ONLY_HELP)
    parser.add_argument("--budget", metavar="TIME", help=_BUDGET_HELP)
    parser.add_argument("--dry-run", action="store_true", help="list the runs and their estimated time; run nothing")
    parser.add_argument("--report", action="store_true", help="report on the existing runs; run nothing")
    parser.add_argument("--out", metavar="DIR", help="contains a directory per run (default: runs/NAME)")
    add_data_dir(parser)
    add_run_options(parser)
    parser.set_defaults(function=run)


@across_ranks
def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        print(
            "Tables and figures of the paper; `fedasd reproduce NAME` runs one, with --dry-run it only says how long:"
        )
        print_names(grid_names())
        return 0
    budget = None if arguments.budget is None else parse_duration(arguments.budget, "--budget")
    grid = requested_grid(arguments)
    out = Path(arguments.out or Path("runs") / grid.name)
    seeds = parse_seeds(arguments.seeds) if arguments.seeds else DEFAULT_SEEDS
    plan = GridPlan(tuple(seeds), None)
    begun = grid.existing_runs(out, plan.seeds)
    for cell, seed in grid.runs(plan.seeds):  # all of them before the first run, to find errors early
        if (cell.name, seed) in begun:
            check_same_settings(plan.config(cell, seed), begun[cell.name, seed])
    if started_by_torchrun() and (arguments.dry_run or budget is not None):
        raise ConfigError("--dry-run and --budget time rounds in one process: use them without torchrun")
    if arguments.dry_run:
        print_plan(grid, out, plan, budget, arguments)
        return 0
    if budget is not None:
        plan = plan_within_budget(budget, grid, out, plan, arguments)
    command = repeat_command(arguments)
    if arguments.report:
        if not begun:
            raise ConfigError(f"there is no run of this grid in {out} to report on; leave out --report to run it")
        show_comparison(grid, plan, begun, out, command)
        return 0
    run_grid(grid, plan, out, command, arguments)
    show_comparison(grid, plan, grid.existing_runs(out, plan.seeds), out, command)
    return 0


def run_grid(grid: Grid, plan: GridPlan, out: Path, command: str, arguments: argparse.Namespace) -> None:
    """The comparison is written after every run, so that a grid that is killed leaves its results so far."""
    planned = grid.runs(plan.seeds)
    try:
        for number, (cell, seed) in enumerate(planned, 1):
            announce(number, len(planned), cell.label, seed, arguments)
            complete_run(plan.config(cell, seed), grid.run_directory(out, cell, seed), arguments)
            write_comparison(compare_with_paper(grid, plan, grid.existing_runs(out, plan.seeds), command), out)
    except (Interrupted, KeyboardInterrupt) as error:
        if begun := grid.existing_runs(out, plan.seeds):
            print_comparison(compare_with_paper(grid, plan, begun, command), out)
        raise Interrupted(f"stopped; results so far are kept, the same command continues: {command}") from error


def requested_grid(arguments: argparse.Namespace) -> Grid:
    changes: dict[str, Any] = {}
    if arguments.rounds is not None:
        changes["rounds"] = arguments.rounds
    if arguments.data_dir:
        changes["data_dir"] = arguments.data_dir
    for word in arguments.settings:
        if word.partition("=")[0] in ("seed", "out"):
            raise ConfigError(f"{word}: a grid has several runs; use --{'seeds' if word[0] == 's' else 'out'}")
    return load_grid(arguments.name, arguments.settings, arguments.only, **changes)


def plan_within_budget(budget: float, grid: Grid, out: Path, plan: GridPlan, arguments: argparse.Namespace) -> GridPlan:
    """The plan that fits, saved in plan.json: the same request gets the same plan again, whatever is done by then."""
    path = out / "plan.json"
    asked = {
        "budget": budget,
        "seeds": list(plan.seeds),
        "cells": [cell.config.to_dict() | {"name": cell.name} for cell in grid.cells],
    }
    before = json.loads(path.read_text()) if path.is_file() else {}
    if before.get("asked") == asked:
        plan = GridPlan(tuple(before["seeds"]), before["rounds"], before["seconds"], before["choice"])
    else:
        plan = timed_plan(grid, out, plan, budget, arguments)
        out.mkdir(parents=True, exist_ok=True)
        saved = {"rounds": plan.rounds, "seeds": plan.seeds, "seconds": plan.seconds, "choice": plan.choice}
        write_atomically(path, (json.dumps({**saved, "asked": asked}, indent=1) + "\n").encode())
    print(f"--budget {arguments.budget}: {plan.choice}", flush=True)
    return plan


def timed_plan(grid: Grid, out: Path, plan: GridPlan, budget: float | None, arguments: argparse.Namespace) -> GridPlan:
    done = grid.existing_runs(out, plan.seeds)
    any_seed = {name: run for (name, _), run in sorted(done.items(), key=lambda item: item[1].rounds)}
    timings = measure_grid(grid, any_seed, lambda text: None if arguments.quiet else print(text, flush=True))
    return fit_to_budget(grid, plan, timings, done, budget, keep_seeds=arguments.seeds is not None)


def print_plan(grid: Grid, out: Path, plan: GridPlan, budget: float | None, arguments: argparse.Namespace) -> None:
    """Every run with its rounds, then the time; measuring that may take a while, so the list comes first."""
    if budget is None:
        list_runs(grid, out, plan)
    try:
        plan = timed_plan(grid, out, plan, budget, arguments)
        time = f"about {format_duration(plan.seconds or 0)} on this machine"
    except DatasetNotFound as error:
        if budget is not None:
            raise
        time = f"time unknown: {error}"
    if budget is not None:
        list_runs(grid, out, plan)
        print(f"--budget {arguments.budget}: {plan.choice}")
    print(f"{plural(len(grid.runs(plan.seeds)), 'run')}, {time}")


def list_runs(grid: Grid, out: Path, plan: GridPlan) -> None:
    done = grid.existing_runs(out, plan.seeds)
    for cell, seed in grid.runs(plan.seeds):
        begun = done.get((cell.name, seed))
        so_far = f" ({begun.rounds} done)" if begun else ""
        print(f"{grid.run_directory(out, cell, seed)}  {plan.config(cell, seed).rounds} rounds{so_far}", flush=True)


def repeat_command(arguments: argparse.Namespace) -> str:
    """The command that continues this grid, or repeats it elsewhere."""
    words = ["fedasd", "reproduce", arguments.name, *arguments.settings]
    for option in ("rounds", "seeds", "budget", "out", "data_dir"):
        if (value := getattr(arguments, option)) is not None:
            words += [f"--{option.replace('_', '-')}", str(value)]
    for word in arguments.only:
        words += ["--only", word]
    return shlex.join(words)
