"""presets, data and doctor: commands that only look."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fedasd_fast import presets
from fedasd_fast.cli import doctor
from fedasd_fast.cli.setting_meanings import MEANINGS
from fedasd_fast.cli.settings import all_settings
from fedasd_fast.simulation.system import half_precision

from .conftest import Fedasd


def test_presets_are_listed_and_described(fedasd: Fedasd) -> None:
    _, out, _ = fedasd("presets")
    assert [line.split()[0] for line in out.splitlines()] == presets.names()
    _, out, _ = fedasd("presets", "table2_tinyimagenet")
    assert "rho: 0.03}   where method: [fedsam, fedsam+asd], partition: iid" in out
    assert "suspect: method: fedspeed+asd, partition: dirichlet_0.6" in out
    assert out.splitlines()[-1].split() == ["fedspeed+asd", "iid", "32.68", "0.53"]
    _, out, _ = fedasd("presets", "table4_500clients")
    assert "not stated in the paper: local_epochs, optimizer.weight_decay, optimizer.clip_norm, augment, " in out
    assert "model sel where no other is named" in out
    assert out.splitlines()[-1].split() == ["fedspeed+asd", "36.59", "all"]


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_can_be_described(name: str, fedasd: Fedasd) -> None:
    code, out, _ = fedasd("presets", name)
    assert code == 0
    assert presets.describe(name)["description"] in out


def test_data_is_listed_and_checked(fedasd: Fedasd, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    images, labels = np.zeros((6, 28, 28), np.uint8), np.arange(6) % 3
    arrays = dict(train_x=images, train_y=labels, test_x=images[:3], test_y=labels[:3], num_classes=3)
    np.savez(tmp_path / "data" / "femnist.npz", train_users=labels, **arrays)
    _, out, _ = fedasd("data", "list")
    lines = {line.split()[0]: line.split()[1] for line in out.splitlines() if line.startswith("  ")}
    assert lines["cifar100"] == "no"
    assert lines["synthetic"] == "yes"
    assert lines["femnist"] not in ("no", "yes")  # its size
    assert f"in {tmp_path / 'data'}:" in out
    code, out, _ = fedasd("data", "get", "femnist")  # nothing is downloaded
    assert (code, out.startswith("femnist is there already: ")) == (0, True)
    code, out, _ = fedasd("data", "check", "femnist")
    assert code == 0
    assert out.splitlines()[-1].split() == ["femnist", "6", "3", "3", "1x28x28", "read"]


def test_incomplete_and_damaged_data_are_told_apart(fedasd: Fedasd, tmp_path: Path) -> None:
    (tmp_path / "data" / "cifar-100-python").mkdir(parents=True)
    (tmp_path / "data" / "cifar-100-python" / "train").write_bytes(b"not a pickle")
    (tmp_path / "data" / "femnist.npz").write_bytes(b"not an archive")
    lacks = f"{tmp_path / 'data' / 'cifar-100-python'} lacks test"
    (line,) = [line for line in fedasd("data", "list")[1].splitlines() if line.startswith("  cifar100 ")]
    assert line.split()[1] == "incomplete"
    assert line.endswith(lacks)
    report = fedasd("doctor")[1]
    assert f"incomplete: {lacks}" in report
    (datasets,) = [line for line in report.splitlines() if " datasets " in line]
    assert "cifar100" not in datasets
    code, out, err = fedasd("data", "check")
    assert code == 2
    assert out.splitlines()[-1].split()[:3] == ["digits", "1,442", "355"]  # the others are checked all the same
    assert f"fedasd: cifar100 is incomplete: {lacks}" in err
    assert "femnist.npz" in err
    code, _, err = fedasd("data", "check", "mnist")
    assert (code, "mnist was not found" in err) == (2, True)


def test_a_partition_is_drawn(fedasd: Fedasd) -> None:
    code, out, _ = fedasd("data", "partition", "quickstart", "clients=12", "--out", "labels.png")
    assert code == 0
    assert "12 clients with 40 samples each" in out
    assert Path("labels.png").stat().st_size > 1000


def test_missing_folders_and_samples_are_told(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "data, which does not exist yet:" in fedasd("data", "list")[1]
    assert "does not exist; `fedasd data get NAME` creates it" in fedasd("doctor")[1]
    monkeypatch.setattr("fedasd_fast.cli.data._MAX_CLIENTS", 5)
    _, out, _ = fedasd("data", "partition", "quickstart", "clients=12", "--out", "labels.png")
    assert out.startswith("a sample: 5 of 12 clients, evenly spaced")
    assert fedasd("reproduce")[1].startswith("Tables and figures of the paper; `fedasd reproduce NAME` runs one")


def test_every_setting_is_explained(fedasd: Fedasd) -> None:
    assert {setting.key for setting in all_settings()} == set(MEANINGS)
    code, out, _ = fedasd("settings")
    assert code == 0
    assert sum(not line.startswith(" ") for line in out.splitlines()) == len(MEANINGS)
    assert fedasd("settings", "asd.weight")[1] == (
        "asd.weight=30.0  (number)\n    Weight of the distillation term (lambda).\n"
    )
    assert fedasd("settings", "lr")[1].startswith("optimizer.lr=0.1  (number)")
    assert "(abort | drop)" in fedasd("settings", "on_client_error")[1]
    assert fedasd("settings", "optimizer")[1].count("optimizer.") == 8


def test_a_file_may_build_on_a_preset(fedasd: Fedasd) -> None:
    Path("mine.yaml").write_text("base: quickstart\nrounds: 7\nasd: {weight: 5}\n")
    code, out, _ = fedasd("run", "mine.yaml", "--dry-run", "clients=30")
    assert code == 0
    assert out.startswith("mine: FedAvg+ASD, synthetic, mlp, dirichlet_0.1, 30 clients, 2 % per round")
    Path("mine.yaml").write_text("base: quikstart\n")
    assert "did you mean quickstart" in fedasd("run", "mine.yaml")[2]
    Path("mine.yaml").write_text("base: [a]\n")
    assert "expected the name of a preset" in fedasd("run", "mine.yaml")[2]


def test_doctor_does_not_compare_the_reference_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {**doctor.build_info(), "extension": False, "reason": "none here"}
    monkeypatch.setattr(doctor, "build_info", lambda: info)
    monkeypatch.setattr(doctor, "small_run", lambda: "left out")
    (found,) = [finding for finding in doctor.examine() if finding.what == "loss, fused against reference"]
    assert found.state == "note"
    assert found.text.startswith("not compared")


def test_doctor_finds_this_installation_healthy(fedasd: Fedasd) -> None:
    code, out, _ = fedasd("doctor")
    assert code == 0
    assert "everything essential works" in out
    assert "they agree to" in out


def test_what_half_precision_gains(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = r"[\d.]+ ms in bfloat16, [\d.]+ ms in float32: [\d.]+ x its speed"
    for known in (True, False):
        monkeypatch.setattr(half_precision, "has_instructions", lambda precision, known=known: known)
        _, told, _ = fedasd("doctor")
        state = r"ok +half precision +this CPU has" if known else r"note +half precision +this CPU has no"
        assert re.search(rf"{state} instructions for bfloat16.*{figure}", told)
        _, told, _ = fedasd("run", "quickstart", "--dry-run")
        assert re.search(rf"a local step +{figure}" + ("$" if known else r" \(warning: .* no bfloat16\)$"), told, re.M)
    code, _, err = fedasd("run", "quickstart", "--dry-run", "precision=float16")
    assert code == 2
    assert "no instructions for it" in err


def test_doctor_finds_what_is_broken(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.asd_loss_and_grad

    def wrong(*arguments: object) -> object:
        loss, gradient = real(*arguments)  # type: ignore[arg-type]
        return loss, gradient * 1.001

    monkeypatch.setattr(doctor, "asd_loss_and_grad", wrong)
    code, out, _ = fedasd("doctor")
    assert code == 1
    assert "broken  loss, fused against reference" in out
    assert "1 essential part is broken" in out
