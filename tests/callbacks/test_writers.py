from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedasd_fast.callbacks import Callback, MLflow, Run, TensorBoard, WandB
from fedasd_fast.callbacks.metrics import numeric_metrics
from fedasd_fast.cli.main import main
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config

METRICS = {"round": 3, "acc_all": 40.5, "loss": 1, "failed": {"7": "NaN"}, "ok": True}


class Writer:
    """Stands for SummaryWriter and for a run of W&B: remembers how it was called."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.made, self.written, self.closed = (arguments, keywords), [], False  # type: ignore[var-annotated]

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.written.append((name, value, step))

    def log(self, values: dict[str, float], step: int) -> None:
        self.written.append((values, step))

    def close(self) -> None:
        self.closed = True

    finish = close


def module(**content: Any) -> Any:
    made = ModuleType("made")
    vars(made).update(content)
    return made


def feed_rounds(callback: Callback, out: Path | None) -> None:
    callback.on_start(Run(Config(name="demo"), out, []))
    callback.on_round(dict(METRICS))
    callback.on_end(None)


def test_only_numbers_are_drawn() -> None:
    assert numeric_metrics(dict(METRICS)) == {"acc_all": 40.5, "loss": 1.0}


def test_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module(SummaryWriter=Writer))
    callback = TensorBoard()
    feed_rounds(callback, tmp_path)
    assert callback.writer.made == ((str(tmp_path / "tensorboard"),), {"purge_step": 3})
    assert callback.writer.written == [("acc_all", 40.5, 3), ("loss", 1.0, 3)]
    assert callback.writer.closed


def test_wandb_continues_the_run_of_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", module(init=Writer, errors=module(Error=RuntimeError)))
    first, second, other = WandB(), WandB(), WandB()
    for callback, folder in ((first, tmp_path / "a"), (second, tmp_path / "a"), (other, tmp_path / "b")):
        feed_rounds(callback, folder)
    keywords = first.run.made[1]
    assert (keywords["project"], keywords["entity"]) == ("fedasd", None)
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    named = WandB(entity="us")
    feed_rounds(named, None)
    assert (named.run.made[1]["project"], named.run.made[1]["entity"]) == ("theirs", "us")
    assert keywords["resume"] == "allow"
    assert keywords["config"]["name"] == "demo"
    assert keywords["id"] == second.run.made[1]["id"] != other.run.made[1]["id"]
    assert first.run.written == [({"acc_all": 40.5, "loss": 1.0}, 3)]
    assert first.run.closed


def test_project_and_entity_are_options_of_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Writer] = []

    def init(**keywords: Any) -> Writer:
        made.append(Writer(**keywords))
        return made[-1]

    monkeypatch.setitem(sys.modules, "wandb", module(init=init, errors=module(Error=RuntimeError)))
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    words = ["run", "quickstart", "rounds=1", "clients=4", "executor=serial", "--quiet", "--out"]
    assert main([*words, str(tmp_path / "a"), "--wandb-project", "asd", "--wandb-entity", "us"]) == 0
    assert main([*words, str(tmp_path / "b"), "--wandb"]) == 0
    assert main([*words, str(tmp_path / "c")]) == 0
    assert [(run.made[1]["project"], run.made[1]["entity"]) for run in made] == [("asd", "us"), ("theirs", None)]
    assert all(run.closed for run in made)


def test_wandb_without_a_key_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class UsageError(Exception): ...

    def init(**keywords: Any) -> None:
        raise UsageError("No API key configured. Use `wandb login` to log in.\nsecond line")

    monkeypatch.setitem(sys.modules, "wandb", module(init=init, errors=module(Error=UsageError)))
    with pytest.raises(ConfigError, match=r"cannot be used: No API key.*WANDB_MODE=offline needs none$") as caught:
        feed_rounds(WandB(), None)
    assert "\n" not in str(caught.value)


def test_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", module(init=Writer, errors=module(Error=RuntimeError)))
    callback = WandB()
    feed_rounds(callback, None)
    assert callback.run.made[1]["name"] == "demo"


@pytest.mark.parametrize(
    ("callback", "package"), [(TensorBoard, "torch.utils.tensorboard"), (WandB, "wandb"), (MLflow, "mlflow")]
)
def test_a_missing_package_is_named_before_the_run(
    callback: type[Callback], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        callback()
