"""Bad input on a GPU: shapes and devices are refused as on the CPU; bad values are device-side asserts."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fedasd_fast as fa
from tests.conftest import make_batch
from tests.gpu.inputs import fused

ROOT = Path(fa.__file__).parents[1]

# The assert spoils the CUDA context of its process for good: hence one of its own.
CHILD = """
import torch
import fedasd_fast as fa
from tests.conftest import make_batch
batch = make_batch((4, 6)).on("cuda")
cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)
rows = torch.arange(4, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
{spoil}
torch.cuda.synchronize()
print("not refused", flush=True)
"""
RAW = "fa.asd_loss_and_grad(*batch, 3.0)"
CACHED = "fa.asd_loss_and_grad(batch.student, cache[rows], batch.targets, None, 3.0)"
BUILD = "fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior)"
ASSERTS = {
    "label": (f"batch.targets[2] = 6; {RAW}", "target_is_a_class"),
    "negative label": (f"batch.targets[2] = -1; {CACHED}", "target_is_a_class"),
    "label of the cache": (f"batch.targets[2] = 6; {BUILD}", "target_is_a_class"),
    "share": (f"batch.prior.zero_(); {RAW}", "label_prior of a label that occurs is positive"),
    "row": (f"rows[1] = 4; {CACHED}", "row_is_in_the_cache"),
    "another label": (f"batch.targets = (batch.targets + 1) % 6; {CACHED}", "the label the cache was built with"),
}


@pytest.mark.parametrize("name", ASSERTS)
def test_bad_value_is_a_device_side_assert(name, device):
    spoil, message = ASSERTS[name]
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(spoil=spoil)], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.stdout.split() == ["ready"], done.stderr
    assert done.returncode != 0
    assert message in done.stderr
    assert fused(make_batch((4, 6)).on(device), 3.0)[0].isfinite()  # this process is unharmed


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize("name", ["teacher", "targets", "prior"])
def test_devices_must_agree(implementation, name, device):
    here, there = make_batch((4, 6)).on(device), make_batch((4, 6))
    setattr(here, name, getattr(there, name))
    what = {"teacher": "teacher_logits", "targets": "targets", "prior": "label_prior"}[name]
    with pytest.raises(ValueError, match=f"{what} is on cpu but student_logits is on {device}"):
        fa.asd_loss(*here, implementation=implementation)


def test_student_on_the_cpu_and_teacher_on_the_gpu(device):
    here, there = make_batch((4, 6)), make_batch((4, 6)).on(device)
    with pytest.raises(ValueError, match=f"teacher_logits is on {device} but student_logits is on cpu"):
        fa.asd_loss(here.student, there.teacher, here.targets, here.prior)


def test_cache_and_rows_on_another_device(device):
    here, there = make_batch((4, 6)).on(device), make_batch((4, 6))
    cache = fa.TeacherCache.from_logits(here.teacher, here.targets, here.prior)
    with pytest.raises(ValueError, match=f"is on cpu but student_logits is on {device}"):
        fa.asd_loss(here.student, cache[torch.arange(4)], here.targets, None)
    elsewhere = fa.TeacherCache.from_logits(there.teacher, there.targets, there.prior)
    with pytest.raises(ValueError, match=f"is on cpu but student_logits is on {device}"):
        fa.asd_loss(here.student, elsewhere[torch.arange(4, device=device)], here.targets, None)
    with pytest.raises(ValueError, match=f"targets is on cpu but teacher_logits is on {device}"):
        fa.TeacherCache.from_logits(here.teacher, there.targets, here.prior)


def test_shapes_and_options_are_refused_as_on_the_cpu(device):
    batch = make_batch((4, 6)).on(device)
    with pytest.raises(ValueError, match="teacher_logits has shape"):
        fa.asd_loss(batch.student, batch.teacher[:, :5], batch.targets, batch.prior)
    with pytest.raises(ValueError, match="targets has dtype"):
        fa.asd_loss(batch.student, batch.teacher, batch.targets.float(), batch.prior)
    with pytest.raises(ValueError, match="temperature = 0"):
        fa.asd_loss(*batch, temperature=0.0)
    assert fa.asd_loss(*batch).isfinite()
