"""An opened run under another configuration."""

from __future__ import annotations

from dataclasses import replace

from fedasd_fast.analysis.loaded_run import OpenedRun
from fedasd_fast.config import Config


def with_config(run: OpenedRun, config: Config) -> OpenedRun:
    experiment = replace(run.context.experiment, config=config)
    return replace(run, context=replace(run.context, experiment=experiment))
