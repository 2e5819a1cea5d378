"""The notebooks run from top to bottom, and what is committed of their output is small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from venvs import EXAMPLES, ROOT, Example, install

NEEDS_A_GPU = {"gpu-report"}
NOTEBOOKS = [path for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")) if path.stem not in NEEDS_A_GPU]
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


@pytest.fixture(scope="module")
def jupyter() -> Example:
    return install(EXAMPLES / "tests" / "jupyter")


def outputs(path: Path) -> list[list[str]]:
    """The kinds of output of every cell with code: ["stream", "image/png"]."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    return [
        sorted({kind for output in cell["outputs"] for kind in output.get("data", [output["output_type"]])})
        for cell in cells
    ]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(jupyter: Example, notebook: Path, tmp_path: Path) -> None:
    assert notebook.stat().st_size < 200_000
    executed = tmp_path / notebook.name
    jupyter.run("python", "-c", EXECUTE, str(notebook), str(executed))
    assert outputs(executed) == outputs(notebook), "the committed output is of another version: execute and save it"


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["loss", "reproduce", "simulation"]
