"""What a user can get wrong: one readable paragraph, exit code 2, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

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
        ("run", "the following arguments are required: PRESET"),
        ("run table2_cifar100", "fedasd data get cifar100"),
        ("compare quickstart --seeds a,b", "--seeds a,b; expected whole numbers"),
        ("compare quickstart --methods fedavg,fedxyz", "method = 'fedxyz'"),
        ("sweep quickstart --over asd.weight", "--over asd.weight; expected key=v1,v2"),
        ("sweep quickstart --over asd.wait=1,2", "unknown setting asd.wait"),
        ("resume nowhere", "nowhere is not a run directory"),
        ("replay nowhere --round 1 --client 0", "nowhere is not a run directory"),
        ("presets table22", "no preset 'table22'"),
        ("data get cifar1000", "did you mean cifar100"),
        ("data get imagenet100", "cannot be downloaded"),
        ("data check femnist", "femnist was not found"),
    ],
)
def test_a_mistake_is_explained(words: str, message: str, fedasd: Fedasd) -> None:
    code, out, err = fedasd(*words.split())
    assert code == 2
    assert err.startswith("fedasd: ")
    assert message in err
    assert "Traceback" not in err
    assert out == ""


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
