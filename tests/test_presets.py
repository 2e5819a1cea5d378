from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from fedasd_fast import presets
from fedasd_fast.algorithms import create
from fedasd_fast.common import dotted
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config

TABLES = {
    "table1_hessian": 18, "table2_cifar100": 84, "table2_tinyimagenet": 84, "table3_uniform_vs_adaptive": 20,
    "table4_500clients": 10, "table6_resnet20": 6, "table7_tinyvit": 4, "table8_vit_small": 4,
    "table9_clients_d03": 20, "table10_clients_d06": 20, "table11_participation": 24, "table12_hessian_rest": 24,
    "table13_cifar10": 72, "table14_divergence": 3,
}  # fmt: skip
FIGURES = {
    "fig1_intro", "fig3_eigen_density", "fig4_6_curves_cifar100", "fig4_6_curves_tinyimagenet", "fig7_hyper",
    "fig8_10_curves_cifar100", "fig8_10_curves_tinyimagenet", "fig11_cost", "fig12_convergence",
}  # fmt: skip
NUMBERS = ("mean", "std", "top_eigenvalue", "trace")
ARGUMENTS = {"fedprox": ("mu",), "feddyn": ("alpha",), "fedspeed": ("alpha", "rho"), "fedsam": ("rho",)}


def cells(name: str) -> list[dict[str, Any]]:
    """Every combination of the preset's grid."""
    grid = presets.describe(name).get("grid", {})
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def words(settings: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def test_there_is_a_preset_for_every_table_and_figure() -> None:
    assert set(presets.names()) == {"quickstart", "digits", "text", "cifar100-500clients", *TABLES, *FIGURES}
    assert presets.names()[0] == "quickstart"
    order = ("table9_clients_d03", "table10_clients_d06", "fig1_intro", "fig7_hyper", "fig11_cost")
    assert sorted(order, key=presets.names().index) == list(order)


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_and_every_cell_of_its_grid_load(name: str) -> None:
    preset = presets.describe(name)
    assert preset["description"]
    assert presets.load(name).name == name
    for key in preset.get("inferred", ()):
        if not key.startswith("method_args."):  # those below
            assert dotted.lookup(presets.load(name).to_dict(), key) is not None
    for settings in cells(name):
        config = presets.load(name, words(settings))
        assert all(str(value) in config.to_yaml() for value in settings.values())


@pytest.mark.parametrize("name", sorted({*TABLES, *FIGURES}))
def test_what_the_paper_does_not_state_is_marked_as_inferred(name: str) -> None:
    """Its text has no local epochs, weight decay, clipping, augmentation, and no mu, alpha or rho of the methods."""
    preset = presets.describe(name)
    methods = preset.get("grid", {}).get("method", [preset["config"]["method"]])
    arguments = {argument for method in methods for argument in ARGUMENTS.get(method.removesuffix("+asd"), ())}
    marked = preset["inferred"]
    assert len(set(marked)) == len(marked)
    assert {"local_epochs", "optimizer.weight_decay", "optimizer.clip_norm", "augment"} <= set(marked)
    assert {key for key in marked if key.startswith("method_args.")} == {f"method_args.{key}" for key in arguments}
    stated = {"optimizer.lr", "optimizer.lr_decay_per_round", "batch_size", "asd.temperature", "asd.weight", "rounds"}
    if name not in ("table6_resnet20", "table7_tinyvit", "table8_vit_small", "fig1_intro"):
        assert not stated & set(marked)


def test_arguments_that_the_paper_does_not_state_exist() -> None:
    for method, arguments in ARGUMENTS.items():
        assert all(hasattr(create(method, {}), argument) for argument in arguments)


def test_table_4_compares_fedspeed_with_the_model_that_the_authors_evaluated() -> None:
    for method, model in (("fedavg", "sel"), ("feddyn+asd", "sel"), ("fedspeed", "all"), ("fedspeed+asd", "all")):
        found = presets.expected("table4_500clients", [f"method={method}"])
        assert found is not None
        assert found.model == model


@pytest.mark.parametrize(("name", "numbers"), TABLES.items())
def test_the_papers_numbers_are_complete(name: str, numbers: int) -> None:
    expected = presets.describe(name)["expected"]
    assert sum(key in NUMBERS for cell in expected for key in cell) == numbers
    no_setting = (*NUMBERS, "note", "compares")
    where = Counter(str({k: v for k, v in cell.items() if k not in no_setting}) for cell in expected)
    assert max(where.values()) == 1
    assert len(expected) == len(cells(name))
    for settings in cells(name):
        found = presets.expected(name, words(settings))
        assert found is not None
        assert found.differs == ()
        assert 15 < found.mean < 90


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_figures_have_the_numbers_of_their_tables(name: str) -> None:
    found = [presets.expected(name, words(settings)) for settings in cells(name)]
    known = [cell for cell in found if cell]
    assert all(cell.differs == () for cell in known)
    assert len(known) == (1 if name == "fig7_hyper" else len(found))
    assert "Figure" in known[0].source


def test_all_numbers_are_there() -> None:
    assert sum(TABLES.values()) == 389 + 4  # four are only in the source of the paper


@pytest.mark.parametrize(
    ("name", "settings", "mean", "std"),
    [
        ("table2_cifar100", "method=fedavg partition=dirichlet_0.3", 38.67, 0.66),
        ("table2_cifar100", "method=fedspeed+asd partition=iid", 51.99, 0.32),
        ("table2_tinyimagenet", "method=feddisco+asd partition=iid", 26.56, 0.9),
        ("table3_uniform_vs_adaptive", "method=fedntd+asd asd.weighting=uniform", 40.4, 1.52),
        ("table4_500clients", "method=fedspeed+asd", 36.59, None),
        ("table9_clients_d03", "method=feddyn+asd clients=400", 33.61, None),
        ("table10_clients_d06", "method=fedavg clients=300", 30.12, None),
        ("table11_participation", "method=feddyn partition=dirichlet_0.6 participation=0.15", 48.74, None),
        ("table13_cifar10", "method=fedprox partition=dirichlet_0.6", 78.81, 0.69),
        ("table14_divergence", "asd.divergence=js", 42.21, None),
    ],
)
def test_cells_of_the_paper(name: str, settings: str, mean: float, std: float | None) -> None:
    found = presets.expected(name, settings.split())
    assert found is not None
    assert (found.mean, found.std) == (mean, std)


def test_hessian_numbers_and_suspects() -> None:
    found = presets.expected("table12_hessian_rest", ["method=fedntd+asd"])
    assert found is not None
    assert found.others == {"top_eigenvalue": 17.5, "trace": 2840.0}
    assert found.suspect
    copied = presets.expected("table2_tinyimagenet", ["method=fedspeed+asd", "partition=dirichlet_0.6"])
    assert copied is not None
    assert copied.suspect
    assert "copied" in str(copied)
    trusted = presets.expected("table2_tinyimagenet", ["method=fedspeed+asd", "partition=iid"])
    assert trusted is not None
    assert trusted.suspect is None


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("table7_tinyvit", "table8_vit_small")])
def test_tables_follow_the_authors_protocol(name: str) -> None:
    config = presets.load(name)
    weights = {"cifar10": 10, "cifar100": 30, "tinyimagenet": 20}
    assert config.asd.weight == weights[config.dataset]
    assert (config.local_epochs, config.batch_size, config.augment, config.teacher) == (5, 50, "epoch", "recompute")
    assert (config.optimizer.lr, config.optimizer.lr_decay_per_round, config.optimizer.clip_norm) == (0.1, 0.998, 10.0)


