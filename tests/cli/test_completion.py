"""Completion scripts, typed at with TAB in a real bash and a real zsh."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedasd_fast as fa
from fedasd_fast import models
from fedasd_fast.cli.completion import script
from fedasd_fast.cli.main import SUBCOMMANDS
from fedasd_fast.cli.setting_meanings import DATASETS, METHODS, MODELS
from fedasd_fast.data import list_datasets

from .conftest import Fedasd

ROOT = Path(__file__).parents[2]
SHELLS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "--no-rcs", "-i"]}
PREPARE = {
    "bash": "bind 'set bell-style none'",
    "zsh": "unsetopt beep prompt_cr prompt_sp; autoload -Uz compinit; compinit -u",
}
# The command prints its words, so that what TAB has typed can be read; its help is the real one.
COMMAND = (
    '#!/bin/sh\nif [ "$2" = --help ]; then exec "{python}" -m fedasd_fast "$@"; fi\nprintf "<%s>" "$@"; echo " typed"\n'
)


def skip_without(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    if name == "bash" and subprocess.run(["bash", "-c", "((BASH_VERSINFO[0] >= 5))"]).returncode:  # macOS has 3.2
        pytest.skip("bash is too old for the script")


class Terminal:
    """A shell that believes that somebody types."""

    def __init__(self, name: str, folder: Path) -> None:
        variables = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "PS1": "ready> "}
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(name, SHELLS[name], variables | {"PYTHONPATH": str(ROOT)})
        self._read("ready> ()")
        self._type(f"{PREPARE[name]}; . ./completion; echo com''plete\n")
        self._read(r"complete\r\n.*ready> ()")

    def words_after(self, keys: str) -> str:
        self._type(f"fedasd {keys}\n")
        return self._read(r"((?:<[^<>]*>)+) typed.*ready> ")

    def _type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def _read(self, wanted: str) -> str:
        seen, deadline = "", time.monotonic() + 300
        while not (found := re.search(wanted, seen, re.DOTALL)):
            ready, _, _ = select.select([self.terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {wanted!r} in {seen!r}"
            seen += os.read(self.terminal, 4096).decode(errors="replace")
        return found[1]

    def close(self) -> None:
        self._type("\x03\nexit\n")
        os.close(self.terminal)
        os.waitpid(self.process, 0)


@pytest.fixture(scope="module", params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    skip_without(request.param)
    folder = tmp_path_factory.mktemp("shell")
    (folder / "fedasd").write_text(COMMAND.format(python=sys.executable))
    (folder / "fedasd").chmod(0o755)
    (folder / "completion").write_text(script(request.param, SUBCOMMANDS))
    terminal = Terminal(request.param, folder)
    yield terminal
    terminal.close()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("repr\t", "<reproduce>"),
        ("run table4_5\trounds=3", "<run><table4_500clients><rounds=3>"),
        ("presets quicks\t", "<presets><quickstart>"),
        ("settings optimizer.cl\t", "<settings><optimizer.clip_norm>"),
        ("run quickstart optimizer.cl\t5", "<run><quickstart><optimizer.clip_norm=5>"),
        ("run quickstart method=scaff\t+\t", "<run><quickstart><method=scaffold+asd>"),
        ("run quickstart method=fedavgm+\trounds=3", "<run><quickstart><method=fedavgm+asd><rounds=3>"),
        ("run quickstart executor=pro\tseed=1", "<run><quickstart><executor=processes><seed=1>"),
        ("run quickstart dataset=tiny\t", "<run><quickstart><dataset=tinyimagenet>"),
        ("run quickstart model=resnet18\t", "<run><quickstart><model=resnet18_gn>"),
        ("run quickstart keep_best=t\t", "<run><quickstart><keep_best=true>"),
        ("compare quickstart --methods fedlc,moon+\t", "<compare><quickstart><--methods><fedlc,moon+asd>"),
        ("resume here roun\t9", "<resume><here><rounds=9>"),
        ("completion z\t", "<completion><zsh>"),
        ("report comple\t", "<report><completion>"),  # a file
    ],
    ids=lambda text: text.split("\t")[0],
)
def test_tab(terminal: Terminal, keys: str, words: str) -> None:
    assert terminal.words_after(keys) == words


def test_options_come_from_the_help_of_the_command(terminal: Terminal) -> None:
    assert terminal.words_after("presets quickstart --he\t") == "<presets><quickstart><--help>"


def test_names_are_those_of_the_registries() -> None:
    ours = [name for name in fa.algorithms.names() if _module(name).startswith("fedasd_fast.")]  # not those of tests
    assert sorted(METHODS) == ours
    assert list(MODELS) == models.names()
    assert list(DATASETS) == [status.name for status in list_datasets()]


def _module(method: str) -> str:
    return type(fa.algorithms.create(method, {})).__module__


def test_the_command_prints_the_script(fedasd: Fedasd) -> None:
    for name in SHELLS:
        assert fedasd("completion", name) == (0, script(name, SUBCOMMANDS), "")
    code, _, err = fedasd("completion", "fish")
    assert (code, "there is no 'fish'" in err) == (2, True)


@pytest.mark.parametrize("name", SHELLS)
def test_the_script_is_understood_by_its_shell(name: str) -> None:
    skip_without(name)
    subprocess.run([name, "-n"], input=script(name, SUBCOMMANDS), text=True, check=True)
