"""The configuration of a run: settings that are checked, and what follows from them.

A configuration is read from a preset or a YAML file, changed by `key=value` overrides (`optimizer.lr=0.05`), then
checked.  It is complete and resolved: saved with the results, it is enough to repeat the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .algorithms import Distillation, Method, create, hooks_used
from .algorithms.hooks import STEP_HOOKS
from .common import safe_yaml
from .common.files import read_bounded
from .common.schema import ConfigError, build, merge, nearest, plain
from .settings import ASD, Availability, Devices, Settings


@dataclass(frozen=True)
class Config(Settings):
    """Settings that were checked: what `fa.simulate` takes.

        config = fa.presets.load("quickstart", ["rounds=5", "asd.weight=10"])
        config = fa.Config(clients=100, rounds=5, method="feddyn+asd")
        config = config.replace(out="runs/mine")

    A bad value is an error that names the remedy.  `fedasd settings` lists every setting with its default and meaning.
    """

    def __post_init__(self) -> None:
        _check_ranges(self)
        _check_devices(self)
        _resolve_method(self)
        if "method" not in self.named_code():  # else checked when it is used: reading a file imports nothing
            self.create_method()
        if self.precision != "float32" and self.dtype != "float32":
            raise ConfigError(
                f"precision = {self.precision} with dtype = {self.dtype}: half precision keeps its parameters in "
                "float32; set dtype = float32, or precision = float32, which leaves dtype as it is"
            )
        if self.tf32 and not self.device.startswith("cuda"):
            raise ConfigError(f"tf32 = true with device = {self.device}: set device = cuda, or tf32 = null")
        if self.cuda_graph and not self.device.startswith("cuda"):
            raise ConfigError(
                f"cuda_graph = true with device = {self.device}: set device = cuda, or cuda_graph = false"
            )
        if self.cuda_graph and (self.executor == "stacked" or self.clients_at_once > 1):
            raise ConfigError(
                "cuda_graph = true with stacked clients, whose local steps cannot be recorded; use executor = "
                "serial and clients_at_once = 1, or cuda_graph = false"
            )
        if self.cuda_graph and self.optimizer.name != "sgd":
            raise ConfigError(
                f"cuda_graph = true with optimizer.name = {self.optimizer.name}, whose local steps are not recorded; "
                "set cuda_graph = false, or optimizer.name = sgd"
            )

    @property
    def base_method(self) -> str:
        """The method's name without +asd."""
        return self.method.removesuffix("+asd")

    def named_code(self, given: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Import paths (`package.module:Class`) by setting, without those that the caller himself gave."""
        named = {"dataset": self.dataset, "model": self.model, "method": self.base_method}
        own = {key: str((given or {}).get(key)).removesuffix("+asd") for key in named}
        return {key: path for key, path in named.items() if ":" in path and path != own[key]}

    def create_method(self) -> Method:
        method = create(self.base_method, self.method_args)
        if self.augment == "epoch" and self.teacher == "cache" and self._has_teacher(method):
            raise ConfigError(
                "augment = epoch with teacher = cache: the teacher's cached outputs are of other augmented inputs "
                "than the student's; use augment = round (the cache stays exact), teacher = recompute, or ask for the "
                "approximation by name: teacher = cache_approximate"
            )
        if self.cuda_graph and (used := hooks_used(method) & STEP_HOOKS):
            raise ConfigError(
                f"cuda_graph = true, but {self.base_method} has {', '.join(sorted(used))}, which cannot be recorded; "
                "set cuda_graph = false"
            )
        if method.sgd_only and self.optimizer.name != "sgd":
            raise ConfigError(
                f"optimizer.name = {self.optimizer.name}, but {self.base_method} reads gradients from the change of a "
                "client's model, which is right for SGD only; set optimizer.name = sgd, or use another method"
            )
        return method

    @property
    def distillation(self) -> Distillation | None:
        """The distillation term of a client's loss; None: no teacher is needed."""
        return self._distillation(self.create_method())

    @property
    def ascent_loss(self) -> Distillation | None:
        """The term that clients ascend in place of their loss; None: their loss."""
        return self.create_method().ascent_loss(self._asd_term)

    def _has_teacher(self, method: Method) -> bool:
        return self._distillation(method) is not None or method.ascent_loss(self._asd_term) is not None

    def _distillation(self, method: Method) -> Distillation | None:
        return method.distillation(self._asd_term, bool(self.asd.enabled))

    @property
    def _asd_term(self) -> Distillation:
        return Distillation(**{name: value for name, value in plain(self.asd).items() if name != "enabled"})

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = plain(self)
        if not self.inputs:  # no setting, and seldom there
            del values["inputs"]
        return values

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    def replace(self, **changes: Any) -> Config:
        """A copy with other settings.  Mappings are merged; a new `method` switches ASD on or off by its name, unless
        `asd` does; a new method, model or dataset does not inherit the arguments of the old one."""
        values = self.to_dict()
        if "method" in changes:
            values["asd"]["enabled"] = None
        for name in ("method", "model", "dataset"):
            if name in changes and str(changes[name]).removesuffix("+asd") != values[name].removesuffix("+asd"):
                values[f"{name}_args"] = {}
        return from_dict(merge(values, changes))


def from_dict(values: Mapping[str, Any]) -> Config:
    return build(Config, values)


# What settings mean that a saved configuration lacks because they came after the first version.
BEFORE = {"random_streams": 1, "client_op": False, "precision": "float32", "tf32": None, "class_accuracy": False,
          "client_accuracy": False, "target_accuracy": None, "stop_at_target": False, "keep_best": False,
          "devices": Devices(), "availability": Availability(), "client_test_accuracy": False,
          "norm_statistics": "refuse"}  # fmt: skip


def from_saved(values: Mapping[str, Any]) -> Config:
    """The configuration of a run, as this version or an older one saved it."""
    return from_dict({**BEFORE, **values} if isinstance(values, Mapping) else values)


def from_yaml(path: str | Path) -> Config:
    return from_dict(_read(path))


def from_saved_yaml(path: str | Path) -> Config:
    """Of the config.yaml of a run directory."""
    return from_saved(_read(path))


def _read(path: str | Path) -> Any:
    values = safe_yaml.load(read_bounded(Path(path), safe_yaml.MAX_BYTES), str(path))
    return {} if values is None else values


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """`optimizer.lr=0.05 asd.weight=3` as nested mappings; values are read as YAML."""
    result: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"{word!r} is not an override; expected key=value, for instance optimizer.lr=0.05")
        value = safe_yaml.load(text, f"{key} = {text!r:.100}")
        for part in reversed(key.split(".")):
            value = {part: value}
        result = merge(result, value)
    return result


