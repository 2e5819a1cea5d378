"""Figures of forgetting, drift, cost and the adaptive weights.

They take results, or what is in RUN/analysis/NAME.json.  Forgetting and weights are drawn for one run; drift and cost
for several, named by the keys of a mapping, or by the "label" that each of a list has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ...common.formatting import MODELS, pretty
from ...common.plotting import GREY, colour, new_figure
from ...common.schema import ConfigError
from ..label_groups import GROUPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Analysis(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


Found: TypeAlias = Analysis | Mapping[str, Any]  # a result, or its JSON
Runs: TypeAlias = Mapping[str, Found] | Sequence[Mapping[str, Any]]
_MARKERS = "os^Dv<>"  # so that colour is not the only difference
_DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
_GROUP_NAMES = {"much": "has much of", "little": "has little of", "none": "has none of"}


def forgetting_figure(
    found: Found | Sequence[Found], *, title: str = "What one round of local training changes"
) -> Figure:
    """Left: mean change on the labels that a client has much, little and none of.  Right: every client and class."""
    f = _one(found)
    methods = list(f["after"])
    figure = new_figure(10.5, 5.0)
    _head(
        figure, title,
        f"test accuracy of each class, {len(f['clients'])} clients, after {f['round']} rounds of the run; "
        f"{f['overall_before']:.1f} % before",
        "Left: mean over clients and classes, with the standard error over clients; much or little: above or below the "
        "client's own even share.\nRight: a dot is a class of a client; the line is the mean of equally many dots. "
        "Look for: dots far below 0 where the share is 0.",
    )  # fmt: skip
    axes = figure.add_axes((0.07, 0.2, 0.36, 0.6))
    for i, method in enumerate(methods):
        at = [j + 0.16 * (i - (len(methods) - 1) / 2) for j in range(len(GROUPS))]
        groups = [f["groups"][method][group] for group in GROUPS]
        kept = [(x, g["mean"], g["error"] or 0.0) for x, g in zip(at, groups, strict=True) if g["mean"] is not None]
        x, mean, error = zip(*kept, strict=True) if kept else ((), (), ())
        axes.errorbar(
            x, mean, yerr=error, fmt=_MARKERS[i % len(_MARKERS)], color=colour(i), markersize=6, capsize=2,
            linewidth=1, label=f"{pretty(method)}  {f['overall'][method]:.1f} %",
        )  # fmt: skip
    axes.axhline(0, color=GREY, linewidth=0.8)
    pairs = [f["groups"][methods[0]][group]["pairs"] for group in GROUPS]
    axes.set_xticks(
        range(len(GROUPS)), [f"{_GROUP_NAMES[g]}\n({n:,} pairs)" for g, n in zip(GROUPS, pairs, strict=True)]
    )
    axes.set_xlim(-0.5, len(GROUPS) - 0.5)
    axes.set_xlabel("labels that the client ...")
    axes.set_ylabel("change of accuracy (points)")
    axes.legend(frameon=False, fontsize=8, title="accuracy after", title_fontsize=8)
    _tidy(axes)
    _scatters(figure, f, methods)
    return figure


def drift_figure(runs: Runs, *, title: str = "How far a round moves the models") -> Figure:
    """Left: the global model from round to round.  Right: the clients' models from the global one.  By label."""
    drifts = _labelled(runs)
    figure = new_figure(10.5, 4.6)
    windows = sorted({d["window"] for _, d in drifts})
    _head(
        figure, title, "Euclidean norm of the change of all parameters",
        f"Thin: each round; thick: mean of the last {' or '.join(map(str, windows))} rounds. The learning rate falls "
        "from round to round, and takes all curves down with it.\nLook for: whether a curve with ASD stays below the "
        "one without, and how much smaller the global model's steps are than the clients': the rest cancels out.",
    )  # fmt: skip
    for place, (key, name) in enumerate(
        (("drift", "global model: ||w(t) - w(t-1)||"), ("client_distance", "clients: mean of ||w_k - w(t-1)||"))
    ):
        axes = figure.add_axes((0.07 + 0.48 * place, 0.22, 0.42, 0.58))
        for i, (label, d) in enumerate(drifts):
            axes.plot(d["rounds"], d[key], color=colour(i), linewidth=0.6, alpha=0.3)
            axes.plot(
                d["rounds"], d[f"{key}_smoothed"], color=colour(i), linewidth=1.9, linestyle=_dash(i), label=label
            )
        axes.set_xlabel("round")
        axes.set_title(name, fontsize=9.5, loc="left")
        axes.set_ylim(bottom=0)
        if place == 0:
            axes.legend(frameon=False, fontsize=8, handlelength=3.2)
        _tidy(axes)
    return figure


