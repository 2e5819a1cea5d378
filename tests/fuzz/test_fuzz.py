"""A short run of the fuzzer, and that it would notice: each outcome is provoked once."""

import subprocess
import sys

import pytest
import torch

import fedasd_fast as fa
from tests.fuzz import __main__ as fuzz
from tests.fuzz.calls import Call, draw
from tests.fuzz.judge import judge

TENSORS = dict(
    student_logits=torch.tensor([[1.0, 2.0]]), teacher_logits=torch.tensor([[0.0, 1.0]]), targets=torch.tensor([1]),
    label_prior=torch.tensor([0.5, 0.5]),
)  # fmt: skip


def test_every_call_is_right_or_refused_clearly():
    counts, bad = fuzz.run(2000, seed=0, seconds=300)
    assert bad == []
    assert counts["right"] + counts["refused"] == 2000
    assert counts["right"] > 800, counts
    assert counts["refused"] > 600, counts


def test_calls_depend_on_seed_and_number_alone():
    assert str(draw(3, 5)) == str(draw(3, 5))
    assert len({str(draw(seed, index)) for seed in range(2) for index in range(20)}) > 35


def test_a_right_and_a_refused_call():
    assert judge(Call("asd_loss", TENSORS))[0] == "right"
    assert judge(Call("asd_loss", {**TENSORS, "targets": None}, ["targets"]))[0] == "refused"


@pytest.mark.parametrize(
    ("replacement", "outcome"),
    [
        (lambda **arguments: torch.tensor(100.0), "wrong"),
        (lambda **arguments: torch.tensor(torch.nan), "wrong"),
        (lambda **arguments: (_ for _ in ()).throw(KeyError("targets")), "unclear"),
        (lambda **arguments: (_ for _ in ()).throw(RuntimeError("shape mismatch")), "unclear"),
        (lambda **arguments: (_ for _ in ()).throw(ValueError("targets has shape")), "wrong"),  # the call is valid
    ],
)
def test_a_bad_loss_is_noticed(replacement, outcome, monkeypatch):
    monkeypatch.setattr(fa, "asd_loss", replacement)
    assert judge(Call("asd_loss", TENSORS))[0] == outcome


def test_accepting_what_the_reference_refuses_is_wrong(monkeypatch):
    monkeypatch.setattr(fa, "asd_loss", lambda **arguments: torch.tensor(1.0))
    outcome, detail = judge(Call("asd_loss", {**TENSORS, "targets": torch.tensor([7])}, ["label 7"]))
    assert outcome == "wrong"
    assert "neither a class" in detail


def test_a_crash_is_counted_and_the_rest_goes_on(monkeypatch):
    real = subprocess.run

    def crashing(command, **options):
        start = int(command[command.index("--start") + 1])
        if start == 0:
            code = "import os; print('0\\tright\\t', flush=True); os.kill(os.getpid(), 11)"
            return real([sys.executable, "-c", code], **options)
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", crashing)
    counts, bad = fuzz.run(6, seed=0, seconds=300)
    assert counts["crash"] == 1
    assert sum(counts.values()) == 6
    assert len(bad) == 1
    assert bad[0].startswith("call 1: crash (exit -11)")