def _resolve_method(config: Config) -> None:
    """`fedavg+asd` and `fedavg` with asd.enabled mean the same: the name and the switch are made consistent."""
    named = config.method.endswith("+asd")
    if named and config.asd.enabled is False:
        raise ConfigError(f"method = {config.method}, but asd.enabled = false; remove +asd, or remove the setting")
    enabled = named or bool(config.asd.enabled)
    object.__setattr__(config, "method", config.base_method + ("+asd" if enabled else ""))
    object.__setattr__(config, "asd", build(ASD, {**plain(config.asd), "enabled": enabled}))


def _check_ranges(c: Config) -> None:
    whole = {"clients": 0, "rounds": 0, "local_epochs": 1, "batch_size": 1, "eval_every": 1, "eval_batch_size": 1,
             "checkpoint_every": 1, "seed": 0, "workers": 0, "clients_at_once": 0,
             "threads": 0}  # fmt: skip
    for name, least in whole.items():
        _require(getattr(c, name) >= least, name, getattr(c, name), f"a whole number of at least {least}")
    _require(c.size_sigma >= 0, "size_sigma", c.size_sigma, "0 or more")
    _require(0 < c.participation <= 1, "participation", c.participation, "a fraction in (0, 1]")
    _require(len(c.eval_models) > 0, "eval_models", c.eval_models, "at least one of all, sel, cloud")
    target = c.target_accuracy
    _require(target is None or 0 < target <= 1, "target_accuracy", target, "a fraction in (0, 1], or null")
    if c.stop_at_target and target is None:
        raise ConfigError("stop_at_target = true without a target; set target_accuracy, as in target_accuracy=0.6")
    for name in ("dropout", "stragglers"):
        value = getattr(c.failures, name)
        _require(0 <= value < 1, f"failures.{name}", value, "a fraction in [0, 1)")
    o, a, s = c.optimizer, c.asd, c.synthetic
    _require(o.lr > 0, "optimizer.lr", o.lr, "a positive number")
    _require(0 < o.lr_decay_per_round <= 1, "optimizer.lr_decay_per_round", o.lr_decay_per_round, "a factor in (0, 1]")
    _require(o.weight_decay >= 0, "optimizer.weight_decay", o.weight_decay, "0 or more")
    _require(0 <= o.momentum < 1, "optimizer.momentum", o.momentum, "a number in [0, 1)")
    _require(o.clip_norm is None or o.clip_norm > 0, "optimizer.clip_norm", o.clip_norm, "a positive number, or null")
    _require(
        o.name == "sgd" or o.momentum == 0,
        "optimizer.momentum", o.momentum, "0 with adamw, whose momentum is the first of optimizer.betas",
    )  # fmt: skip
    betas = len(o.betas) == 2 and min(o.betas) >= 0 and max(o.betas) < 1
    _require(betas, "optimizer.betas", list(o.betas), "two numbers in [0, 1)")
    _require(o.eps > 0, "optimizer.eps", o.eps, "a positive number")
    _require(a.weight >= 0, "asd.weight", a.weight, "0 or more")
    for name in ("temperature", "entropy_temperature"):
        _require(getattr(a, name) > 0, f"asd.{name}", getattr(a, name), "a positive number")
    for name in ("classes", "samples_per_client", "test_samples", "modes"):
        _require(getattr(s, name) >= 1, f"synthetic.{name}", getattr(s, name), "a whole number of at least 1")
    _require(len(s.shape) > 0 and min(s.shape) > 0, "synthetic.shape", list(s.shape), "positive sizes")
    for name in ("separation", "noise"):
        _require(getattr(s, name) >= 0, f"synthetic.{name}", getattr(s, name), "0 or more")
    match = re.fullmatch(r"iid|natural|shards_[1-9]\d*|dirichlet_(\d*\.?\d+(?:e-?\d+)?)", c.partition)
    _require(
        match is not None and (match[1] is None or float(match[1]) > 0),
        "partition", c.partition, "dirichlet_<delta> (dirichlet_0.3), iid, shards_<n> (shards_2) or natural",
    )  # fmt: skip


