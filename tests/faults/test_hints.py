"""Commands in error messages can be copied into a shell, also where a path has spaces."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.callbacks import Callback
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.data import load_dataset
from fedasd_fast.data.availability import status
from fedasd_fast.simulation import Interrupted, SimulationError, resume, simulate
from fedasd_fast.simulation.storage import checkpoint
from fedasd_fast.simulation.storage.run_directory import RunDirectory
from tests.simulation.small_runs import small_config


def commands(message: str) -> list[list[str]]:
    """The words of each command in backquotes, or on a line of its own, as a shell would split them."""
    found = re.findall(r"`((?:fedasd|torchrun) [^`]*)`", message) + re.findall(
        r"^ +(fedasd .*)$", message, re.MULTILINE
    )
    return [shlex.split(command) for command in found]


class Stop(Callback):
    def on_round(self, metrics: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)


def a_second_run(out: Path) -> None:
    simulate(small_config(out=str(out)))
    simulate(small_config(out=str(out)))


def interrupted(out: Path) -> None:
    simulate(small_config(out=str(out)), callbacks=[Stop()])


def failing_client(out: Path) -> None:
    simulate(small_config(out=str(out), optimizer={"lr": 1e30, "clip_norm": None}))


def resumed_without_torchrun(out: Path) -> None:
    simulate(small_config(out=str(out)))
    resume(out, {"executor": "torchrun"})


def full_disk(out: Path) -> None:
    out.write_text("")  # in place of the directory
    checkpoint.save(out / "checkpoint", 1, {})


def unwritable_metrics(out: Path) -> None:
    (out / "metrics.jsonl").mkdir(parents=True)
    RunDirectory(out).append_metrics({"round": 1})


def missing_data(out: Path) -> None:
    load_dataset("cifar10", out)


@pytest.mark.parametrize(
    "fail",
    [
        a_second_run,
        interrupted,
        failing_client,
        resumed_without_torchrun,
        full_disk,
        unwritable_metrics,
        missing_data,
    ],
)
def test_paths_are_one_word(fail: Callable[[Path], None], tmp_path: Path) -> None:
    out = tmp_path / "my runs; it's $HOME"
    with pytest.raises((SimulationError, ConfigError, Interrupted)) as caught:
        fail(out)
    said = commands(str(caught.value))
    assert said, str(caught.value)
    for words in said:
        assert str(out) in words


def test_how_to_get_a_dataset(tmp_path: Path) -> None:
    assert shlex.split(status("cifar10", tmp_path / "my data").how)[-1] == str(tmp_path / "my data")
