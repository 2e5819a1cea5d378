"""One HTML file about runs that needs nothing beside it: no network, no script; its figures are also left as files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..common.html import Html, element, joined, section, table
from ..common.schema import ConfigError
from ..simulation.storage.recorded_run import Run
from ..simulation.system.versions import versions
from .experiment import Broken, Experiment, experiments, find
from .figure_writer import Album
from .page_sections import Sections
from .page_style import CSS
from .results_tables import rounds_text


@dataclass(frozen=True)
class Page:
    """What was written."""

    path: Path
    figures: Path
    names: Sequence[str]  # of the figures, without .png and .svg
    runs: Sequence[Run]
    broken: Sequence[Broken]


def write(
    folders: Iterable[str | Path],
    out: str | Path,
    *,
    title: str | None = None,
    data_dir: str | None = None,
    first: Html | None = None,
) -> Page:
    """A page about the runs in these folders, at any depth, after what comes `first`.  What cannot be read is named in
    it."""
    runs, broken = find(folders)
    if not runs:
        raise ConfigError("nothing to report; " + "; ".join(map(str, broken)))
    out = Path(out)
    album = Album(out.parent / ("figures" if out.stem == "report" else f"{out.stem}-figures"))
    groups = experiments(runs)
    text = document(groups, broken, album, title or _title(groups), data_dir, first)
    out.parent.mkdir(parents=True, exist_ok=True)
    half = out.with_name(f".{out.name}.part")  # a page that is looked at is never half a page
    half.write_text(text, encoding="utf-8")
    os.replace(half, out)
    return Page(out, album.folder, album.names, runs, broken)


def document(
    groups: Sequence[Experiment],
    broken: Sequence[Broken],
    album: Album,
    title: str,
    data_dir: str | None = None,
    first: Html | None = None,
) -> str:
    anchors = [f"e{number}" for number in range(1, len(groups) + 1)]
    bodies = [
        section(2, group.title, *Sections(group, album, _prefix(group, groups), data_dir).all(), id_=anchor)
        for group, anchor in zip(groups, anchors, strict=True)
    ]
    links = [
        element("li", element("a", group.title, href=f"#{anchor}"))
        for group, anchor in zip(groups, anchors, strict=True)
    ]
    header = element(
        "header",
        element("h1", title),
        element("p", summary(groups)),
        element("nav", element("ul", joined(links)), aria_label="Experiments") if len(groups) > 1 else "",
        _broken(broken) if broken else "",
    )
    head = element(
        "head",
        Html('<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        Html('<meta name="color-scheme" content="light dark">\n'),
        element("title", title),
        element("style", Html(CSS)),
    )
    body = element(
        "body",
        header,
        "\n",
        element("main", joined([*([first] if first else []), *bodies])),
        "\n",
        element("footer", made_with()),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def summary(groups: Sequence[Experiment]) -> str:
    runs = [run for group in groups for run in group.runs]
    several = len(groups) > 1
    rounds, updates = sum(run.rounds for run in runs), sum(run.total("client_updates") for run in runs)
    unfinished = [run for run in runs if not run.finished]
    text = f"{len(runs)} run{'s' * (len(runs) != 1)}, {rounds:,} rounds, {updates:,.0f} client updates, "
    text += f"{_duration(sum(run.seconds for run in runs))} of computing."
    if unfinished:
        text += f" {len(unfinished)} of the runs {'is' if len(unfinished) == 1 else 'are'} not finished: "
        named = [
            f"{run.config.name} " * several + f"{run.label} seed {run.config.seed} ({rounds_text([run])})"
            for run in unfinished[:6]
        ]
        text += ", ".join(named) + (", ..." if len(unfinished) > 6 else "") + "."
    return text


def made_with() -> Html:
    rows = list(versions().items())
    return section(2, "Versions", table(["", "version"], rows, "Of the installation that made this page"))


def _broken(broken: Sequence[Broken]) -> Html:
    listed = element("ul", *(element("li", problem) for problem in broken))
    return element("div", element("p", "Not shown, because it cannot be read:"), listed, class_="note", role="note")


def _title(groups: Sequence[Experiment]) -> str:
    return "Report: " + ", ".join(dict.fromkeys(group.runs[0].config.name for group in groups))


def _prefix(group: Experiment, groups: Sequence[Experiment]) -> str:
    return "" if len(groups) == 1 else re.sub(r"[^\w.+]+", "-", group.title).strip("-") + "-"


def _duration(seconds: float) -> str:
    for size, name in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} seconds"
