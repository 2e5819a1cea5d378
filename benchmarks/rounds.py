"""Where the time of a round goes: python -m benchmarks.rounds cifar100-500clients --rounds 5 method=fedavg+asd

Timers are put around the functions that a round calls, each counting only what no inner one counts.  They are for the
CPU: on a GPU a call returns before its work is done.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

from fedasd_fast import presets
from fedasd_fast.loss.teacher_cache import TeacherCache
from fedasd_fast.simulation import runner, simulate
from fedasd_fast.simulation.aggregation import fixed_point
from fedasd_fast.simulation.client import fused_update, samples, trainer
from fedasd_fast.simulation.client import local_step as steps
from fedasd_fast.simulation.executors import base
from fedasd_fast.simulation.storage.client_store import ClientStore


class Clock:
    """Seconds by label; time inside a nested label belongs to that label alone."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._open: list[str] = []
        self._since = time.perf_counter()

    @contextmanager
    def __call__(self, label: str) -> Iterator[None]:
        self._switch()
        self._open.append(label)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


TIMED_FUNCTIONS: list[tuple[Any, str, str]] = [
    (runner, "run_round", "other (Python, bookkeeping)"),
    (base, "evaluate", "evaluation"),
    (samples, "to_float", "data: normalise"),
    (samples, "augment", "data: augment"),
    (TeacherCache, "build", "teacher pass and cache"),
    (steps, "asd_loss_and_grad", "loss (fused)"),
    (steps.F, "cross_entropy", "loss (cross-entropy)"),
    (torch.Tensor, "backward", "backward"),
    (fused_update, "step", "update"),
    (fused_update, "ascend", "update"),
    (fixed_point, "accumulate", "aggregation"),
    (ClientStore, "write", "client state"),
    (ClientStore, "read", "client state"),
]


def profile(config: Any) -> tuple[Counter[str], list[dict[str, Any]]]:
    clock = Clock()

    def timed(function: Any, label: str) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with clock(label):
                return function(*args, **kwargs)

        return wrapper

    with ExitStack() as stack:
        for owner, name, label in TIMED_FUNCTIONS:
            wrapped = timed(getattr(owner, name), label)
            static = isinstance(vars(owner).get(name), staticmethod)
            stack.enter_context(mock.patch.object(owner, name, staticmethod(wrapped) if static else wrapped))
        original = trainer.FlatModel.__init__

        def with_forward_timer(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            original(self, module, *args, **kwargs)
            forward, timed_forward = module.forward, timed(module.forward, "forward")
            # In eval mode it is a part of the teacher's pass, or of the evaluation.
            module.forward = lambda *inputs: (timed_forward if module.training else forward)(*inputs)

        stack.enter_context(mock.patch.object(trainer.FlatModel, "__init__", with_forward_timer))
        result = simulate(config.replace(executor="serial"))  # others train where no clock of ours runs
    return clock.seconds, result.metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_intermixed_args()
    overrides = [*options.overrides, f"rounds={options.rounds}", f"eval_every={options.rounds}"]
    config = presets.load(options.preset, overrides)
    seconds, rows = profile(config)
    rounds = seconds.total() - seconds["evaluation"]
    done = sum(row["steps"] for row in rows)
    print(f"{options.preset}, {config.method}, {config.rounds} rounds, {done} steps")
    for label, value in seconds.most_common():
        share = f"{100 * value / rounds:5.1f} %" if label != "evaluation" else "       "
        print(f"  {label:28} {value:8.2f} s {share}")
    print(f"  a round {rounds / config.rounds:.2f} s, a step {1000 * rounds / done:.1f} ms; one evaluation of "
          f"{len(set(config.eval_models))} models {seconds['evaluation']:.1f} s")  # fmt: skip


if __name__ == "__main__":
    main()
