"""Code that a file names: never run unless the user says so, never called before it is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from torch import nn

from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.simulation import replay, resume, simulate

from ..simulation.small_runs import SETTINGS, small_config
from .conftest import Fedasd

NAMES = [{"model": "received_code:Net", "model_args": {}}, {"method": "received_code:Avg"}]
REFUSED = "names code to run: (model|method) = 'received_code:(Net|Avg)'.*--trust-code"


def rewrite(path: Path, changes: dict[str, object]) -> None:
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


@pytest.mark.parametrize("named", NAMES)
class TestReceivedRun:
    def test_python_refuses_it(self, run: Path, trace: Path, named: dict[str, object]) -> None:
        rewrite(run / "config.yaml", named)
        for use in (lambda: resume(run, {"rounds": 5}), lambda: replay(run, 1, 0), lambda: load_run(run)):
            with pytest.raises(ConfigError, match=REFUSED):
                use()
        assert not trace.exists()

    @pytest.mark.parametrize(
        "words",
        [
            ("resume", "DIR"),
            ("resume", "DIR", "rounds=5"),
            ("replay", "DIR", "--round=1", "--client=0"),
            ("analyse", "DIR"),
        ],
    )
    def test_commands_refuse_it_in_one_line(
        self, fedasd: Fedasd, run: Path, trace: Path, named: dict[str, object], words: tuple[str, ...]
    ) -> None:
        rewrite(run / "config.yaml", named)
        code, _, said = fedasd(*(str(run) if word == "DIR" else word for word in words))
        assert code == 2
        assert said.count("\n") == 1
        assert "received_code" in said
        assert "--trust-code" in said
        assert not trace.exists()

    def test_report_shows_it_and_imports_nothing(
        self, fedasd: Fedasd, run: Path, trace: Path, named: dict[str, object]
    ) -> None:
        rewrite(run / "config.yaml", named)
        code, said, _ = fedasd("report", str(run))
        assert code == 0
        assert "1 run" in said
        assert not trace.exists()


@pytest.mark.parametrize("named", NAMES)
def test_with_permission_it_runs_and_is_told(
    fedasd: Fedasd, trace: Path, named: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "own"
    simulate(small_config(out=str(out), rounds=4).replace(**named))  # named in a call: no permission needed
    assert resume(out, {"rounds": 5}, trust_code=True).metrics[-1]["round"] == 5
    assert "running code that" in caplog.text
    assert fedasd("resume", str(out), "rounds=6", "--trust-code", "--quiet")[0] == 0
    assert fedasd("analyse", str(out), "--only=drift", "--trust-code", "--quiet")[0] == 0
    assert trace.exists()


@pytest.mark.parametrize("named", NAMES)
class TestReceivedFile:
    @pytest.mark.parametrize("words", [("run", "--dry-run"), ("run",), ("compare",), ("sweep", "--over", "seed=0,1")])
    def test_refused(
        self, fedasd: Fedasd, trace: Path, named: dict[str, object], words: tuple[str, ...], tmp_path: Path
    ) -> None:
        (tmp_path / "received.yaml").write_text(yaml.safe_dump({**SETTINGS, **named}))
        code, _, said = fedasd(words[0], "received.yaml", *words[1:])
        assert code == 2
        assert said.count("\n") == 1
        assert "received.yaml names code to run" in said
        assert not trace.exists()

    def test_allowed(self, fedasd: Fedasd, trace: Path, named: dict[str, object], tmp_path: Path) -> None:
        (tmp_path / "received.yaml").write_text(yaml.safe_dump({**SETTINGS, **named}))
        assert fedasd("run", "received.yaml", "--dry-run", "--trust-code")[0] == 0
        assert trace.exists()

    def test_named_on_the_command_line_too(
        self, fedasd: Fedasd, trace: Path, named: dict[str, object], tmp_path: Path
    ) -> None:
        (tmp_path / "received.yaml").write_text(yaml.safe_dump({**SETTINGS, **named}))
        setting = next(iter(named))
        assert fedasd("run", "received.yaml", f"{setting}={named[setting]}", "--dry-run")[0] == 0
        assert trace.exists()


def test_a_comparison_continues_the_code_that_its_command_names(fedasd: Fedasd, trace: Path) -> None:
    words = ("compare", "quickstart", "clients=10", "participation=0.5", "--methods", "received_code:Avg", "--quiet")
    assert fedasd(*words, "rounds=1")[0] == 0
    assert fedasd(*words, "rounds=2")[0] == 0
    assert trace.exists()


@pytest.mark.parametrize("trust", [(), ("--trust-code",)])
@pytest.mark.parametrize(
    ("path", "args"),
    [
        ("os:system", {"command": "touch hit"}),
        ("os:mkdir", {"path": "hit"}),
        ("subprocess:check_call", {"args": ["touch", "hit"]}),
        ("subprocess:Popen", {"args": ["touch", "hit"]}),
        ("pathlib:Path.touch", {"self": "hit"}),
    ],
)
def test_a_command_is_no_model(
    fedasd: Fedasd, tmp_path: Path, path: str, args: dict[str, object], trust: tuple[str, ...]
) -> None:
    """Not even if the user trusts the file, and not from the command line."""
    (tmp_path / "received.yaml").write_text(yaml.safe_dump({**SETTINGS, "model": path, "model_args": args}))
    for words in (("received.yaml", *trust), ("quickstart", f"model={path}", f"model_args={args}")):
        code, _, said = fedasd("run", *words, "--dry-run")
        assert code == 2
        assert "names code to run" in said or "expected a subclass of torch.nn.Module" in said
        assert said.strip().splitlines()[-1].startswith("fedasd: ")
        assert not (tmp_path / "hit").exists()


def test_a_method_must_be_one(fedasd: Fedasd) -> None:
    code, _, said = fedasd("run", "quickstart", "method=subprocess:Popen", "--dry-run")
    assert code == 2
    assert "is not a subclass of fedasd_fast.algorithms.Method" in said


def test_a_model_that_is_passed_needs_no_permission(run: Path, trace: Path) -> None:
    rewrite(run / "config.yaml", NAMES[0])
    with pytest.raises(Exception, match="settings changed"):  # past the check: the run began with another model
        resume(run, {"rounds": 5}, model=nn.Linear(12, 5))
    assert not trace.exists()
