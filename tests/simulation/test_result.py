"""What a result gives of its models: state dictionaries in the layout of the caller's own module."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from fedasd_fast.simulation import simulate
from tests.algorithms.problem import CLASSES, settings, skewed

SHAPE = (2, 6, 6)


def network() -> nn.Module:
    """Kernels of which no two dimensions are alike, and a ReLU that training moves behind the pooling."""
    return nn.Sequential(
        nn.Conv2d(2, 5, (3, 1)), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(30, CLASSES)
    ).double()  # fmt: skip


def test_a_state_dict_loads_into_a_fresh_module() -> None:
    data = skewed(shape=SHAPE)
    result = simulate(settings(participation=0.4, method="feddyn"), data=data, model=network())
    saved = torch.load(io.BytesIO(result.state_dicts()), weights_only=True)
    for name in ("all", "sel", "cloud"):
        state, fresh = result.state_dict(name), network()
        fresh.load_state_dict(state, strict=True)
        outputs, expected = fresh(data.test.inputs), result.module(name)(data.test.inputs)
        torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)  # another memory order, another rounding
        assert all(value.is_contiguous() for value in state.values())
        assert all(torch.equal(value, saved[name][key]) for key, value in state.items())
        flat = torch.cat([value.flatten() for value in state.values()])
        assert not torch.equal(flat, result.models[name])  # which is channels last


def test_a_state_dict_is_a_copy() -> None:
    result = simulate(settings(rounds=1), data=skewed(shape=SHAPE), model=network())
    first = result.state_dict("sel")
    first["0.weight"].zero_()
    assert result.state_dict("sel")["0.weight"].any()


def test_only_models_that_there_are() -> None:
    result = simulate(settings(rounds=1, eval_models=("sel",)), data=skewed(shape=SHAPE), model=network())
    for ask in (result.state_dict, result.module):
        with pytest.raises(ValueError, match=r"no model 'best'; expected one of .*sel"):
            ask("best")
