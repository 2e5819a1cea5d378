"""fa.simulate and fa.resume: the simulator, and what the command line leaves in a run directory besides."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from . import simulation
from .callbacks import Callback
from .config import Config
from .data.federated import Dataset, FederatedData
from .report.run_outputs import write_run_outputs
from .simulation.distributed.process_group import is_main_process
from .simulation.result import Result
from .simulation.storage.recorded_run import read_run

_log = logging.getLogger(__name__)


def simulate(
    config: Config | Mapping[str, Any],
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    report: bool = True,
) -> Result:
    """Runs a simulation from its first round; with config.out, into that directory.

    `data` and `model` take the place of what the configuration names: your own clients, your own network.  A Dataset
    is divided among clients as the configuration says; FederatedData have their number of clients, which a mapping may
    leave out.  A run with a directory ends with summary.txt, accuracy.png and report.html in it, which takes a few
    seconds; `report=False` leaves them out.
    """
    return _reported(simulation.simulate(config, data=data, model=model, callbacks=callbacks), report)


def resume(
    out: str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    trust_code: bool = False,
    report: bool = True,
) -> Result:
    """Continues a run from its last checkpoint, bit for bit as if it had never stopped.

    `changes` may alter what the rounds done so far do not depend on, such as the number of rounds or of workers.
    `trust_code` allows a model or method that config.yaml names as package.module:Class; `report` is as in `simulate`.
    """
    result = simulation.resume(out, changes, data=data, model=model, callbacks=callbacks, trust_code=trust_code)
    return _reported(result, report)


def _reported(result: Result, report: bool) -> Result:
    if report and result.out is not None and is_main_process():
        try:
            write_run_outputs(read_run(result.out))
        except Exception as error:  # hours of computing are not lost for a plot
            _log.warning("the run is complete, but its report could not be written: %s", error)
    return result
