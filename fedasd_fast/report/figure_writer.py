"""Saves plots as files and embeds them as SVG in the report page.

Embedded line plots follow the page's colours, light or dark.  Images (heat maps), whose colours have a meaning and
assume a white background, stand on a card, which the style sheet inverts on a dark page.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.files import write_atomically
from ..common.html import Html, element, scrolling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The neutral colours of our plots (text, secondary text, grid, background) as colours of the page.
_PAGE_COLOURS = {
    "#000000": "currentColor",
    "#222222": "currentColor",
    "#666666": "var(--muted)",
    "#e4e4e4": "var(--grid)",
    "#eeeeee": "var(--grid)",
    "#ffffff": "var(--paper)",
    "#08519c": "var(--dot)",  # bubbles of the label distribution: too dark on a dark page
}


class FigureWriter:
    """Writes figures to one folder; `names` are those written so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def write(self, figure: Figure, name: str, *, caption: object, alt: str) -> Html:
        """Saves name.png and name.svg and returns a <figure> for the page."""
        name = self._unused(re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "figure")
        self.folder.mkdir(parents=True, exist_ok=True)
        drawn = svg_text(figure)
        pixels = io.BytesIO()
        figure.savefig(pixels, format="png", dpi=150, metadata={"Software": None})
        write_atomically(self.folder / f"{name}.svg", drawn.encode())
        write_atomically(self.folder / f"{name}.png", pixels.getbuffer())
        wide, card = figure.get_figwidth() > 7, _has_images(figure)
        image = embedded(drawn, f"f{len(self.names)}-", alt, themed=not card)
        class_ = "plot card" if card else "plot"
        box = scrolling(image, alt, class_) if wide else element("div", image, class_=class_)
        return element("figure", box, element("figcaption", caption), class_="wide" if wide else False)

    def _unused(self, name: str) -> str:
        unused, number = name, 2
        while unused.lower() in self.names:  # lower: some file systems ignore case
            unused, number = f"{name}-{number}", number + 1
        self.names.append(unused.lower())
        return unused


def svg_text(figure: Figure) -> str:
    """The same text for the same figure: no date, no random identifiers."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "fedasd", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return buffer.getvalue()


def embedded(drawn: str, prefix: str, alt: str, *, themed: bool) -> Html:
    """SVG for the body of a page; `prefix` keeps its identifiers apart from those of other figures."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)  # it would apply to the whole page
    body = re.sub(r'\bid="', f'id="{prefix}', body)
    body = re.sub(r'href="#', f'href="#{prefix}', body)
    body = body.replace("url(#", f"url(#{prefix}")
    if themed:
        body = re.sub(r"(fill|stroke): (#\w{6})\b", _page_colour, body)
    box = re.search(r'viewBox="[^"]*"', body)
    assert box is not None
    opening = f'<svg role="img" {element("x", aria_label=alt)[3:-5]} {box[0]}>'
    return Html(opening + body[body.index(">") + 1 :].strip())


def _page_colour(match: re.Match[str]) -> str:
    return f"{match[1]}: {_PAGE_COLOURS.get(match[2].lower(), match[2])}"


def _has_images(figure: Figure) -> bool:
    from matplotlib.collections import QuadMesh

    return any(axes.images or any(isinstance(c, QuadMesh) for c in axes.collections) for axes in figure.axes)
