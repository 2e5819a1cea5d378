"""A loaded run under another configuration."""

from __future__ import annotations

from dataclasses import replace

from fedasd_fast.analysis.loaded_run import LoadedRun
from fedasd_fast.config import Config


def with_config(run: LoadedRun, config: Config) -> LoadedRun:
    experiment = replace(run.context.experiment, config=config)
    return replace(run, context=replace(run.context, experiment=experiment))
