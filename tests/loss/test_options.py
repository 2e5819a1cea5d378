"""The loss keywords are defined once: signatures, configuration and the term of a method agree with ASDOptions."""

import inspect
from dataclasses import fields

import pytest

import fedasd_fast as fa
from fedasd_fast.algorithms import Distillation
from fedasd_fast.loss.options import ASDOptions
from fedasd_fast.settings import ASD

DEFAULTS = {field.name: field.default for field in fields(ASDOptions)}
CACHE_DEFAULTS = {name: DEFAULTS[name] for name in (*ASDOptions.TEACHER_FIELDS, "ignore_index")}
LOSSES = (
    fa.asd_loss,
    fa.asd_objective,
    fa.asd_loss_and_grad,
    fa.reference.asd_loss,
    fa.reference.asd_objective,
)


def shared_defaults(function):
    parameters = inspect.signature(function).parameters
    return {name: parameters[name].default for name in DEFAULTS if name in parameters}


@pytest.mark.parametrize("function", LOSSES, ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_losses_have_these_keywords_and_defaults(function):
    assert shared_defaults(function) == DEFAULTS


@pytest.mark.parametrize("function", [fa.TeacherCache.build, fa.TeacherCache.from_logits])
def test_caches_have_those_of_the_teacher(function):
    assert shared_defaults(function) == CACHE_DEFAULTS


def test_the_configuration_has_the_same_defaults():
    settings = {field.name: field.default for field in fields(ASD)}
    assert {name: value for name, value in settings.items() if name in DEFAULTS} == {
        name: value for name, value in DEFAULTS.items() if name not in ("not_true", "ignore_index")
    }
    assert set(settings) - set(DEFAULTS) == {"enabled", "weight"}


def test_a_method_passes_on_what_it_was_given():
    term = Distillation(7.0, temperature=3.0, weighting="uniform", not_true=True)
    assert term.options() == DEFAULTS | dict(temperature=3.0, weighting="uniform", not_true=True)
    assert term.teacher_options() == CACHE_DEFAULTS | dict(temperature=3.0, not_true=True)
    assert term.teacher_key == (3.0, 1.0, 1.0, 1.0, True)
    assert term.weight == 7.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (dict(temperature=0.0), "temperature = 0.0; expected a positive finite number"),
        (dict(prior_power=float("nan")), "prior_power = nan; expected a finite number"),
        (dict(weighting="equal"), "weighting = 'equal'; expected 'adaptive' or 'uniform'"),
        (dict(divergence="l2"), "divergence = 'l2'; expected 'kl', 'reverse_kl' or 'js'"),
    ],
    ids=str,
)
def test_bad_values_are_refused_when_the_object_is_made(bad, message):
    for make in (ASDOptions, lambda **options: Distillation(1.0, **options)):
        with pytest.raises(ValueError, match=f"^{message}$"):
            make(**bad)
