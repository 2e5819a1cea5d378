"""fedasd replay: trains one client of one round again, to see why it failed."""

from __future__ import annotations

import argparse

from ..simulation.replay import replay
from .options import add_trust_code


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Trains one client of one round again, exactly as it was in the run."
    parser.add_argument("folder", metavar="DIR", help="the run directory")
    parser.add_argument("--round", type=int, required=True, help="as in metrics.jsonl: the first is 1")
    parser.add_argument("--client", type=int, required=True, help="the client's number")
    add_trust_code(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    found = replay(arguments.folder, arguments.round, arguments.client, trust_code=arguments.trust_code)
    print(
        f"client {arguments.client} in round {arguments.round} ({found.rounds_repeated} rounds repeated to get there)"
    )
    for step, loss in enumerate(found.losses, 1):
        print(f"  local step {step:4d}  loss {loss:.6g}")
    print(found.error or "it ended without an error")
    return 0
