"""Tables and figure from the results of benchmarks.loss: python -m benchmarks.report [FOLDER] [--docs FOLDER]."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .figure import draw
from .results import DISTURBED_CORES, Results, Row, comparable, disturbed, load

BEGIN, END = "<!-- loss:begin -->", "<!-- loss:end -->"

DESCRIPTIONS = {
    "eager": "`fedasd_fast.reference`, forward and backward through autograd",
    "eager_minimal": "eight lines of PyTorch written by hand, without options or checks, forward and backward",
    "compiled": "`torch.compile` of the reference, forward and backward",
    "fused_autograd": "`asd_objective(...).backward()`",
    "loss_and_grad": "`asd_loss_and_grad(...)`, raw teacher logits",
    "loss_and_grad_cached": "`asd_loss_and_grad(...)` with `cache[rows]`; making the cache, once a round, not counted",
    "copy": "`copy_` of three B x C float32 arrays, for scale: it reads three and writes three, "
    "the loss has to read two and write one",
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/benchmarks"), help="folder of the results")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of benchmarks.md and the figure")
    options = parser.parse_args(arguments)
    results = load(options.folder / "loss.csv")
    environment = json.loads((options.folder / "loss.json").read_text())
    options.docs.mkdir(parents=True, exist_ok=True)
    draw(results, options.docs / "benchmarks-loss")
    _replace_section(options.docs / "benchmarks.md", _section(results, environment))
    print(f"wrote {options.docs / 'benchmarks.md'}, {options.docs / 'benchmarks-loss.png'} and .svg")


def _replace_section(path: Path, section: str) -> None:
    """Writes the text between the marks; text around them is kept."""
    text = path.read_text() if path.exists() else "# Benchmarks\n"
    block = f"{BEGIN}\n{section}\n{END}"
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    text = pattern.sub(lambda _: block, text) if pattern.search(text) else f"{text.rstrip()}\n\n{block}\n"
    path.write_text(text)


def _section(results: Results, environment: dict[str, Any]) -> str:
    threads = _unique(t for _, t, _ in results)
    parts = [_introduction(results, environment)]
    for title, base in (("the minimal eager code", "eager_minimal"), ("the reference", "eager")):
        parts.append(f"### Speed-up over {title} (`{base}`)\n\nRatio of medians; higher is better.")
        parts += _tables(results, threads, _ratio(results, base, inverse=False), leave_out=(base, "copy"))
    parts.append("### Times\n\nMedian of a call, in microseconds.")
    parts += _tables(results, threads, _time)
    parts.append("### Ratio to the copy\n\nMedian over the median of `copy`; lower is better.")
    parts += _tables(results, threads, _ratio(results, "copy", inverse=True), leave_out=("copy",))
    parts.append(
        "### Error\n\nLargest distance to the reference in float64, of the loss / of the gradient, "
        "relative to the largest true value."
    )
    parts += _tables(results, threads[-1:], _errors, leave_out=("copy",), timed=False)
    parts.append(
        "### Memory\n\nRise of the peak resident memory during one call, as a multiple of the gradient's own "
        "B x C x 4 bytes; 1 is the gradient alone."
    )
    measured = {key: row for key, row in results.items() if row["extra_memory"]}
    parts += _tables(measured, threads[-1:], _memory, leave_out=("copy",), timed=False)
    parts.append(_all_times(results))
    return "\n\n".join(parts)


def _introduction(results: Results, environment: dict[str, Any]) -> str:
    machine, versions, settings = (environment[key] for key in ("machine", "versions", "settings"))
    build = versions["build_info"]
    lines = [
        "## Loss and gradient",
        "![Speed-up over minimal eager code](benchmarks-loss.png)",
        "Made by `make bench` (which runs `python -m benchmarks.loss` and `python -m benchmarks.report`) on "
        f"{environment['date']}: {machine['cpu']}, {machine['cores']} cores, {machine['os']}; Python "
        f"{versions['python']}, torch {versions['torch']}, {versions['compiler']}, fedasd_fast "
        f"{versions['fedasd_fast']} ({build.get('cpu_capability')} kernels).",
        "One batch [B, C], or K clients at once [K, B, C]; cross-entropy plus "
        f"{settings['asd_weight']:g} ASD at temperature {settings['temperature']:g}, {settings['dtype']}, loss and "
        "gradient. All implementations of a shape take turns in random order, so that noise hits all alike, for "
        f"{settings['seconds']:g} seconds and at least {settings['rounds']} rounds. Fast ones are called several times "
        "a turn, and each turn begins with a call that is not timed, so inputs are as warm as the caches allow. "
        "Compilation is not counted.",
        "\n".join(f"- `{name}`: {text}" for name, text in DESCRIPTIONS.items()),
    ]
    if settings["quick"]:
        lines.append("**A quick run: too short for conclusions.**")
    if settings.get("omp_wait_policy"):
        lines.append(f"OMP_WAIT_POLICY was {settings['omp_wait_policy']}.")
    if any(disturbed(row) for row in results.values()):
        lines.append(
            f"\\* Other processes took more than {DISTURBED_CORES:g} cores while this shape was measured; "
            "with several threads such times mean little, and no ratio is given."
        )
    if environment["skipped"]:
        lines.append("Left out:\n" + "\n".join(f"- {what}: {why}" for what, why in environment["skipped"].items()))
    return "\n\n".join(lines)


def _tables(
    results: Results,
    threads: list[int],
    cell: Callable[[Row], str],
    leave_out: tuple[str, ...] = (),
    timed: bool = True,
) -> list[str]:
    """A table for each number of threads: shapes down, implementations across."""
    names = [name for name in _unique(name for *_, name in results) if name not in leave_out]
    tables = []
    for number in threads:
        head = f"{number} thread" + ("s" if number > 1 else "")
        lines = [f"| {head} | " + " | ".join(f"`{name}`" for name in names) + " |", "|---|" + "---:|" * len(names)]
        for shape in _unique(shape for shape, *_ in results):
            rows = [results.get((shape, number, name)) for name in names]
            mark = r" \*" if timed and any(row and disturbed(row) for row in rows) else ""
            cells = [cell(row) if row and row["median"] else "-" for row in rows]
            lines.append(f"| {_title(shape)}{mark} | " + " | ".join(cells) + " |")
        tables.append("\n".join(lines))
    return tables


def _all_times(results: Results) -> str:
    lines = [
        "<details><summary>All times: best, 20th percentile, median, 80th percentile (microseconds)</summary>",
        "",
        "| shape | threads | implementation | best | p20 | median | p80 | rounds |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for (shape, threads, name), row in results.items():
        if row["median"]:
            times = " | ".join(_microseconds(row[key]) for key in ("best", "p20", "median", "p80"))
            lines.append(f"| {_title(shape)} | {threads} | `{name}` | {times} | {row['rounds']} |")
    return "\n".join([*lines, "", "</details>"])


def _ratio(results: Results, base: str, *, inverse: bool) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        if not comparable(row):
            return "-"
        other = float(results[row["shape"], int(row["threads"]), base]["median"])
        ratio = float(row["median"]) / other if inverse else other / float(row["median"])
        return f"{ratio:.3g}" if ratio < 100 else f"{ratio:.0f}"

    return cell


def _time(row: Row) -> str:
    return _microseconds(row["median"])


def _microseconds(seconds: str) -> str:
    value = 1e6 * float(seconds)
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _memory(row: Row) -> str:
    return f"{float(row['extra_memory']):.2f}" if row["extra_memory"] else "-"


def _errors(row: Row) -> str:
    return f"{float(row['loss_error']):.0e} / {float(row['grad_error']):.0e}"


def _title(shape: str) -> str:
    return shape.replace("x", " x ")


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


if __name__ == "__main__":
    main()
