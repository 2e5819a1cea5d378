from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast.common.schema import ConfigError, merge, nearest
from fedasd_fast.config import Config, from_dict, from_yaml, parse_overrides

keys, leaves = st.sampled_from("abc"), st.integers(0, 2)
mappings = st.dictionaries(keys, leaves | st.dictionaries(keys, leaves | st.dictionaries(keys, leaves)))


def test_the_yaml_of_a_configuration_is_the_configuration(tmp_path: Path) -> None:
    config = from_dict({"method": "feddyn+asd", "optimizer": {"clip_norm": None}, "synthetic": {"shape": [3, 8, 8]}})
    file = tmp_path / "config.yaml"
    file.write_text(config.to_yaml())
    assert from_yaml(file) == config
    assert config.synthetic.shape == (3, 8, 8)
    settings = set(Config.__dataclass_fields__) - {"inputs"}  # no setting
    assert set(yaml.safe_load(config.to_yaml())) == settings  # complete


def test_numbers_are_read_as_the_settings_need_them() -> None:
    config = from_dict(parse_overrides(["optimizer.weight_decay=1e-3", "asd.weight=3", "clients=20", "seed=7"]))
    assert (config.optimizer.weight_decay, config.asd.weight, config.clients) == (1e-3, 3.0, 20)
    assert isinstance(config.asd.weight, float)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("roundz=3", "unknown setting roundz; did you mean rounds"),
        ("optimizer.ls=3", "unknown setting optimizer.ls; did you mean lr"),
        ("rounds=many", "rounds = 'many'; expected a whole number"),
        ("rounds=1.5", "rounds = 1.5; expected a whole number"),
        ("rounds=true", "rounds = True; expected a whole number"),
        ("rounds=-1", "rounds = -1; expected a whole number of at least 0"),
        ("rounds.x=1", "rounds = {'x': 1}; expected a whole number"),
        ("clients=-1", "clients = -1; expected a whole number of at least 0"),
        ("participation=1.5", r"participation = 1.5; expected a fraction in \(0, 1\]"),
        ("participation=.nan", r"participation = nan; expected a finite number"),
        ("optimizer.lr=fast", "optimizer.lr = 'fast'; expected a finite number"),
        ("optimizer.lr=.inf", "optimizer.lr = inf; expected a finite number"),
        ("optimizer.lr=", "optimizer.lr = None; expected a finite number"),
        ("optimizer=3", "optimizer = 3; expected a mapping"),
        ("asd=null", "asd = None; expected a mapping"),
        ("asd.temperature=0", "asd.temperature = 0.0; expected a positive number"),
        ("asd.enabled=maybe", "asd.enabled = 'maybe'; expected true or false"),
        ("asd.weighting=adaptiv", "asd.weighting = 'adaptiv'; did you mean adaptive"),
        ("sampling=poisson", "sampling = 'poisson'; expected one of bernoulli, fixed"),
        ("eval_models=all", "eval_models = 'all'; expected a list"),
        ("eval_models=[]", "eval_models = .*; expected at least one"),
        ("eval_models=[al]", r"eval_models\[0\] = 'al'; did you mean all"),
        ("partition=dirichlet", "partition = 'dirichlet'; expected dirichlet_<delta>"),
        ("partition=dirichlet_", "partition = 'dirichlet_'; expected"),
        ("model_args=3", "model_args = 3; expected a mapping"),
        ("method=fedagv", "method = 'fedagv' is unknown; did you mean fedavg"),
        ("method_args.mu=1", "unknown setting method_args.mu"),
        ("failures.dropout=1", r"failures.dropout = 1.0; expected a fraction in \[0, 1\)"),
    ],
)
def test_a_bad_setting_is_named_with_what_was_expected(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(parse_overrides([word]))


@pytest.mark.parametrize("word", ["rounds", "=3", "rounds 3"])
def test_words_that_are_not_overrides(word: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_overrides([word])


def test_broken_yaml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        parse_overrides(["asd={weight: 3"])
    (tmp_path / "config.yaml").write_text("rounds: [3")
    with pytest.raises(ConfigError, match=r"config.yaml is not valid YAML"):
        from_yaml(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_text("[1, 2]")
    with pytest.raises(ConfigError, match="expected a mapping of settings"):
        from_yaml(tmp_path / "config.yaml")


def test_the_name_and_the_switch_of_asd_say_the_same() -> None:
    assert from_dict({"method": "feddyn", "asd": {"enabled": True}}).method == "feddyn+asd"
    assert from_dict({"method": "feddyn+asd"}).asd.enabled is True
    assert from_dict({"method": "feddyn"}).asd.enabled is False
    with pytest.raises(ConfigError, match=r"remove \+asd, or remove the setting"):
        from_dict({"method": "fedavg+asd", "asd": {"enabled": False}})


def test_replace_follows_the_method() -> None:
    config = from_dict({"method": "fedavg+asd", "asd": {"weight": 3.0}})
    assert config.replace(method="feddyn").asd.enabled is False
    assert config.replace(method="feddyn+asd").asd.weight == 3.0
    assert config.replace(asd={"temperature": 4.0}).asd.weight == 3.0
    assert config.replace(asd={"temperature": 4.0}).method == "fedavg+asd"


@pytest.mark.parametrize("method", ["fedavg+asd", "fedntd"])
def test_a_cache_of_other_views_must_be_asked_for(method: str) -> None:
    settings: dict[str, Any] = {"method": method, "augment": "epoch"}
    with pytest.raises(ConfigError, match="teacher = cache_approximate"):
        from_dict({**settings, "teacher": "cache"})
    for teacher in ("recompute", "cache_approximate"):
        assert from_dict({**settings, "teacher": teacher}).teacher == teacher
    assert from_dict({**settings, "augment": "round"}).teacher == "cache"
    assert from_dict({"method": "fedavg", "augment": "epoch"}).teacher == "cache"  # no teacher at all


def test_nearest() -> None:
    assert nearest("fedagv", ["fedavg", "feddyn"]).startswith("; did you mean fedavg")
    assert nearest("xyz", ["b", "a"]) == "; expected one of a, b"
    assert nearest("xyz", []) == ""


@given(mappings, mappings)
def test_merge_keeps_what_is_not_overridden(base: dict[str, Any], over: dict[str, Any]) -> None:
    before = repr(base), repr(over)
    merged = merge(base, over)
    assert merge(merged, over) == merged
    assert set(merged) == set(base) | set(over)
    assert merge(base, {}) == base
    assert (repr(base), repr(over)) == before


@given(st.dictionaries(st.sampled_from(["rounds", "clients", "seed", "batch_size"]), st.integers(1, 9), min_size=1))
def test_overrides_are_what_they_say(settings: dict[str, int]) -> None:
    config = from_dict(parse_overrides(f"{key}={value}" for key, value in settings.items()))
    assert all(getattr(config, key) == value for key, value in settings.items())


def test_whole_numbers_may_have_an_exponent() -> None:
    assert from_dict(parse_overrides(["rounds=1e3", "clients=2.5e2", "batch_size=10.0"])).rounds == 1000
    assert from_dict(parse_overrides(["clients=2.5e2"])).clients == 250
    for word in ("rounds=1.5e0", "rounds=1e-3", "rounds=1e", "rounds='5'"):
        with pytest.raises(ConfigError, match="whole number"):
            from_dict(parse_overrides([word]))
