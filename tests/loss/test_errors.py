"""Bad input: an error that names the argument, in the fused op and in the reference alike, never a crash."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedasd_fast as fa
from fedasd_fast.kernels import loader
from tests.conftest import make_batch

BATCH = make_batch((4, 6))
GOOD = dict(student=BATCH.student, teacher=BATCH.teacher, targets=BATCH.targets, prior=BATCH.prior)


def share(value):
    prior = BATCH.prior.clone()
    prior[BATCH.targets[1]] = value
    return prior


def label(value):
    targets = BATCH.targets.clone()
    targets[2] = value
    return targets


CASES = {
    "student 1-D": (dict(student=torch.randn(6)), "student_logits has shape"),
    "student 4-D": (dict(student=torch.randn(1, 1, 4, 6)), "student_logits has shape"),
    "student integer": (dict(student=torch.ones(4, 6, dtype=torch.long)), "student_logits has dtype"),
    "student complex": (dict(student=torch.ones(4, 6, dtype=torch.complex64)), "student_logits has dtype"),
    "no classes": (
        dict(student=torch.randn(4, 0), teacher=torch.randn(4, 0), prior=torch.ones(0)),
        "at least one class",
    ),
    "teacher shape": (dict(teacher=torch.randn(4, 7)), "teacher_logits has shape"),
    "teacher broadcast": (dict(teacher=torch.randn(1, 6)), "teacher_logits has shape"),
    "teacher bool": (dict(teacher=torch.ones(4, 6, dtype=torch.bool)), "teacher_logits has dtype"),
    "teacher requires grad": (dict(teacher=BATCH.teacher.clone().requires_grad_()), "teacher_logits requires grad"),
    "targets shape": (dict(targets=torch.zeros(5, dtype=torch.long)), "targets has shape"),
    "targets [B, 1]": (dict(targets=torch.zeros(4, 1, dtype=torch.long)), "targets has shape"),
    "targets float": (dict(targets=torch.zeros(4)), "targets has dtype"),
    "label too large": (dict(targets=label(6)), "= 6 is neither a class"),
    "label negative": (dict(targets=label(-1)), "= -1 is neither a class"),
    "label huge": (dict(targets=label(2**62)), "is neither a class"),
    "share zero": (dict(prior=share(0.0)), "label_prior.* = 0"),
    "share negative": (dict(prior=share(-0.1)), "label_prior.* = -0.1"),
    "share nan": (dict(prior=share(math.nan)), "label_prior.* = -?nan"),
    "share inf": (dict(prior=share(math.inf)), "label_prior.* = inf"),
    "prior shape": (dict(prior=torch.ones(5)), "label_prior has shape"),
    "prior integer": (dict(prior=torch.ones(6, dtype=torch.long)), "label_prior has dtype"),
    "prior missing": (dict(prior=None), "label_prior = None"),
    "prior requires grad": (dict(prior=BATCH.prior.clone().requires_grad_()), "label_prior requires grad"),
    "client dimension missing": (dict(student=torch.randn(2, 4, 6)), "has shape"),
}
OPTIONS = [
    (dict(temperature=0.0), "temperature = 0"),
    (dict(temperature=-1.0), "temperature = -1"),
    (dict(temperature=math.nan), "temperature = nan"),
    (dict(temperature=math.inf), "temperature = inf"),
    (dict(entropy_temperature=0.0), "entropy_temperature = 0"),
    (dict(entropy_power=math.nan), "entropy_power = nan"),
    (dict(prior_power=math.inf), "prior_power = inf"),
    (dict(weighting="adaptve"), "weighting = 'adaptve'"),
    (dict(divergence="tv"), "divergence = 'tv'"),
]


ARGUMENTS = ("student_logits", "teacher_logits", "targets", "label_prior")
WRONG_TYPES = [
    (dict(temperature="2.0"), "^temperature is a str; expected a number"),
    (dict(entropy_power=torch.ones(2)), "^entropy_power is a Tensor; expected a number"),
    (dict(asd_weight=None), "^asd_weight is a NoneType; expected a number"),
    (dict(weighting=1), "^weighting is a int; expected a str"),
    (dict(divergence=None), "^divergence is a NoneType; expected a str"),
    (dict(not_true=torch.ones(2)), "^not_true is a Tensor; expected True or False"),
    (dict(ignore_index=0.5), "^ignore_index is a float; expected an integer of at most 64 bits"),
    (dict(ignore_index=2**64), "^ignore_index is a int; expected an integer of at most 64 bits"),
]


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize("case", CASES)
def test_bad_tensor(case, implementation):
    change, message = CASES[case]
    arguments = {**GOOD, **change}
    with pytest.raises(ValueError, match=message):
        fa.asd_loss(*arguments.values(), implementation=implementation)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=str)
def test_bad_option(options, message, implementation):
    with pytest.raises(ValueError, match=message):
        fa.asd_loss(*BATCH, implementation=implementation, **options)


@pytest.mark.parametrize(
    "case", ["teacher requires grad", "label too large", "share zero", "targets float", "prior shape"]
)
def test_bad_cache_input(case):
    change, message = CASES[case]
    arguments = {**GOOD, **change}
    del arguments["student"]
    with pytest.raises(ValueError, match=message):
        fa.TeacherCache.from_logits(*arguments.values())


def test_bad_cache_options():
    for options, message in (*OPTIONS[:7], (dict(dtype=torch.int8), "dtype = ")):
        with pytest.raises(ValueError, match=message):
            fa.TeacherCache.from_logits(BATCH.teacher, BATCH.targets, BATCH.prior, **options)


@pytest.mark.parametrize("name", ["asd_weight", "ce_weight"])
def test_bad_weights(name):
    weights = {"asd_weight": 1.0, "ce_weight": 1.0, name: math.nan}
    for implementation in ("fused", "reference"):
        with pytest.raises(ValueError, match=f"{name} = nan"):
            fa.asd_objective(*BATCH, implementation=implementation, **weights)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_wrong_types_are_named(implementation):
    for position, name in enumerate(ARGUMENTS):
        arguments = list(BATCH)
        arguments[position] = [1.0, 2.0]
        with pytest.raises(TypeError, match=f"^{name} is a list; expected a torch.Tensor"):
            fa.asd_loss(*arguments, implementation=implementation)
    for change, message in WRONG_TYPES:
        with pytest.raises(TypeError, match=message):
            fa.asd_objective(*BATCH, **{"asd_weight": 1.0, **change}, implementation=implementation)


def test_wrong_number_of_arguments():
    with pytest.raises(TypeError, match="expected 20 arguments"):
        loader.module.asd_objective(BATCH.student)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_devices_must_agree(implementation):
    for name, message in (("teacher", "teacher_logits is on meta"), ("targets", "targets is on meta")):
        arguments = {**GOOD, name: GOOD[name].to("meta")}
        with pytest.raises(ValueError, match=message):
            fa.asd_loss(*arguments.values(), implementation=implementation)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize(("position", "name"), list(enumerate(ARGUMENTS)))
def test_sparse_tensors(position, name, implementation):
    arguments = list(BATCH)
    arguments[position] = arguments[position].to_sparse()
    with pytest.raises(ValueError, match=f"{name} has layout torch.sparse_coo.*to_dense"):
        fa.asd_loss(*arguments, implementation=implementation)


def test_unknown_implementation_and_option():
    with pytest.raises(ValueError, match="implementation = 'cuda'"):
        fa.asd_loss(*BATCH, implementation="cuda")
    with pytest.raises(ValueError, match="unknown option"):
        fa.ASDLoss(asd_weight=1.0, tau=2.0)


def test_error_in_one_client_names_it():
    batch = make_batch((3, 4, 6))
    batch.targets[1, 2] = 9
    with pytest.raises(ValueError, match=r"targets\[1, 2\] = 9"):
        fa.asd_loss(*batch, implementation="fused", client_dim=0)


dtypes = st.sampled_from(
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool]
)
shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
values = st.sampled_from([0.0, 1.0, -1.0, 3.0, 1e30, -1e30, math.inf, -math.inf, math.nan])


@st.composite
def tensors(draw):
    shape = draw(shapes)
    tensor = torch.full(shape, draw(values), dtype=torch.float64)
    if draw(st.booleans()):
        tensor = tensor + torch.arange(tensor.numel()).view(shape)
    return (
        tensor.nan_to_num(0).clamp(-1e9, 1e9).to(dtype)
        if (dtype := draw(dtypes)).is_floating_point is False
        else tensor.to(dtype)
    )


@settings(max_examples=400, deadline=None)
@given(
    student=tensors(), teacher=tensors(), targets=tensors(), prior=st.none() | tensors(),
    options=st.fixed_dictionaries(
        {},
        optional=dict(
            temperature=values, entropy_temperature=values, entropy_power=values, prior_power=values,
            weighting=st.sampled_from(["adaptive", "uniform", ""]),
            divergence=st.sampled_from(["kl", "js", "reverse_kl", "x"]),
            client_dim=st.sampled_from([None, 0, 0, 1]), alpha_normalizer=values,
            not_true=st.booleans(), ignore_index=st.integers(-(2**63), 2**63 - 1),
        ),
    ),
)  # fmt: skip
def test_fuzz_never_crashes(student, teacher, targets, prior, options):
    """Whatever comes in: a loss of the documented shape, or a ValueError; the reference agrees on which."""
    outcome = []
    for implementation in ("fused", "reference"):
        try:
            loss, gradient = fa.asd_loss_and_grad(
                student, teacher, targets, prior, 2.0, implementation=implementation, **options
            )
            assert loss.shape == student.shape[:-2]
            assert gradient.shape == student.shape
            outcome.append("loss")
        except ValueError:
            outcome.append("error")
    assert outcome[0] == outcome[1], outcome


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_fuzz_of_nearly_right_input(data):
    """A valid batch with one thing broken is refused; with nothing broken it is computed."""
    clients = data.draw(st.sampled_from([(), (2,)]))
    rows, classes = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40))
    batch = make_batch((*clients, rows, classes), seed=data.draw(st.integers(0, 1000)))
    broken = data.draw(st.sampled_from(["nothing", "label", "share", "rows"]))
    where = tuple(data.draw(st.integers(0, n - 1)) for n in (*clients, rows))
    clients_first = dict(client_dim=batch.client_dim)
    cache = fa.TeacherCache.from_logits(batch.teacher, batch.targets, batch.prior, **clients_first)
    numbers = torch.arange(rows).expand(*clients, rows).contiguous()
    if broken == "label":
        batch.targets[where] = data.draw(st.sampled_from([-1, -99, classes, classes + 1, 2**40, -(2**62)]))
    if broken == "share":
        batch.prior[(*where[:-1], batch.targets[where])] = data.draw(st.sampled_from([0.0, -1.0, math.nan, math.inf]))
    if broken == "rows":
        numbers[where] = data.draw(st.sampled_from([-1, rows, 2**40, -(2**62)]))

    def attempt(teacher, prior):
        keywords = dict(implementation="fused", **clients_first)
        return fa.asd_objective(batch.student, teacher, batch.targets, prior, 2.0, **keywords)

    calls = {"raw": (batch.teacher, batch.prior), "cached": (cache[numbers], None)}
    refused = {"nothing": (), "label": ("raw", "cached"), "share": ("raw",), "rows": ("cached",)}[broken]
    for name, arguments in calls.items():
        if name in refused:
            with pytest.raises(ValueError, match=r"label_prior|targets|rows"):
                attempt(*arguments)
        else:
            assert attempt(*arguments).isfinite().all()
