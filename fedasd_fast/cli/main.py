"""Parses the command line, runs a subcommand, and turns expected errors into readable messages.

The module of a subcommand is loaded when it is used, and nothing here needs torch: `fedasd --help`, `presets`,
`settings` and `completion` do not wait for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .._version import __version__
from ..common.errors import ExpectedError
from ..common.schema import nearest
from ..settings import Settings

# The module of the same name in this package has `configure(parser)`, which adds arguments and sets `function`.
SUBCOMMANDS = {
    "run": "run an experiment",
    "compare": "run several methods with the same settings, or compare runs",
    "sweep": "run every combination of some settings",
    "reproduce": "run a table or figure of the paper and compare the numbers",
    "resume": "continue an interrupted run",
    "replay": "train one client of a run again",
    "analyse": "flatness, gradient dissimilarity, ... of a run",
    "list": "list runs: state, round, accuracy, settings that differ",
    "report": "write a report page about runs",
    "export": "write the metrics of a run as CSV",
    "presets": "list the experiments that are ready to run",
    "settings": "list every setting with its default and meaning",
    "data": "datasets: list, get, check, partition",
    "doctor": "check the installation",
    "completion": "print a completion script for bash or zsh",
}
# What numpy and torch say of sizes that no machine has.
_TOO_LARGE = re.compile(
    r"MemoryError|OverflowError|can't allocate memory|out of memory|too big|too large|Maximum allowed|"
    r"Overflow when unpacking|numel: integer multiplication overflow|Storage size calculation overflowed"
)
_INTERRUPTED = 130  # the exit code of a command that SIGINT ended
_TRAINING = ("run", "compare", "sweep", "reproduce", "resume", "replay", "analyse")
_DESCRIPTION = "Federated learning with Adaptive Self-Distillation: run experiments, compare methods, inspect data."
_EXAMPLES = """examples:
  fedasd compare quickstart                    FedAvg with and without ASD, offline, in seconds
  fedasd run table4_500clients rounds=50       the paper's cross-device experiment with 500 clients
  fedasd run table2_cifar100 method=feddyn+asd partition=iid seed=1
  fedasd reproduce table4_500clients --dry-run the runs behind a table of the paper, and how long they take
  fedasd report runs/quickstart-compare        a report page about runs
  fedasd presets table2_cifar100               its settings and the paper's numbers"""


class Parser(argparse.ArgumentParser):
    """argparse, with the nearest valid word in its errors."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{**keywords, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        if choice := re.match(r"argument .*: invalid choice: '(.*?)' \(choose from (.*)\)", message):
            choices = [word.strip(" '") for word in choice[2].split(",")]
            message = f"there is no {choice[1]!r}{nearest(choice[1], choices)}"
        if missing := re.match(r"the following arguments are required: ([A-Z]+)", message):
            meaning = next((action.help for action in self._actions if action.metavar == missing[1]), None)
            message = f"{missing[1]} is missing" + (f": {meaning}" if meaning else "")
            message += "; what stands in [brackets] is optional"
        print(f"fedasd: {message}\n{self.format_usage().strip()}", file=sys.stderr)
        raise SystemExit(2)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """With room for the names of all commands: argparse forgets that they are indented."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 4 + max(map(len, SUBCOMMANDS))


def build_parser(words: Sequence[str]) -> Parser:
    """The parser for this command line: only the subcommand that it names is configured."""
    result = Parser(prog="fedasd", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=_Formatter)
    result.add_argument("--version", action="version", version=f"fedasd_fast {__version__}")
    result.add_argument("--debug", action="store_true", help="show the traceback of errors (also: FEDASD_DEBUG=1)")
    result.add_argument("--verbose", action="store_true", help="also log details, such as what executor=auto measured")
    subparsers = result.add_subparsers(dest="command", metavar="COMMAND", required=True)
    used = next((word for word in words if not word.startswith("-")), None)
    for name, text in SUBCOMMANDS.items():
        sub = subparsers.add_parser(name, help=text)
        if name == used:
            importlib.import_module(f".{name}", __package__).configure(sub)
            options = [option for option in sub._option_string_actions if len(option) > 2]
            sub.set_defaults(command=name, options=options, subcommands=list(SUBCOMMANDS))
    return result


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """key=value words may be anywhere; argparse itself collects only those before an option."""
    words = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser(words)
    arguments, rest = parser.parse_known_args(words)
    for word in rest:
        if "=" in word and not word.startswith("-") and hasattr(arguments, "settings"):
            arguments.settings.append(word)
        elif word in ("--debug", "--verbose"):
            setattr(arguments, word[2:], True)
        else:
            near = nearest(word, arguments.options) if word.startswith("-") else ""
            if hasattr(arguments, "settings") and (setting := _as_setting(word)):
                near = f"; did you mean {setting}? Settings have no dashes"
            parser.error(f"{word!r} is not understood here{near} (see `fedasd {arguments.command} --help`)")
    return arguments


def _as_setting(word: str) -> str | None:
    """`--rounds=5` and `--rounds` as rounds=5 and rounds=VALUE."""
    key, _, value = word.removeprefix("--").replace("-", "_").partition("=")
    known = {field.name for field in dataclasses.fields(Settings)}
    return f"{key}={value or 'VALUE'}" if word.startswith("--") and key.partition(".")[0] in known else None


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return _run(argv)
    except KeyboardInterrupt:  # while modules are loaded, before a run could say how to go on
        print("\nfedasd: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if sys.stderr.isatty() and words[:1] and words[0] in _TRAINING and not {"--quiet", "--help", "-h"} & set(words):
        print("fedasd: loading PyTorch", file=sys.stderr, flush=True)  # seconds on a busy machine
    arguments = parse(words)
    debug = arguments.debug or os.environ.get("FEDASD_DEBUG", "0") not in ("", "0")
    logging.basicConfig(
        format="fedasd: %(message)s", level=logging.INFO if debug or arguments.verbose else logging.WARNING
    )
    try:
        code: int = arguments.function(arguments)
        sys.stdout.flush()  # here, where a closed pipe is caught
        return code
    except BrokenPipeError:  # `fedasd presets | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("\nfedasd: interrupted; `fedasd resume DIR` continues a run", file=sys.stderr)
        return _INTERRUPTED
    except (ExpectedError, ImportError, OSError) as error:
        code = error.exit_code if isinstance(error, ExpectedError) else 2
        interrupted = code == _INTERRUPTED
        if debug and not interrupted:
            raise
        print("\n" * interrupted + f"fedasd: {error}", file=sys.stderr)  # below what the terminal shows of Ctrl-C
        return code
    except (MemoryError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        if debug or not _TOO_LARGE.search(f"{type(error).__name__}: {error}"):
            raise
        reason = str(error).splitlines()[0] if str(error) else "out of memory"
        reason = re.sub(r"^\[enforce fail.*?(you tried to allocate \d+ bytes).*", r"\1", reason)  # torch's own words
        advice = "check clients, batch_size, the sizes of model and data"
        print(f"fedasd: this does not fit into memory ({reason}); {advice}", file=sys.stderr)
        return 2
