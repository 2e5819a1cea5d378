"""The README is short, and what it tells to do is done here as it stands."""

import re
import shlex
from pathlib import Path

import torch
from torch import nn

from fedasd_fast.cli.main import main

README = Path(__file__).parents[1] / "README.md"


def test_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    torch.manual_seed(0)
    inputs, targets = torch.randn(120, 16), torch.randint(0, 10, (120,))
    names = {
        "torch": torch,
        "inputs": inputs,
        "targets": targets,
        "num_classes": 10,
        "loader": [(inputs[i : i + 40], targets[i : i + 40]) for i in range(0, 120, 40)],
        "global_model": nn.Linear(16, 10),
        "local_model": nn.Linear(16, 10),
    }
    exec(example, names)
    assert names["loss"].item() > 0
    assert names["local_model"].weight.grad.abs().sum() > 0
    assert names["global_model"].weight.grad is None


def test_it_is_short_and_begins_with_what_was_not_tried():
    lines = README.read_text().splitlines()
    assert len(lines) < 110
    assert "**CUDA path verified by emulation, not yet on hardware.**" in "\n".join(lines[:16])  # the first screen


def test_every_command_runs(tmp_path, monkeypatch):
    """The make targets have tests of their own, and CI runs them."""
    monkeypatch.chdir(tmp_path)
    makefile = (README.parent / "Makefile").read_text()
    commands = [
        line for block in re.findall(r"```bash\n(.*?)```", README.read_text(), re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) > 5
    for line in commands:
        program, *words = shlex.split(line, comments=True)
        if program == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE), line
        else:
            assert (program, main(words)) == ("fedasd", 0), line
    assert (tmp_path / "runs" / "report.html").exists()


def test_make_targets_named_in_prose_exist():
    makefile = (README.parent / "Makefile").read_text()
    named = re.findall(r"`make ([a-z-]+)`", README.read_text())
    assert {"demo", "docs", "bench", "bench-peers", "help"} <= set(named)
    assert [target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