def cost_figure(runs: Runs, *, model: str | None = None, title: str = "Accuracy for its cost") -> Figure:
    """Left: against forward passes.  Right: against seconds of training.  By label.  Model None: all, or the first that
    the first run evaluated."""
    costs = _labelled(runs)
    model = model or ("all" if all("all" in c["accuracy"] for _, c in costs) else next(iter(costs[0][1]["accuracy"])))
    for label, c in costs:
        if model not in c["accuracy"]:
            raise ConfigError(f"{label} did not evaluate the model {model}; choose one of {', '.join(c['accuracy'])}")
    budget = min(c["units"][-1] for _, c in costs)
    figure = new_figure(10.5, 4.6)
    recomputed = any(c["teacher"] == "recompute" for _, c in costs)
    _head(
        figure, title, f"evaluated: {MODELS[model]}",
        "Unit: a forward pass over all samples of a client; backward passes are left out. Seconds "
        "are those of the machine that ran it."
        + "\n"
        + ("Dotted: had the teacher been cached, the paper's count. " if recomputed else "")
        + "Look for: which curve is higher at the same cost; the thin line is the most that all runs have spent.",
    )  # fmt: skip
    for place, (key, name) in enumerate(
        (("units", "forward passes of a participant, summed over rounds"), ("seconds", "seconds of training"))
    ):
        axes = figure.add_axes((0.07 + 0.48 * place, 0.22, 0.42, 0.6))
        for i, (label, c) in enumerate(costs):
            values = [math.nan if v is None else v for v in c["accuracy"][model]]
            few = "o" if len(values) < 3 else None
            per_round = c["units"][-1] / c["rounds"][-1]
            text = f"{label}, {per_round:.3g} a round"
            axes.plot(c[key], values, color=colour(i), linewidth=1.9, linestyle=_dash(i), marker=few, label=text)
            if key == "units" and c["units_cached"] != c["units"]:
                axes.plot(c["units_cached"], values, color=colour(i), linewidth=1.2, linestyle=":")
        axes.set_xlabel(name)
        axes.set_xlim(left=0)
        axes.set_ylabel("test accuracy (%)")
        if place == 0:
            axes.axvline(budget, color=GREY, linewidth=0.8)
            axes.legend(edgecolor="none", framealpha=1, fontsize=8, loc="lower right", handlelength=3.2)
        _tidy(axes)
    return figure


def weights_figure(found: Found | Sequence[Found], *, title: str = "What ASD's weights look like") -> Figure:
    """Histograms of alpha, over batches and over clients, and of the teacher's entropy; where the weight goes."""
    w = _one(found)
    figure = new_figure(10.5, 4.6)
    _head(
        figure, title,
        f"{len(w['clients'])} clients, global model after {w['round']} rounds"
        + ("" if w["applied"] else "; this run does not train with these weights: it shows what ASD would do"),
        f"On average {w['effective_share']:.0%} of a batch counts (effective number of samples). Labels that a client "
        f"has little of: {w['rare_samples']:.0%} of its samples, {w['rare_weight']:.0%} of the weight.\n"
        "Look for: a wide first histogram (a few samples rule the batch), and dots far above the line (weight goes to "
        "rare labels).",
    )  # fmt: skip
    first = figure.add_axes((0.07, 0.24, 0.25, 0.56))
    ends: list[float] = [1.0]
    for i, (key, name) in enumerate((("in_batch", "in a batch"), ("in_client", "in a client"))):
        edges, counts = w[key]["edges"], np.array(w[key]["counts"])
        used = np.nonzero(counts)[0]
        ends += [edges[j] for j in used] + [edges[j + 1] for j in used]
        shares = counts / max(1, counts.sum())
        first.stairs(shares, edges, color=colour(i), linewidth=1.6, label=name)
        first.stairs(shares, edges, color=colour(i), fill=True, alpha=0.2)
    first.set_xscale("log", base=2)
    first.set_xlim(min(ends), max(ends))
    first.xaxis.set_major_formatter(lambda x, _: f"{x:g}" if x >= 1 else f"1/{1 / x:g}")
    first.axvline(1, color=GREY, linewidth=0.9, linestyle=":")
    first.set_xlabel("alpha / uniform weight (dotted)")
    first.set_ylabel("share of samples")
    first.legend(frameon=False, fontsize=8)
    second = figure.add_axes((0.40, 0.24, 0.25, 0.56))
    counts = np.array(w["entropy"]["counts"])
    second.stairs(counts / max(1, counts.sum()), w["entropy"]["edges"], color=colour(2), fill=True, alpha=0.7)
    second.set_xlabel("teacher's entropy (nats; up to log C)")
    second.set_xlim(0, w["entropy"]["edges"][-1])
    third = figure.add_axes((0.73, 0.24, 0.25, 0.56))
    third.plot((0, 1), (0, 1), color=GREY, linewidth=0.9, linestyle=":")
    x, y = ([own[key] for own in w["clients"]] for key in ("rare_samples", "rare_weight"))
    third.scatter(x, y, color=colour(1), s=22)
    third.set(xlim=(0, 1), ylim=(0, 1), xlabel="rare labels: share of samples", ylabel="share of weight")
    for axes in (first, second, third):
        _tidy(axes)
    return figure


