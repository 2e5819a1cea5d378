"""Configurations, metrics and versions that somebody made up: one line, in bounded time and memory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.common import safe_yaml
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_yaml, parse_overrides
from fedasd_fast.report.page import write_report
from fedasd_fast.simulation import resume
from fedasd_fast.simulation.storage.recorded_run import read_run

from .conftest import Fedasd


def bomb(levels: int = 30) -> str:
    """2 ** levels values in a line for each level."""
    lines = ["a0: &a0 [1, 1]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, levels))]
    return "\n".join(lines)


def merge_bomb(levels: int = 30) -> str:
    lines = ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, levels))]
    return "\n".join(lines)


TEXTS: dict[str, tuple[bytes, str]] = {
    "aliases": (bomb().encode(), "values"),
    "merged aliases": (merge_bomb().encode(), "values"),
    "a chain": (b"a0: &a0 [1]\n" + b"".join(b"a%d: &a%d [*a%d]\n" % (i, i, i - 1) for i in range(1, 60)), "deeper"),
    "itself": (b"model_args: &a {x: *a}", "contains itself"),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "long": (b"x: 1\n" * 100_000, "at most 262,144"),
    "not UTF-8": (b"name: \xff\xfe", "byte 6 is not UTF-8"),
    "UTF-16": ("name: x".encode("utf-16"), "not valid YAML"),
    "no date": (b"name: 2024-13-45", "not valid YAML"),
    "digits": (b"seed: " + b"9" * 5000, "not valid YAML"),
    "python": (b"name: !!python/object/apply:os.system [touch hit]", "not valid YAML"),
    "two documents": (b"rounds: 1\n---\nrounds: 2", "not valid YAML"),
    "a list": (b"[1, 2]", "expected a mapping of settings"),
    "a number": (b"0", "expected a mapping of settings"),
    "a control character": (b"name: \x00", "not valid YAML"),
    "unhashable": (b"{[1]: 2}", "not valid YAML"),
    "a key that is no text": (b"1: 2", "unknown setting 1"),
    "a model that is no text": (b"model: [1]", "model = "),
    "method a mapping": (b"method: {a: 1}", "method = "),
}


@pytest.mark.parametrize("kind", TEXTS)
class TestConfigurations:
    def test_a_file(self, fedasd: Fedasd, tmp_path: Path, kind: str) -> None:
        text, message = TEXTS[kind]
        (tmp_path / "received.yaml").write_bytes(text)
        start = time.monotonic()
        code, _, said = fedasd("run", "received.yaml", "--dry-run")
        assert code == 2
        assert message in said
        assert said.count("\n") == 1
        assert time.monotonic() - start < 5

    def test_a_run_directory(self, fedasd: Fedasd, tmp_path: Path, kind: str) -> None:
        (tmp_path / "received").mkdir()
        (tmp_path / "received" / "config.yaml").write_bytes(TEXTS[kind][0])
        for command in ("resume", "analyse", "report"):
            code, _, said = fedasd(command, "received")
            assert code != 0
            assert "Traceback" not in said
            assert TEXTS[kind][1] in said


@pytest.mark.parametrize("word", ["model_args=&a [*a]", "name=2024-13-45", "seed=" + "9" * 5000])
def test_arguments(fedasd: Fedasd, word: str) -> None:
    code, _, said = fedasd("run", "quickstart", word, "--dry-run")
    assert code == 2
    assert said.count("\n") == 1


def test_aliases_in_an_argument() -> None:
    text = "[1, 1]"
    for i in range(30):
        text = f"[&a{i} {text}, *a{i}]"
    with pytest.raises(ConfigError, match="values"):
        parse_overrides([f"model_args={text}"])


def test_a_few_aliases_are_fine(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("synthetic: {shape: &s [8]}\nmodel_args: {hidden: *s}\n")
    config = from_yaml(tmp_path / "own.yaml")
    assert config.model_args == {"hidden": [8]}
    assert safe_yaml.load("", "nothing") is None


@pytest.mark.parametrize("word", ["model=5", "method=[1]", "dataset=3"])
def test_settings_of_the_wrong_type(fedasd: Fedasd, tmp_path: Path, word: str) -> None:
    (tmp_path / "own.yaml").write_text("rounds: 1\n")
    code, _, said = fedasd("run", "own.yaml", word, "--dry-run")
    assert code == 2
    assert said.count("\n") == 1


def test_a_folder_in_place_of_the_configuration(fedasd: Fedasd, tmp_path: Path) -> None:
    (tmp_path / "received" / "config.yaml").mkdir(parents=True)
    code, _, said = fedasd("resume", "received")
    assert code == 2
    assert "is not a regular file" in said


ROWS: dict[str, Any] = {
    "accuracy a text": {"round": 5, "acc_all": "<b>99</b>"},
    "accuracy a list": {"round": 5, "acc_cloud": [1]},
    "seconds true": {"round": 5, "seconds": True},
    "a huge number": {"round": 5, "loss": 10**4000},
    "updates an object": {"round": 5, "client_updates": {}},
    "failed a list": {"round": 5, "failed": [1]},
    "no round": {"acc_all": 1.0},
    "round below 0": {"round": -1},
    "round true": {"round": True},
    "a huge round": {"round": 10**300},
    "a list": [1],
    "a text": "round",
}


@pytest.mark.parametrize("kind", ROWS)
def test_metrics_of_the_wrong_type(run: Path, kind: str) -> None:
    path = run / "metrics.jsonl"
    good = path.read_bytes()
    path.write_bytes(json.dumps(ROWS[kind]).encode() + b"\n" + good)
    found = read_run(run)
    assert [line.number for line in found.bad_lines] == [1]
    assert found.rounds == 4
    page = write_report([run], run / "report.html")
    assert len(page.runs) == 1
    assert resume(run, {"rounds": 5}).metrics[-1]["round"] == 5


@pytest.mark.parametrize(
    "line",
    [
        b'{"round": 0, "torch": ["2"]}',
        b'{"round": "0"}',
        b"3",
        b"\xff\xfe",
        b'{"round": 0, "torch": "%s"}' % (b"2" * 5000),
    ],
)
def test_versions_of_the_wrong_type(run: Path, line: bytes) -> None:
    path = run / "versions.jsonl"
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert [bad.number for bad in read_run(run).bad_lines] == [1]
    assert len(write_report([run], run / "report.html").runs) == 1
    assert resume(run, {"rounds": 5}).metrics[-1]["round"] == 5


@pytest.mark.parametrize("name", ["metrics.jsonl", "versions.jsonl"])
def test_endless_metrics(run: Path, name: str) -> None:
    (run / name).unlink()
    (run / name).symlink_to("/dev/zero")
    assert read_run(run).config.rounds == 4  # a device is no file: as if it were missing


@pytest.mark.parametrize("text", [b"[1]", b"\xff", b"{", b'{"top": {}}', b"[" * 100_000, b'{"eigenvalues": "x"}'])
@pytest.mark.parametrize("name", ["hessian", "cost", "forgetting", "unknown"])
def test_analyses_of_the_wrong_type(run: Path, text: bytes, name: str) -> None:
    (run / "analysis").mkdir()
    (run / "analysis" / f"{name}.json").write_bytes(text)
    assert len(write_report([run], run / "report.html").runs) == 1
