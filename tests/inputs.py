"""Inputs and settings that the tests of several backends share."""

import itertools
import math

import torch

import fedasd_fast as fa
from tests.conftest import Batch, make_batch

OPTIONS = [
    dict(divergence=divergence, not_true=not_true, weighting=weighting, temperature=tau, entropy_temperature=tau_h)
    for divergence, not_true, weighting, (tau, tau_h) in itertools.product(
        ("kl", "reverse_kl", "js"), (False, True), ("adaptive", "uniform"), ((2.0, 1.0), (1.0, 1.0), (3.0, 0.7))
    )
]


def distance(actual, truth):
    """Largest absolute error; where the truth is infinite the other must be too."""
    if truth.numel() == 0:
        return 0.0
    same = (actual.double() == truth) | (actual.isnan() & truth.isnan())
    return (actual.double() - truth).abs().masked_fill(same, 0).max().item()


def onehot_teacher(seed):
    batch = make_batch((16, 20), seed=seed)
    batch.teacher = torch.nn.functional.one_hot(batch.targets, 20) * 200.0
    return batch


def tiny_share(seed):
    batch = make_batch((16, 20), seed=seed)
    batch.prior[batch.targets[0]] = 1e-30
    return batch


def masked_classes(seed):
    batch = make_batch((16, 20), seed=seed)
    batch.targets.clamp_(max=9)
    batch.student[:, 10:] = batch.teacher[:, 10:] = -math.inf
    return batch


def equal_student(seed):
    batch = make_batch((16, 20), seed=seed)
    batch.teacher = batch.student.clone()
    return batch


HARD = {
    "normal": lambda seed: make_batch((32, 100), seed=seed),
    "logits of 1e4": lambda seed: make_batch((32, 100), scale=1e4, seed=seed),
    "many classes": lambda seed: make_batch((4, 5000), scale=5.0, seed=seed),
    "few classes": lambda seed: make_batch((64, 10), scale=8.0, seed=seed),
    "one-hot teacher": onehot_teacher,
    "tiny share": tiny_share,
    "masked classes": masked_classes,
    "student == teacher": equal_student,
}


def odd_layouts(tensor):
    """The same values, transposed, sliced out of something larger, misaligned, or expanded."""
    yield tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), math.nan)
    wide[..., 1::2] = tensor
    yield wide[..., 1::2]
    flat = tensor.new_empty(tensor.numel() + 1)
    flat[1:] = tensor.flatten()
    yield flat[1:].view(tensor.shape)


def leaf(batch):
    student = batch.student.detach().clone().requires_grad_()
    return student, Batch(student, batch.teacher, batch.targets, batch.prior)


OP_ARGUMENTS = (None, None, None, None, None, False, 3.0, 1.0, 2.0, 1.0, 1.0, 1.0, "adaptive", "kl", False, -100)


def op_arguments(batch, requires_grad, cached):
    """What asd_objective and asd_loss_and_grad of torch.ops.fedasd take."""
    student = batch.student.requires_grad_(requires_grad)
    if not cached:
        return (student, batch.teacher, batch.targets, batch.prior, *OP_ARGUMENTS)
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, client_dim=batch.client_dim)
    view = cache[:]
    stored = (cache.targets, cache.constant, cache.log_weight)
    return (student, cache.rows, batch.targets, None, view.rows.contiguous(), *stored, *OP_ARGUMENTS[4:])