def test_rules_follow_the_settings_and_give_way_to_the_user() -> None:
    name = "table2_tinyimagenet"
    assert presets.load(name, ["method=fedsam+asd", "partition=iid"]).method_args == {"rho": 0.03}
    assert presets.load(name, ["method=fedsam+asd"]).method_args == {}
    assert presets.load(name, ["method=fedsam", "partition=iid", "method_args.rho=0.2"]).method_args == {"rho": 0.2}
    assert presets.load(name, {"method": "feddisco"}).method_args == {"variant": "paper"}
    assert presets.load("table4_500clients", ["method=fedspeed+asd"]).method_args == {"variant": "paper"}
    assert presets.load("table7_tinyvit", ["method=feddyn"]).method_args == {"alpha": 0.05}
    assert presets.load("table7_tinyvit", ["method=fedavg"]).method_args == {}


def test_the_cross_device_experiment_is_table_4_with_an_exact_cache() -> None:
    config, table = presets.load("cifar100-500clients"), presets.load("table4_500clients")
    assert sorted(presets.differences(config.to_dict(), table.to_dict())) == ["augment", "teacher"]
    assert (config.clients, config.participation, config.eval_every, config.checkpoint_every) == (500, 0.01, 10, 10)
    found = presets.expected(config.replace(rounds=50, seed=3))
    assert found is not None
    assert (found.mean, found.model, found.rounds) == (31.28, "sel", 1000)
    assert found.differs == ("augment", "rounds", "teacher")
    assert found.comparable


def test_the_papers_number_is_not_comparable_with_another_experiment() -> None:
    found = presets.expected("table2_cifar100", ["optimizer.lr=0.5", "model=resnet20_gn"])
    assert found is not None
    assert not found.comparable
    assert "optimizer.lr" in str(found)
    assert presets.expected("table2_cifar100", ["partition=dirichlet_0.1"]) is None
    assert presets.expected("quickstart") is None
    assert presets.expected(Config()) is None


def test_overrides() -> None:
    assert presets.load("quickstart", ["asd.weight=7", "rounds=2"]).asd.weight == 7.0
    assert presets.load("quickstart", ["asd.enabled=false"]).method == "fedavg"
    assert presets.load("quickstart", ["method=feddyn"]).asd.enabled is False
    assert presets.load("quickstart", ["model=logistic"]).model_args == {}  # the MLP's hidden layers go with the MLP
    assert presets.load("quickstart", {"model": "mlp"}).model_args == {"hidden": [128]}


@pytest.mark.parametrize(
    ("name", "meant"), [("quikstart", "quickstart"), ("table2", "table2_cifar100 or table2_tinyimagenet")]
)
def test_an_unknown_preset_names_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"no preset '{name}'; did you mean {meant}"):
        presets.load(name)


def test_what_is_described_cannot_be_changed_by_accident() -> None:
    presets.describe("quickstart")["config"].clear()
    assert presets.load("quickstart").clients == 500


def test_the_headline_is_the_model_that_the_table_reports_else_the_servers() -> None:
    assert presets.headline_model(presets.load("quickstart")) == "cloud"
    assert presets.headline_model(presets.load("table4_500clients")) == "sel"
    assert presets.headline_model(presets.load("table2_cifar100", ["partition=dirichlet_0.1"])) == "all"
    assert presets.headline_model(presets.load("table2_cifar100", ["eval_models=[sel]"])) == "sel"
    assert presets.headline_model(presets.load("quickstart", ["eval_models=[all, sel]"])) == "sel"
