"""Figures as files beside the page and as drawings inside it.

Drawings follow the page's colours: their neutral ones become those of the page, light or dark.  Maps (images, whose
colours have a meaning and assume white paper) keep theirs, on a white card.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.html import Html, element, scrolling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What our figures use for text, for what is secondary, for grids and for the paper.
_NEUTRAL = {
    "#000000": "currentColor",
    "#222222": "currentColor",
    "#666666": "var(--muted)",
    "#e4e4e4": "var(--grid)",
    "#eeeeee": "var(--grid)",
    "#ffffff": "var(--paper)",
}


class Album:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def show(self, figure: Figure, name: str, *, caption: object, alt: str) -> Html:
        """The <figure>; name.png and name.svg are left in the folder."""
        name = self._free(re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "figure")
        self.folder.mkdir(parents=True, exist_ok=True)
        drawn = svg(figure)
        (self.folder / f"{name}.svg").write_text(drawn, encoding="utf-8")
        figure.savefig(self.folder / f"{name}.png", dpi=150, metadata={"Software": None})
        wide, card = figure.get_figwidth() > 7, _has_images(figure)
        picture = inline(drawn, f"f{len(self.names)}-", alt, themed=not card)
        class_ = "picture card" if card else "picture"
        box = scrolling(picture, alt, class_) if wide else element("div", picture, class_=class_)
        return element("figure", box, element("figcaption", caption), class_="wide" if wide else False)

    def _free(self, name: str) -> str:
        free, number = name, 2
        while free.lower() in self.names:  # lower: some file systems see no difference
            free, number = f"{name}-{number}", number + 1
        self.names.append(free.lower())
        return free


def svg(figure: Figure) -> str:
    """The same text for the same figure: no date, no random identifiers."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "fedasd", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return buffer.getvalue()


def inline(drawn: str, prefix: str, alt: str, *, themed: bool) -> Html:
    """For the body of a page, where all drawings share one space of identifiers."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)  # it would hold for the whole page
    body = re.sub(r'\bid="', f'id="{prefix}', body)
    body = re.sub(r'href="#', f'href="#{prefix}', body)
    body = body.replace("url(#", f"url(#{prefix}")
    if themed:
        body = re.sub(r"(fill|stroke): (#\w{6})\b", _of_the_page, body)
    box = re.search(r'viewBox="[^"]*"', body)
    assert box is not None
    opening = f'<svg role="img" {element("x", aria_label=alt)[3:-5]} {box[0]}>'
    return Html(opening + body[body.index(">") + 1 :].strip())


def _of_the_page(match: re.Match[str]) -> str:
    return f"{match[1]}: {_NEUTRAL.get(match[2].lower(), match[2])}"


def _has_images(figure: Figure) -> bool:
    from matplotlib.collections import QuadMesh

    return any(axes.images or any(isinstance(c, QuadMesh) for c in axes.collections) for axes in figure.axes)
