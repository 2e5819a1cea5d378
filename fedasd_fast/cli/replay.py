"""fedasd replay: one client of one round again, to see why it failed."""

from __future__ import annotations

import argparse
from typing import Any


def add(subparsers: Any) -> None:
    text = "Trains one client of one round again, exactly as it was in the run."
    parser = subparsers.add_parser("replay", help="train one client of a run again", description=text)
    parser.add_argument("folder", metavar="DIR", help="the folder of the run")
    parser.add_argument("--round", type=int, required=True, help="as in metrics.jsonl: the first is 1")
    parser.add_argument("--client", type=int, required=True, help="the client's number")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    from ..simulation.replay import replay

    found = replay(arguments.folder, arguments.round, arguments.client)
    print(
        f"client {arguments.client} in round {arguments.round} ({found.rounds_repeated} rounds repeated to get there)"
    )
    for step, loss in enumerate(found.losses, 1):
        print(f"  local step {step:4d}  loss {loss:.6g}")
    print(found.error or "it ended without an error")
    return 0
