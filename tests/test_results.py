"""The tables in docs/results are what the metrics beside them say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedasd_fast import presets
from fedasd_fast.cli.main import main
from fedasd_fast.common import compact_json
from fedasd_fast.simulation.storage.recorded_run import read_run

from .results_runs import (
    BF16,
    CACHE,
    DOCS,
    FEDAVG,
    FEDAVG_ASD,
    FEDAVG_ASD_SEED_1,
    FEDAVG_SEED_1,
    FEDDYN,
    FEDDYN_ASD,
    FEDNTD,
    FEDNTD_20,
    FEDNTD_ASD,
    FEDNTD_SEED_1,
    UNIFORM,
    accuracies,
    analysis,
    curve,
    plain,
    rounds_of,
    row,
    signed,
)

SPIKE = 6.0  # loss; that of the first round is 4.4 or 4.5
GRIDS = sorted(path.parent for path in (DOCS / "results").glob("*/report.json"))


@pytest.mark.parametrize("folder", GRIDS, ids=lambda path: path.name)
def test_report(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "docs" / "results" / folder.name
    shutil.copytree(folder, there)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDASD_DATA", str(tmp_path))  # the page does without the dataset
    before = json.loads((there / "report.json").read_text())
    (there / "report.md").unlink()
    assert main([*shlex.split(before["command"])[1:], "--report"]) == 0
    assert json.loads((there / "report.json").read_text()) == before
    tables = re.findall(r"^\|.*\|$", (there / "report.md").read_text(), re.MULTILINE)
    said = (DOCS / "results.md").read_text()
    assert tables
    assert not [line for line in tables if line not in said]


@pytest.mark.parametrize("path", sorted((DOCS / "results").rglob("config.yaml")), ids=lambda path: path.parent.name)
def test_runs_can_be_repeated_on_another_machine(path: Path) -> None:
    run = read_run(path.parent)
    assert run.metrics
    assert run.config.data_dir is None
    assert not Path(run.config.out or "").is_absolute()


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / "results.md").read_text())
    assert [link for link in links if not link.startswith("http") and not (DOCS / link).exists()] == []


@pytest.mark.parametrize(
    "path", sorted((DOCS / "results").rglob("analysis/*.json")), ids=lambda path: f"{path.parts[-3]}-{path.stem}"
)
def test_analyses_are_saved_in_the_compact_form(path: Path) -> None:
    text = path.read_text()
    assert compact_json.dumps(json.loads(text)) == text


def uniform_rows() -> Iterator[str]:
    adaptive, uniform = accuracies(FEDAVG_ASD), accuracies(UNIFORM)
    yield row("adaptive weights", *plain(adaptive))
    yield row("uniform weights", *plain(uniform))
    yield row("adaptive over uniform", *signed(adaptive, uniform))
    yield row("uniform over FedAvg", *signed(uniform, accuracies(FEDAVG)))


def uniform_analysis_rows() -> Iterator[str]:
    runs = (FEDAVG_ASD, UNIFORM)

    def change(run: Path, group: str) -> str:
        found = analysis(run, "forgetting")["groups"]["fedavg+asd"][group]
        return f"{found['mean']:+.1f} ± {found['error']:.1f}"

    def dissimilarity(run: Path, weight: float) -> str:
        found = analysis(run, "dissimilarity")
        return f"{found['normalised']['values'][found['lambdas'].index(weight)]:.1f}"

    def last_hundred(run: Path, what: str) -> str:
        return f"{fmean(r[what] for r in rounds_of(run)[-100:]):.3f}"

    def entropy(run: Path) -> str:
        return f"{fmean(client['entropy'] for client in analysis(run, 'weights')['clients']):.2f}"

    def spectrum(run: Path, what: str) -> float:
        found: dict[str, Any] = analysis(run, "hessian")["spectrum"]
        return float(found["top"][0] if what == "top" else found[what])

    yield row("own local training, classes the client has much of", *(change(run, "much") for run in runs))
    yield row("own local training, classes it has none of", *(change(run, "none") for run in runs))
    yield row("G_d at lambda = 0", *(dissimilarity(run, 0.0) for run in runs))
    yield row("G_d at lambda = 30, the run's own weights", *(dissimilarity(run, 30.0) for run in runs))
    yield row("step of the global model", *(last_hundred(run, "drift") for run in runs))
    yield row("distance of clients from it", *(last_hundred(run, "client_distance") for run in runs))
    yield row("entropy of the teacher, nats", *(entropy(run) for run in runs))
    yield row("top eigenvalue of the Hessian", *(f"{spectrum(run, 'top'):.1f}" for run in runs))
    yield row("trace", *(f"{spectrum(run, 'trace'):,.0f} ± {spectrum(run, 'trace_error'):.0f}" for run in runs))
    yield row("training loss", *(f"{analysis(run, 'hessian')['loss']:.2f}" for run in runs))


def breakdown_rows() -> Iterator[str]:
    for label, run in (
        ("FedAvg", FEDAVG),
        ("FedAvg, seed 1", FEDAVG_SEED_1),
        ("FedAvg+ASD", FEDAVG_ASD),
        ("FedAvg+ASD, seed 1", FEDAVG_ASD_SEED_1),
        ("FedAvg+ASD, uniform weights", UNIFORM),
        ("FedAvg+ASD, cached teacher", CACHE),
        ("FedAvg+ASD, bfloat16", BF16),
        ("FedDyn", FEDDYN),
        ("FedDyn+ASD", FEDDYN_ASD),
        ("FedNTD", FEDNTD),
        ("FedNTD, seed 1", FEDNTD_SEED_1),
        ("FedNTD, lambda = 20", FEDNTD_20),
        ("FedNTD+ASD", FEDNTD_ASD),
    ):
        losses, sel = [r["loss"] for r in rounds_of(run)], curve(run, "sel")
        fall, at = max((before - after, 20 * k) for k, (before, after) in enumerate(pairwise(sel), 2))
        spikes = sum(loss > SPIKE for loss in losses)
        yield row(label, str(spikes), f"{max(losses):.1f}", f"{fall:.1f}", str(at))


def weight_rows() -> Iterator[str]:
    for label, run in (("30, seed 0", FEDNTD), ("30, seed 1", FEDNTD_SEED_1), ("20, seed 0", FEDNTD_20)):
        yield row(label, *plain(accuracies(run)))


def last_ten_rows() -> Iterator[str]:
    for model, last in (("sel", 10), ("all", 1)):
        for label, pair in (("FedAvg", (FEDAVG, FEDAVG_ASD)), ("FedDyn", (FEDDYN, FEDDYN_ASD))):
            without, asd = (fmean(curve(run, model)[-last:]) for run in pair)
            yield row(label, *plain([without, asd]), f"{asd - without:+.2f}")
        yield row("FedNTD", *plain(fmean(curve(run, model)[-last:]) for run in (FEDNTD, FEDNTD_ASD)), "-")


def cache_rows() -> Iterator[str]:
    yield row("`augment: epoch, teacher: recompute`", *plain(accuracies(FEDAVG_ASD)))
    yield row("`augment: round, teacher: cache`", *plain(accuracies(CACHE)))


def precision_rows() -> Iterator[str]:
    pair = (FEDAVG_ASD, BF16)
    whole, half = (accuracies(run) for run in pair)
    yield row("float32", *plain(whole))
    yield row("bfloat16", *plain(half))
    yield row("bfloat16 over float32", *signed(half, whole))
    every_fifth = [curve(run, "all")[4::5] for run in pair]  # rounds 100, 200, ..
    yield row("`all`, float32", *plain(every_fifth[0]))
    yield row("`all`, bfloat16", *plain(every_fifth[1]))
    yield row("difference", *signed(every_fifth[1], every_fifth[0]))


def fedspeed_rows() -> Iterator[str]:
    """FedSpeed without perturbation is FedDyn (tests/simulation/test_identities.py), and is evaluated by `all`."""
    paper = [presets.expected("table4_500clients", [f"method={method}"]) for method in ("fedspeed", "fedspeed+asd")]
    theirs = [number.mean for number in paper if number]
    ours = [curve(run, "all")[-1] for run in (FEDDYN, FEDDYN_ASD)]
    yield row("FedSpeed, variant paper", *plain([ours[0], theirs[0]]), *signed(ours[:1], theirs[:1]))
    yield row("FedSpeed+ASD, variant paper", *plain([ours[1], theirs[1]]), *signed(ours[1:], theirs[1:]))
    gains = [[mine[1] - mine[0]] for mine in (ours, theirs)]
    yield row("gain", *(f"{gain:+.2f}" for (gain,) in gains), *signed(*gains))


def analysed() -> Iterator[tuple[str, Path]]:
    yield "FedAvg", FEDAVG
    yield "FedAvg+ASD", FEDAVG_ASD
    yield "FedDyn", FEDDYN
    yield "FedDyn+ASD", FEDDYN_ASD
    yield "FedNTD", FEDNTD
    yield "FedNTD+ASD", FEDNTD_ASD


def forgetting_rows() -> Iterator[str]:
    def cell(found: Mapping[str, float]) -> str:
        return f"{found['mean']:+.1f} ± {found['error']:.1f}"

    labels = {"fedavg": "FedAvg", "fedavg+asd": "FedAvg+ASD", "fedntd": "FedNTD", "fedntd+asd": "FedNTD+ASD"}
    more = (("FedAvg+ASD, trained with uniform weights", UNIFORM), ("FedNTD, trained with lambda = 20", FEDNTD_20))
    for label, run in (*analysed(), *more):
        groups = analysis(run, "forgetting")["groups"]
        yield row(label, *(cell(groups[method]["none"]) for method in labels))
    for run in (FEDAVG, FEDAVG_ASD):
        found = analysis(run, "forgetting")
        for method, label in labels.items():
            groups = (cell(found["groups"][method][group]) for group in ("much", "little", "none"))
            yield row(label, *groups, f"{found['overall_before']:.1f}, {found['overall'][method]:.1f}")


def dissimilarity_rows() -> Iterator[str]:
    own = (
        ("FedAvg+ASD trained with uniform weights, uniform weights", UNIFORM),
        ("FedNTD trained with lambda = 20, uniform weights", FEDNTD_20),
    )
    for label, run in (*analysed(), *own):
        found = analysis(run, "dissimilarity")
        kinds = {"adaptive": "normalised", "uniform": "uniform"} if found["uniform"] else {"uniform": "normalised"}
        for weights, key in kinds.items():
            name = label if (label, run) in own else f"{label}, {weights} weights"
            yield row(name, *(f"{value:.1f}" for value in found[key]["values"]))


def hessian_rows() -> Iterator[str]:
    for label, run in (*analysed(), ("FedAvg+ASD, uniform weights", UNIFORM), ("FedNTD, lambda = 20", FEDNTD_20)):
        found = analysis(run, "hessian")
        spectrum = found["spectrum"]
        trace = f"{spectrum['trace']:,.0f} ± {spectrum['trace_error']:.0f}"
        yield row(label, f"{spectrum['top'][0]:.1f}", trace, f"{spectrum['smallest']:.2f}", f"{found['loss']:.2f}")


def drift_rows() -> Iterator[str]:
    for label, key in (("step of the global model", "drift"), ("distance of clients from it", "client_distance")):
        yield row(label, *(f"{fmean(r[key] for r in rounds_of(run)[-100:]):.3f}" for _, run in analysed()))


@pytest.mark.parametrize(
    "rows",
    [
        uniform_rows,
        uniform_analysis_rows,
        breakdown_rows,
        weight_rows,
        last_ten_rows,
        cache_rows,
        precision_rows,
        fedspeed_rows,
        forgetting_rows,
        dissimilarity_rows,
        hessian_rows,
        drift_rows,
    ],
    ids=lambda rows: rows.__name__.removesuffix("_rows"),
)
def test_tables_of_the_page(rows: Callable[[], Iterable[str]]) -> None:
    said = (DOCS / "results.md").read_text().splitlines()
    assert [line for line in rows() if line not in said] == []


def test_sentences_about_the_weights() -> None:
    said = " ".join((DOCS / "results.md").read_text().split())
    lead = [a - u for a, u in zip(curve(FEDAVG_ASD, "all"), curve(UNIFORM, "all"), strict=True)]
    first = next(k for k in range(len(lead)) if min(lead[k:]) > 0)
    assert f"ahead from round {20 * (first + 1)} on, and up to {-min(lead[:first]):.1f} points behind before" in said
    paper = [presets.expected("table3_uniform_vs_adaptive", [f"asd.weighting={w}"]) for w in ("uniform", "adaptive")]
    assert (
        "{:.2f} with uniform weights, {:.2f} with adaptive".format(*(number.mean for number in paper if number)) in said
    )
    between = curve(FEDDYN, "all")[-1] - curve(FEDDYN, "sel")[-1]
    assert f"({between:.1f}) lies between `sel` and `all`" in said


def test_sentences_about_half_precision() -> None:
    said = " ".join((DOCS / "results.md").read_text().split())
    apart = [half - whole for half, whole in zip(curve(BF16, "all"), curve(FEDAVG_ASD, "all"), strict=True)]
    largest, behind = max(range(len(apart)), key=lambda k: abs(apart[k])), sum(change < 0 for change in apart)
    size, mean = fmean(map(abs, apart)), fmean(apart)
    ends = [curve(BF16, model)[-1] - curve(FEDAVG_ASD, model)[-1] for model in ("all", "sel")]
    spikes, fewer = ([r["round"] for r in rounds_of(run) if r["loss"] > SPIKE] for run in (BF16, FEDAVG_ASD))
    before, fallen, after = curve(BF16, "sel")[18:21]
    for sentence in (
        f"Over all {len(apart)} evaluations `all` differs by {size:.2f} points, {mean:+.2f} with its sign, and by at "
        f"most {abs(apart[largest]):.2f} (round {20 * (largest + 1)}); in {behind} of them bfloat16 is behind",
        f"it is {-ends[0]:.2f} behind on `all` and {ends[1]:.2f} ahead on `sel`",
        f"{len(spikes)} rounds above {SPIKE:.0f} in place of {len(fewer)}, eight of them in a row (394 to 401)",
        f"took `sel` from {before:.2f} to {fallen:.2f} at round 400; at round 420 it was back at {after:.2f}",
    ):
        assert sentence in said
    assert [r for r in spikes if 390 <= r <= 405] == list(range(394, 402))


def test_sentence_about_the_edge_of_stability() -> None:
    said = " ".join((DOCS / "results.md").read_text().split())
    optimizer = presets.load("table2_cifar100").optimizer
    there = 2 / (optimizer.lr * optimizer.lr_decay_per_round**499)
    assert (
        f"{2 / rounds_of(FEDAVG)[-1]['lr']:.0f} at round 1000 here, above all of them, and {there:.0f} at round 500"
        in said
    )
    assert all(analysis(run, "hessian")["spectrum"]["top"][0] < 2 / rounds_of(run)[-1]["lr"] for _, run in analysed())