def _check_devices(c: Config) -> None:
    d, a = c.devices, c.availability
    for key, value, names in (
        ("devices.profile", d.profile, ("none", "constant", "uniform", "lognormal")),
        ("availability.pattern", a.pattern, ("always", "diurnal")),
    ):
        if value not in names and not value.endswith(".csv"):
            raise ConfigError(f"{key} = {value!r}{nearest(value, [*names, 'a file that ends in .csv'])}")
    for name in ("speed", "download", "upload"):
        _require(getattr(d, name) > 0, f"devices.{name}", getattr(d, name), "a positive number")
    for name in ("speed_spread", "bandwidth_spread"):
        value = getattr(d, name)
        _require(value >= 0, f"devices.{name}", value, "0 or more")
        _require(d.profile != "uniform" or value < 1, f"devices.{name}", value, "a number in [0, 1) with uniform")
    _require(d.deadline is None or d.deadline > 0, "devices.deadline", d.deadline, "seconds, or null")
    if d.profile == "none" and (d.deadline is not None or a.pattern != "always"):
        what = f"availability.pattern = {a.pattern}" if d.deadline is None else f"devices.deadline = {d.deadline:g}"
        raise ConfigError(f"{what} needs simulated time; set devices.profile, as in devices.profile=lognormal")
    _require(0 < a.mean <= 1, "availability.mean", a.mean, "a fraction in (0, 1]")
    most = min(a.mean, 1 - a.mean)
    _require(
        a.pattern != "diurnal" or 0 <= a.amplitude <= most,
        "availability.amplitude", a.amplitude, f"0 .. {most:g}, so that mean ± amplitude is a fraction",
    )  # fmt: skip
    _require(0 <= a.time_zones <= 1, "availability.time_zones", a.time_zones, "a fraction in [0, 1]")
    _require(a.period is None or a.period > 0, "availability.period", a.period, "seconds, or null")
    _require(a.pattern != "diurnal" or a.period is not None, "availability.period", a.period, "seconds with diurnal")
    _require(a.wait > 0, "availability.wait", a.wait, "a positive number of seconds")


def _require(condition: bool, name: str, value: Any, expected: str) -> None:
    if not condition:
        raise ConfigError(f"{name} = {value!r}; expected {expected}")
