"""HTML from Python values.  Whatever is not markup already is escaped: names of runs are free text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def text(value: object) -> Html:
    return value if isinstance(value, Html) else Html(escape(str(value)))


def joined(parts: Sequence[object], between: str = "\n") -> Html:
    return Html(between.join(text(part) for part in parts if part != ""))


def element(name: str, *children: object, **attributes: str | int | bool) -> Html:
    """<name attributes>children</name>; `class_` is class and `aria_label` aria-label, true stands without a value."""
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is not False:
            words.append(key if value is True else f'{key}="{escape(str(value))}"')
    return Html(f"<{' '.join(words)}>{joined(children, '')}</{name}>")


def table(columns: Sequence[object], rows: Sequence[Sequence[object]], caption: str) -> Html:
    """The first cell of a row names it.  On a narrow screen the table scrolls in its own box, not the page."""
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    parts = (element("caption", caption), element("thead", head), element("tbody", joined(body)))
    return scrolling(element("table", *parts), caption)


def scrolling(content: Html, label: str, class_: str = "scroll") -> Html:
    """A box that the keyboard can scroll as well, and that a screen reader can name."""
    return element("div", content, class_=class_, tabindex=0, role="region", aria_label=label)


def details(summary: object, *children: object) -> Html:
    return element("details", element("summary", summary), *children)


def command(line: str) -> Html:
    return element("pre", element("code", line), class_="command")


def section(level: int, heading: object, *children: object, id_: str = "") -> Html:
    attributes: dict[str, str] = {"id": id_} if id_ else {}
    return element("section", element(f"h{level}", heading), "\n", joined(children), **attributes)
