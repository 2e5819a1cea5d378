"""The README's example is run as it stands."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

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


@pytest.mark.parametrize(
    "target", ["demo", "demo-loss", "test", "cuda", "cuda-extension", "bench-gpu", "bench", "lint", "clean"]
)
def test_make_targets_named_in_the_readme_exist(target):
    makefile = (README.parent / "Makefile").read_text()
    assert f"make {target}" in README.read_text()
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
