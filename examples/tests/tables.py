"""Tables that the examples print, and that their READMEs show."""

from __future__ import annotations

import re


def accuracies(text: str) -> dict[str, list[float]]:
    """The numbers of each row of a Markdown table, by what stands in its first cell."""
    rows = re.findall(r"^\| ([^|]+?) \| ([\d. |]+) \|$", text, re.MULTILINE)
    return {name: [float(cell) for cell in cells.split("|")] for name, cells in rows}
