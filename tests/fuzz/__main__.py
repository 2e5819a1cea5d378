"""Seeded calls of the loss, in processes of their own: a crash is counted, and the rest goes on.

python -m tests.fuzz --calls 20000 --seed 0
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch

OUTCOMES = ("right", "refused", "unclear", "wrong", "crash")
ROOT = Path(__file__).parents[2]


def work(seed: int, start: int, stop: int) -> None:
    """One line a call: its number, the outcome, and what there is to say."""
    from .calls import draw
    from .judge import judge

    torch.set_num_threads(1)
    for index in range(start, stop):
        call = draw(seed, index)
        outcome, detail = judge(call)
        note = "" if outcome in ("right", "refused") else f"{call} -> {detail}"
        print(index, outcome, " ".join(note.split())[:1000], sep="\t", flush=True)


def run(calls: int, seed: int, seconds: float = 3600) -> tuple[Counter[str], list[str]]:
    """How often each outcome came, and a line for each that must not come."""
    counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
    bad: list[str] = []
    start = 0
    while start < calls:
        command = [sys.executable, "-m", "tests.fuzz", "--work", "--seed", str(seed), "--start", str(start)]
        done = subprocess.run(
            [*command, "--calls", str(calls)], capture_output=True, text=True, cwd=ROOT, timeout=seconds
        )
        for line in done.stdout.splitlines():
            index, outcome, note = line.split("\t")
            counts[outcome] += 1
            start = int(index) + 1
            if note:
                bad.append(f"call {index}: {outcome}: {note}")
        if start < calls:
            from .calls import draw

            counts["crash"] += 1
            bad.append(f"call {start}: crash (exit {done.returncode}): {draw(seed, start)} {done.stderr[-500:]}")
            start += 1
    return counts, bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.seed, options.start, options.calls)
        return 0
    counts, bad = run(options.calls, options.seed)
    for line in bad:
        print(line)
    print(f"{options.calls} calls, seed {options.seed}:", ", ".join(f"{counts[name]} {name}" for name in OUTCOMES))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
