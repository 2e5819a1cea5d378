"""What a user can get wrong: one readable paragraph, exit code 2, no traceback."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from fedasd_fast.cli.main import SUBCOMMANDS
from fedasd_fast.common.schema import ConfigError

from .conftest import Fedasd


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rnu quickstart", "there is no 'rnu'; did you mean run"),
        ("data lst", "there is no 'lst'; did you mean list"),
        ("run quikstart", "there is no preset 'quikstart'; did you mean quickstart"),
        ("run quickstart roundz=3", "unknown setting roundz; did you mean rounds"),
        ("run quickstart rounds", "'rounds' is not an override; expected key=value"),
        ("run quickstart --out x roundz=3", "unknown setting roundz"),
        ("run quickstart --quite", "'--quite' is not understood here; did you mean --quiet"),
        ("run quickstart method=fedagv+asd", "did you mean fedavg"),
        ("run missing.yaml", "there is no file missing.yaml"),
        (
            "run",
            "PRESET is missing: a name from `fedasd presets`, or a configuration (.yaml); what stands in [brackets]",
        ),
        ("run quickstart lr=0.1", "unknown setting lr; did you mean optimizer.lr?"),
        ("run quickstart temperature=1", "did you mean asd.temperature?"),
        ("run quickstart --rounds=5", "did you mean rounds=5? Settings have no dashes"),
        ("run quickstart --batch-size 5", "did you mean batch_size=VALUE?"),
        ("sweep quickstart --over seed=0,1 --seeds 2", "give the seeds once"),
        ("sweep quickstart --over asd.weight=1 --over asd.weight=2", "asd.weight is given twice"),
        ("run table2_cifar100", "fedasd data get cifar100"),
        ("compare quickstart --seeds a,b", "--seeds a,b; expected whole numbers"),
        ("compare quickstart --methods fedavg,fedxyz", "method = 'fedxyz'"),
        ("sweep quickstart --over asd.weight", "--over asd.weight; expected key=v1,v2"),
        ("sweep quickstart --over asd.wait=1,2", "unknown setting asd.wait"),
        ("resume nowhere", "nowhere is not a run directory"),
        ("replay nowhere --round 1 --client 0", "nowhere is not a run directory"),
        ("run quickstart --dry-run clients=1e12", "this does not fit into memory (Unable to allocate 7.28 TiB"),
        ("run quickstart --dry-run batch_size=1e15", "this does not fit into memory ("),
        ("run quickstart --dry-run model_args.hidden=[1e15]", "this does not fit into memory ("),
        ("analyse nowhere threads=-1", "threads = -1; expected a whole number"),
        ("settings asd.wait", "there is no setting asd.wait; did you mean asd.weight"),
        ("presets table22", "no preset 'table22'"),
        ("data get cifar1000", "did you mean cifar100"),
        ("data get imagenet100", "cannot be downloaded"),
        ("data check femnist", "femnist was not found"),
        ("data check synthetic", "synthetic has no files to check"),
    ],
)
def test_a_mistake_is_explained(words: str, message: str, fedasd: Fedasd) -> None:
    code, out, err = fedasd(*words.split())
    assert code == 2
    assert err.startswith("fedasd: ")
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_an_unknown_format_of_a_plot(fedasd: Fedasd) -> None:
    code, _, err = fedasd("data", "partition", "quickstart", "clients=20", "--out", "plot.xyz")
    assert (code, err) == (2, "fedasd: plot.xyz: plots cannot be saved as .xyz; use .png, .svg or .pdf\n")


def test_an_interruption_while_modules_load_is_one_line(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str, package: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert fedasd("run", "quickstart") == (130, "", "\nfedasd: interrupted\n")


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "fedasd_fast", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout[:11]) == (0, "fedasd_fast")


def test_a_refused_run_leaves_nothing_behind(fedasd: Fedasd, tmp_path: Path) -> None:
    fedasd("run", "table2_cifar100")
    fedasd("run", "quickstart", "roundz=3")
    assert not list(tmp_path.rglob("config.yaml"))


@pytest.mark.parametrize("by", ["option", "option at the end", "environment"])
def test_debug_shows_the_traceback(by: str, fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["run", "quickstart", "roundz=3"]
    if by == "environment":
        monkeypatch.setenv("FEDASD_DEBUG", "1")
    else:
        words.insert(0 if by == "option" else len(words), "--debug")
    with pytest.raises(ConfigError, match="roundz"):
        fedasd(*words)


def test_help_and_version(fedasd: Fedasd) -> None:
    code, out, _ = fedasd("--help")
    assert code == 0
    assert all(word in out for word in ("run", "compare", "sweep", "resume", "data", "doctor", "examples:"))
    assert fedasd("--version")[0] == 0


def test_help_does_not_load_torch() -> None:
    code = (
        "import sys",
        "from fedasd_fast.cli import main",
        "try: main(['--help'])",
        "finally: assert 'torch' not in sys.modules",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "reproduce" in done.stdout


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_help(name: str, fedasd: Fedasd) -> None:
    code, out, _ = fedasd(name, "--help")
    assert code == 0
    assert out.startswith(f"usage: fedasd {name}")
    assert len(out.splitlines()) > 4  # more than the options that all commands have
