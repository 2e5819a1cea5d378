"""`fedasd analyse`, from the command to the files."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path

import pytest

from fedasd_fast.analysis import registry
from fedasd_fast.simulation import simulate

from ..cli.conftest import Fedasd
from ..simulation.small_runs import files, small_config

_FAST_OPTIONS = ("--only", "hessian,dissimilarity", "--samples", "40", "hessian.probes=3", "hessian.lanczos_steps=8",
         "hessian.lanczos_runs=1")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "r"
    simulate(small_config(method="fedavg+asd", rounds=3, out=str(out)))
    return out


def test_a_run_is_analysed(folder: Path, fedasd: Fedasd) -> None:
    pytest.importorskip("curvlinops")
    before = files(folder)
    code, out, err = fedasd("analyse", str(folder), *_FAST_OPTIONS, "--model", "sel")
    assert code == 0, err
    assert "Hessian of the model `sel` after round 3, 40 training samples" in out
    assert "Gradient dissimilarity after round 4 (12 clients" in out
    assert "gradients of clients: 12/12" in err
    after = files(folder)
    new = {name for name in after if name not in before}
    assert new == {f"analysis/{name}.{kind}" for name in ("hessian", "dissimilarity") for kind in ("json", "png")}
    assert {name: after[name] for name in before} == before
    values = json.loads((folder / "analysis" / "hessian.json").read_text())
    assert values["spectrum"]["probes"] == 3
    assert f"{values['spectrum']['top'][0]:.4g}" in out
    # Again with the same seed: the same numbers; quietly: only results are printed.
    code, _, err = fedasd("analyse", str(folder), *_FAST_OPTIONS, "--model", "sel", "--quiet")
    assert (code, err) == (0, "")
    again = json.loads((folder / "analysis" / "hessian.json").read_text())
    assert {**again, "seconds": 0} == {**values, "seconds": 0}


def test_all_samples_and_one_analysis(folder: Path, fedasd: Fedasd) -> None:
    code, out, _ = fedasd(
        "analyse", str(folder), "--only", "dissimilarity", "--samples", "all", "dissimilarity.clients=3"
    )
    assert code == 0
    assert "3 of 12" in out
    assert "all, estimated" in out
    assert "Hessian" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--only hesian", "there is no analysis 'hesian'; did you mean hessian"),
        ("--only ,", "no analysis is named; expected some of hessian"),
        ("--samples 0", "--samples 0; expected a positive whole number, or all"),
        ("--samples -5", "--samples"),
        ("--samples many", "--samples many; expected a positive whole number, or all"),
        ("--seed -1", "--seed -1; expected 0 or more"),
        ("--model best", "there is no 'best'"),
        ("hessian.tpo=3", "unknown setting hessian.tpo; did you mean top"),
        ("hessian.top=few", "hessian.top = 'few'; expected a whole number"),
        ("hessian.progress=1", "unknown setting hessian.progress"),
        ("hessian=3", "hessian = 3; expected hessian.OPTION=VALUE"),
        ("rounds=3", "unknown setting rounds; expected one of hessian.OPTION"),
        ("--only dissimilarity hessian.top=3", "unknown setting hessian; expected one of dissimilarity.OPTION"),
        ("--only dissimilarity dissimilarity.clients=99", "dissimilarity.clients = 99; expected 1 .. 12"),
    ],
)
def test_a_mistake_is_explained(words: str, message: str, folder: Path, fedasd: Fedasd) -> None:
    if "dissimilarity" not in words:
        pytest.importorskip("curvlinops")
    code, out, err = fedasd("analyse", str(folder), *words.split())
    assert code == 2
    assert err.startswith("fedasd: ")
    assert message in err
    assert out == ""


def test_what_is_no_run_or_has_no_checkpoint_is_refused(folder: Path, fedasd: Fedasd, tmp_path: Path) -> None:
    only = ("--only", "dissimilarity")
    code, _, err = fedasd("analyse", "nowhere", *only)
    assert code == 2
    assert "nowhere is not a run directory" in err
    (tmp_path / "young").mkdir()
    (tmp_path / "young" / "config.yaml").write_bytes((folder / "config.yaml").read_bytes())
    code, _, err = fedasd("analyse", "young", *only)
    assert code == 2
    assert "young has no checkpoint yet; run it further" in err
    assert not (tmp_path / "young" / "analysis").exists()


def test_a_missing_library_is_named(folder: Path, fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    real = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "curvlinops" else real(name, *rest))
    code, _, err = fedasd("analyse", str(folder), "--only", "hessian")
    assert code == 2
    assert "the analysis hessian needs curvlinops: pip install 'fedasd-fast[analysis]'" in err


def test_every_analysis_has_options_and_a_figure() -> None:
    for name, analysis in registry.ANALYSES.items():
        assert analysis.figure is not None, name
        assert registry.analysis_keywords(name, {"seed": 3, "unknown": 1}, {}).keys() <= {"seed"}
