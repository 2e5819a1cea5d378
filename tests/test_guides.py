"""Every block of the guides runs as it stands, in its order: Python blocks in one namespace, commands in one folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast.cli.main import main

GUIDES = sorted((Path(__file__).parents[1] / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_guide(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    ran = 0
    for language, block in re.findall(r"```(python|bash)\n(.*?)```", guide.read_text(), re.DOTALL):
        if name := re.match(r"# (\w+\.py)\n", block):  # a file that the reader saves
            (tmp_path / name[1]).write_text(block)
            monkeypatch.syspath_prepend(tmp_path)
            monkeypatch.delitem(sys.modules, Path(name[1]).stem, raising=False)
            continue
        if language == "python":
            exec(compile(block, guide.name, "exec", dont_inherit=True), names)
            ran += 1
            continue
        for line in block.splitlines():
            assert line.startswith("fedasd "), line
            assert main(line.split()[1:]) == 0, line
            ran += 1
    assert ran > 0


def test_links_lead_somewhere() -> None:
    broken = [
        (guide.name, link)
        for guide in GUIDES
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", guide.read_text())
        if not (guide.parent / link).exists()
    ]
    assert not broken
