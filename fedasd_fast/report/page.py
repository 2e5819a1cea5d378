"""The report page: one HTML file about runs, without scripts or network access; its figures are also saved as files."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..common.durations import format_duration
from ..common.files import write_atomically
from ..common.formatting import plural
from ..common.html import Html, element, joined, note, section, table
from ..common.jsonl import BadLine
from ..common.schema import ConfigError
from ..simulation.storage.recorded_run import RecordedRun
from ..simulation.system.versions import versions
from .figure_writer import FigureWriter
from .page_sections import ExperimentSections
from .page_style import PAGE_CSS
from .results_tables import rounds_text
from .run_discovery import UnreadableFolder, find_runs, without_repeats
from .run_group import RunGroup, group_runs


@dataclass(frozen=True)
class ReportPage:
    """What was written."""

    path: Path
    figures: Path  # their folder
    names: Sequence[str]  # of the figures, without .png and .svg
    runs: Sequence[RecordedRun]
    unreadable: Sequence[UnreadableFolder]
    repeated: Sequence[str] = ()  # messages about runs that are there twice

    @property
    def bad_lines(self) -> list[BadLine]:
        return [line for run in self.runs for line in run.bad_lines]


def write_report(
    folders: Iterable[str | Path],
    out: str | Path,
    *,
    title: str | None = None,
    data_dir: str | None = None,
    introduction: Html | None = None,
    refresh: int | None = None,
) -> ReportPage:
    """A page about the runs in these folders, at any depth.  It names what cannot be read.

    With `refresh` a browser that shows it loads it again after so many seconds, as long as a run is not finished.
    """
    found, unreadable = find_runs(folders)
    runs, repeated = without_repeats(found)
    if not runs:
        raise ConfigError("nothing to report; " + "; ".join(map(str, unreadable)))
    out = Path(out)
    writer = FigureWriter(out.parent / ("figures" if out.stem == "report" else f"{out.stem}-figures"))
    groups = group_runs(runs)
    text = document(groups, unreadable, writer, title or _default_title(groups), data_dir, introduction, repeated)
    if refresh is not None and not all(run.finished for run in runs):
        text = _reloading(text, refresh)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode())
    return ReportPage(out, writer.folder, writer.names, runs, unreadable, repeated)


def document(
    groups: Sequence[RunGroup],
    unreadable: Sequence[UnreadableFolder],
    writer: FigureWriter,
    title: str,
    data_dir: str | None = None,
    introduction: Html | None = None,
    repeated: Sequence[str] = (),
) -> str:
    anchors = [f"e{number}" for number in range(1, len(groups) + 1)]
    bodies = [
        section(2, group.title, *ExperimentSections(group, writer, _prefix(group, groups), data_dir).all(), id_=anchor)
        for group, anchor in zip(groups, anchors, strict=True)
    ]
    links = [
        element("li", element("a", group.title, href=f"#{anchor}"))
        for group, anchor in zip(groups, anchors, strict=True)
    ]
    bad_lines = [line for group in groups for run in group.runs for line in run.bad_lines]
    header = element(
        "header",
        element("h1", title),
        element("p", summary(groups)),
        element("nav", element("ul", joined(links)), aria_label="Experiments") if len(groups) > 1 else "",
        _listed("Not shown, because it cannot be read:", unreadable),
        _listed("There more than once:", repeated),
        _listed("Damaged lines; the rest of these runs is shown:", bad_lines),
    )
    head = element(
        "head",
        Html('<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        Html('<meta name="color-scheme" content="light dark">\n'),
        element("title", title),
        element("style", Html(PAGE_CSS)),
    )
    body = element(
        "body",
        header,
        "\n",
        element("main", joined([*([introduction] if introduction else []), *bodies])),
        "\n",
        element("footer", versions_section()),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def summary(groups: Sequence[RunGroup]) -> str:
    runs = [run for group in groups for run in group.runs]
    several = len(groups) > 1
    rounds, updates = sum(run.rounds for run in runs), sum(run.total("client_updates") for run in runs)
    unfinished = [run for run in runs if not run.finished]
    text = f"{plural(len(runs), 'run')}, {rounds:,} rounds, {updates:,.0f} client updates, "
    text += f"{format_duration(sum(run.seconds for run in runs))} of computing time."
    if unfinished:
        text += f" {len(unfinished)} of the runs {'is' if len(unfinished) == 1 else 'are'} not finished: "
        named = [
            f"{run.config.name} " * several + f"{run.label} seed {run.config.seed} ({rounds_text([run])})"
            for run in unfinished[:6]
        ]
        text += ", ".join(named) + (", ..." if len(unfinished) > 6 else "") + "."
    return text


def versions_section() -> Html:
    rows = list(versions().items())
    return section(2, "Versions", table(["", "version"], rows, "The installation that wrote this page"))


def _reloading(text: str, seconds: int) -> str:
    """The page with the time at which it was written; a browser loads it again and stays where the reader is."""
    now = time.strftime("%H:%M:%S %Z")
    live = element(
        "p", f"Written at {now}; this page loads itself again every {seconds} s until all runs are finished."
    )
    text = text.replace("<head>", f'<head><meta http-equiv="refresh" content="{seconds}">', 1)
    return text.replace("</h1>", f"</h1>{live}", 1)


def _listed(heading: str, problems: Sequence[object]) -> Html:
    if not problems:
        return Html()
    return note(element("p", heading), element("ul", *(element("li", problem) for problem in problems)))


def _default_title(groups: Sequence[RunGroup]) -> str:
    return "Report: " + ", ".join(dict.fromkeys(group.runs[0].config.name for group in groups))


def _prefix(group: RunGroup, groups: Sequence[RunGroup]) -> str:
    return "" if len(groups) == 1 else re.sub(r"[^\w.+]+", "-", group.title).strip("-") + "-"
