"""Models of the user's own; the classes below are imported by their path, as a user's would be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedasd_fast import models
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.models.norm_statistics import check_buffers


class Sized(nn.Linear):
    def __init__(self, num_classes, input_shape, *, scale=1.0):
        super().__init__(input_shape[0], num_classes)
        self.scale = scale


class Fixed(nn.Linear):
    def __init__(self, width=3, **_):
        super().__init__(width, 2)
        self.register_buffer("position", torch.arange(3))


class Normed(nn.Sequential):
    def __init__(self, norm="batch"):
        norms = {
            "batch": lambda: nn.BatchNorm2d(4),
            "cumulative": lambda: nn.BatchNorm2d(4, momentum=None),
            "batch_without": lambda: nn.BatchNorm2d(4, track_running_stats=False),
            "instance": lambda: nn.InstanceNorm2d(4, track_running_stats=True),
            "group": lambda: nn.GroupNorm(2, 4),
            "spectral": lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 1)),
            "lazy": lambda: nn.LazyConv2d(4, 1),
        }
        super().__init__(nn.Conv2d(3, 4, 1), nn.Sequential(norms[norm]()))


def number(num_classes):
    raise AssertionError("called before it was looked at")


def sized(num_classes, input_shape) -> nn.Linear:
    return nn.Linear(input_shape[0], num_classes)


def lies() -> nn.Module:
    return 3


def build(name, norm_statistics="refuse", **args):
    return models.build(f"{__name__}:{name}", args, num_classes=5, input_shape=(7,), norm_statistics=norm_statistics)


def test_by_import_path():
    model = build("Sized", scale=2.0)
    assert isinstance(model, Sized)
    assert (model.in_features, model.out_features, model.scale) == (7, 5, 2.0)
    assert build("Fixed", anything=1).in_features == 3
    assert build("sized").in_features == 7
    assert isinstance(models.build("torch.nn:Identity", {}, num_classes=2, input_shape=(3,)), nn.Identity)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("Sizd", {}, "has no Sizd; did you mean Sized"),
        ("Sized", {"scal": 2}, "model_args.scal of .*; did you mean scale"),
        ("number", {}, "is a function; expected a subclass of torch.nn.Module, or a function that is annotated"),
        ("ConfigError", {}, "is a class; expected a subclass of torch.nn.Module"),
        ("lies", {}, "returned a int; expected a torch.nn.Module"),
        ("Normed", {"norm": "lazy"}, "has no shape yet"),
        ("pytest", {}, "is a module; expected a subclass"),
    ],
)
def test_errors(name, args, message):
    with pytest.raises(ConfigError, match=message):
        build(name, **args)


@pytest.mark.parametrize("path", ["no_such_package.models:Net", ":Net", "tests:"])
def test_bad_paths(path):
    with pytest.raises(ConfigError, match=r"as you would import it|expected package.module:Class"):
        models.build(path, {}, num_classes=2, input_shape=(3,))


def test_missing_arguments_are_named():
    with pytest.raises(ConfigError, match="out_features"):
        models.build("torch.nn:Linear", {"in_features": 2}, num_classes=2, input_shape=(3,))


@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_running_statistics_are_refused_with_the_remedy(norm):
    with pytest.raises(
        ValueError, match=r"layer 1.0 \(\w+Norm2d\) keeps running statistics .*GroupNorm.*track_running"
    ):
        build("Normed", norm=norm)


@pytest.mark.parametrize("norm_statistics", ["average", "local"])
def test_running_statistics_of_batch_norm_alone_can_be_allowed(norm_statistics):
    build("Normed", norm="batch", norm_statistics=norm_statistics)
    for norm, reason in (("instance", "BatchNorm1d, 2d and 3d only"), ("cumulative", "momentum=None"),
                         ("spectral", "spectral normalisation")):  # fmt: skip
        with pytest.raises(ConfigError, match=reason):
            build("Normed", norm=norm, norm_statistics=norm_statistics)


def test_spectral_normalisation_is_refused():
    with pytest.raises(ValueError, match="spectral normalisation"):
        build("Normed", norm="spectral")


@pytest.mark.parametrize("norm", ["batch_without", "group"])
def test_norms_without_running_statistics_are_fine(norm):
    build("Normed", norm=norm)


def test_a_module_itself_is_refused():
    with pytest.raises(ValueError, match="model BatchNorm1d: layer itself"):
        check_buffers(nn.BatchNorm1d(2))


def test_importing_the_module_does_not_change_the_initial_parameters(tmp_path, monkeypatch):
    """The first run in a process imports it, later ones find it imported: both must draw the same numbers."""
    (tmp_path / "draws_when_imported.py").write_text(
        "import torch\ntorch.manual_seed(1)\ntorch.rand(3)\n\nclass Net(torch.nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(4, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    weights = []
    for _ in range(2):
        torch.manual_seed(0)
        weights.append(models.build("draws_when_imported:Net", num_classes=2, input_shape=(4,)).weight)
    assert torch.equal(*weights)
