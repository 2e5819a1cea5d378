"""The report as one HTML page without anything from the network."""

from __future__ import annotations

from typing import Any

from fedasd_fast.common.html import Html, details, element, joined, note, section, table
from fedasd_fast.report.page_style import PAGE_CSS

Report = dict[str, Any]


def page(report: Report) -> str:
    title = f"fedasd_fast on {report['machine']['gpu']}"
    parts = [element("h1", title), rehearsal(report), machine(report), outcomes(report), loss(report)]
    parts += [divergences(report), simulator(report), logs(report)]
    body = element("body", element("main", joined([part for part in parts if part])))
    meta = Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">')
    head = element("head", meta, element("title", title), element("style", Html(PAGE_CSS)))
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def rehearsal(report: Report) -> Html | str:
    if not report["rehearsal"]:
        return ""
    return note("A rehearsal without a GPU: it shows that the steps run. No number on this page is of a GPU.")


def machine(report: Report) -> Html:
    build = {f"build: {key}": value for key, value in report["machine"]["build"].items()}
    lines = {key: value for key, value in report["machine"].items() if key != "build"} | build
    items = [element("li", element("b", key.replace("_", " ")), f": {value}") for key, value in lines.items()]
    return section(2, "Machine and build", element("ul", *items))


def outcomes(report: Report) -> Html:
    rows = []
    for step in report["steps"]:
        tests = step.get("tests")
        counted = ", ".join(f"{number} {what}" for what, number in tests.items()) if tests else ""
        said = "; ".join(filter(None, (counted, step.get("reason", ""))))
        rows.append((step["name"], step["status"], f"{step['seconds']:.0f} s" if "seconds" in step else "", said))
    skips = sorted({why for step in report["steps"] for why in step.get("skips", ())})
    listed = details("Why tests were skipped", element("ul", *(element("li", why) for why in skips))) if skips else ""
    return section(2, "Steps", table(("step", "status", "time", ""), rows, "Steps"), listed)


def loss(report: Report) -> Html | str:
    if not report["loss"]:
        return ""
    rows = [
        (
            row["shape"].replace("x", " x "), "cached" if "cached" in row["implementation"] else "raw",
            microseconds(row["measured"]), " - ".join(map(microseconds, row["predicted"])), row["verdict"],
            row["bound"], f"{100 * row['bandwidth']:.0f} %",
        )
        for row in report["loss"]["beside_predictions"]
    ]  # fmt: skip
    head = ("shape", "teacher", "measured, us", "predicted, us", "", "bound by (predicted)", "of peak bandwidth")
    every = [details(shape.replace("x", " x "), implementations(report, shape)) for shape in shapes(report)]
    return section(2, "Loss and gradient", table(head, rows, "Measured beside predicted"), joined(every))


def shapes(report: Report) -> list[str]:
    return list(dict.fromkeys(row["shape"] for row in report["loss"]["rows"]))


def implementations(report: Report, shape: str) -> Html:
    rows = [row for row in report["loss"]["rows"] if row["shape"] == shape]
    base = next((row["median"] for row in rows if row["implementation"] == "eager_minimal"), None)
    cells = [
        (
            row["implementation"], microseconds(row["median"]), microseconds(row["p20"]), microseconds(row["p80"]),
            f"{base / row['median']:.2f}" if base else "", f"{100 * row['bandwidth']:.0f} %", row["launches"] or "",
        )
        for row in rows
    ]  # fmt: skip
    head = ("implementation", "median, us", "p20", "p80", "speed-up over eager_minimal", "of peak", "launches")
    return table(head, cells, f"All implementations, {shape}")


def divergences(report: Report) -> Html | str:
    rows = report["loss"] and report["loss"].get("divergences")
    if not rows:
        return ""
    cells = [
        (
            row["shape"].replace("x", " x "),
            row["implementation"],
            microseconds(row["median"]),
            f"{row['grad_error']:.0e}",
        )
        for row in rows
    ]
    caption = "The divergence alone, uniform weights: what Liger-Kernel computes too"
    return section(
        2, caption, table(("shape", "implementation", "median, us", "error of the gradient"), cells, caption)
    )


def simulator(report: Report) -> Html | str:
    if not report["simulator"]:
        return ""
    rows = [
        (row["workload"], row["way"], f"{1e3 * row['best']:.2f}", f"{1e3 * row['median']:.2f}",
         f"{row['updates_per_second']:,.0f}", row["trained"])
        if "best" in row else (row["workload"], row["way"], "not run", "", "", row["problem"])
        for row in report["simulator"]["rows"]
    ]  # fmt: skip
    head = ("workload", "way", "best ms a round", "median", "client updates a second", "")
    return section(2, "Simulator", table(head, rows, "Simulator"))


def logs(report: Report) -> Html:
    boxes = [
        details(f"{step['name']}: {step['log']}", element("pre", "\n".join(step["last_lines"])))
        for step in report["steps"]
        if step.get("last_lines")
    ]
    return section(2, "Ends of the logs", *boxes)


def error(value: float | None) -> str:
    return "" if value is None else f"{value:.0e}"


def microseconds(seconds: float) -> str:
    value = 1e6 * seconds
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
