"""Client updates a second by model size and executor: python -m benchmarks.model_sizes [--out sizes.png]

MLPs of two equal hidden layers, otherwise the setting of benchmarks.executors; all executors take turns at a size.  The
table goes to stdout, so that a user sees where which way of training wins.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from fedasd_fast import models

from .executors import EXECUTORS, SETTING, measure

METHOD = "fedavg+asd"
WIDTHS = (8, 32, 128, 512, 1024)
# Okabe and Ito's palette, and a marker of its own for each, so that the figure survives grey printing.
STYLES = dict(zip(EXECUTORS, [("#999999", "o"), ("#E69F00", "s"), ("#56B4E9", "^"), ("#0072B2", "D"), ("#D55E00", "P"),
                              ("#009E73", "X")], strict=True))  # fmt: skip


def parameters(width: int) -> int:
    data = SETTING["synthetic"]
    shape, args = tuple(data["shape"]), {"hidden": [width, width]}
    model = models.build("mlp", args, num_classes=data["classes"], input_shape=shape)
    return sum(parameter.numel() for parameter in model.parameters())


def updates_per_second(width: int, rounds: int, repeats: int, changes: dict[str, Any]) -> dict[str, float]:
    """Of each executor, by its best round."""
    setting = SETTING | changes
    cohort = round(setting["clients"] * setting["participation"])
    seconds = measure(METHOD, rounds, repeats, changes | {"model_args": {"hidden": [width, width]}})
    return {executor: cohort / min(times) for executor, times in seconds.items()}


def table(rates: dict[int, dict[str, float]]) -> str:
    lines = ["| hidden | parameters | " + " | ".join(EXECUTORS) + " |", "|---:|" + "---:|" * (len(EXECUTORS) + 1)]
    for width, row in rates.items():
        best = max(row.values())
        cells = [f"**{rate:,.0f}**" if rate == best else f"{rate:,.0f}" for rate in row.values()]
        lines.append(f"| {width}-{width} | {parameters(width):,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rates: dict[int, dict[str, float]], path: Path) -> None:
    sizes = [parameters(width) for width in rates]
    with plt.rc_context({"font.size": 12}):
        figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
        for executor, (colour, marker) in STYLES.items():
            axes.plot(sizes, [row[executor] for row in rates.values()], marker=marker, color=colour, label=executor)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("parameters of the model")
        axes.set_ylabel("client updates a second")
        axes.grid(color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.savefig(path, dpi=130)
        plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--clients", type=int, default=SETTING["clients"])
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks-sizes.png"))
    options = parser.parse_args(arguments)
    changes = {"clients": options.clients}
    rates = {width: updates_per_second(width, options.rounds, options.repeats, changes) for width in options.widths}
    print(table(rates))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(rates, options.out)


if __name__ == "__main__":
    main()