def _scatters(figure: Figure, f: Mapping[str, Any], methods: Sequence[str]) -> None:
    """A panel a method, with the same axes: the change of each class of each client against its share."""
    columns = 1 if len(methods) == 1 else 2
    rows = -(-len(methods) // columns)
    width, height = 0.47 / columns, 0.6 / rows
    before = np.array([math.nan if v is None else v for v in f["before"]])
    share = np.array(f["shares"])
    after = {m: np.array([[math.nan if v is None else v for v in row] for row in f["after"][m]]) for m in methods}
    changes = {m: after[m] - before for m in methods}
    every = np.array([*changes.values()])
    low, high = min(0.0, float(np.nanmin(every))) - 1, max(0.0, float(np.nanmax(every))) + 1
    for i, method in enumerate(methods):
        row, column = divmod(i, columns)
        axes = figure.add_axes((0.51 + column * width, 0.2 + (rows - 1 - row) * height, 0.9 * width, 0.84 * height))
        tested = ~np.isnan(changes[method])
        x, y = share[tested], changes[method][tested]
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.scatter(100 * x, y, s=8, color=colour(i), alpha=0.35, linewidths=0)
        line = _means(x, y)
        axes.plot(100 * line[0], line[1], color="#222222", linewidth=1.4, marker=".", markersize=4)
        axes.set_ylim(low, high)
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(-0.12, 115)
        ticks = (0, 1, 10, 100)
        axes.set_xticks(ticks, [f"{tick} %" for tick in ticks] if row == rows - 1 else [""] * len(ticks))
        axes.minorticks_off()
        if column:
            axes.set_yticklabels([])
        if row == rows - 1:
            axes.set_xlabel("share of the client's samples", fontsize=8.5)
        axes.set_title(pretty(method), fontsize=9, loc="left", pad=3)
        _tidy(axes, size=8)


def _means(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], parts: int = 6) -> np.ndarray[Any, Any]:
    """[2, n] mean of x and y: of the classes that a client has none of, and of equally many others at a time."""
    order = np.argsort(x, kind="stable")
    none = int((x == 0).sum())
    pieces = [order[:none], *np.array_split(order[none:], parts)]
    return np.array([[v[piece].mean() for piece in pieces if len(piece)] for v in (x, y)])


def _plain(found: Found) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else found.to_dict()


def _one(found: Found | Sequence[Found]) -> Mapping[str, Any]:
    if not isinstance(found, Sequence):
        return _plain(found)
    if len(found) != 1:
        raise ConfigError(f"{len(found)} results for a figure of one run; draw each of them by itself")
    return _plain(found[0])


def _labelled(runs: Runs) -> list[tuple[str, Mapping[str, Any]]]:
    if not runs:
        raise ConfigError("no run to draw; give at least one, by its label")
    if isinstance(runs, Mapping):
        return [(label, _plain(found)) for label, found in runs.items()]
    return [(str(found.get("label", "run")), found) for found in runs]


def _dash(i: int) -> Any:
    return _DASHES[i % len(_DASHES)]


def _head(figure: Figure, title: str, subtitle: str, caption: str) -> None:
    figure.text(0.07, 0.935, title, fontsize=13, weight="bold")
    figure.text(0.07, 0.885, subtitle, fontsize=9, color=GREY)
    figure.text(0.07, 0.02, caption, fontsize=8, color=GREY, linespacing=1.4)


def _tidy(axes: Axes, size: float = 8.5) -> None:
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=size)
    axes.spines[["top", "right"]].set_visible(False)
