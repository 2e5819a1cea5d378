"""The PyTorch example with the real torch, Lightning and Hugging Face packages: clients forget less with ASD."""

from __future__ import annotations

import re

import pytest
from venvs import EXAMPLES, Example, install


@pytest.fixture(scope="module")
def example() -> Example:
    return install(EXAMPLES / "pytorch")


SCRIPTS = {"dataloader": 3, "compiled": 1, "mixed_precision": 1, "lightning_module": 1, "hugging_face": 1}


@pytest.mark.parametrize(("script", "comparisons"), SCRIPTS.items(), ids=list(SCRIPTS))
def test_clients_forget_less_with_asd(example: Example, script: str, comparisons: int) -> None:
    text = example.run("python", f"{script}.py")
    found = re.findall(r"global model ([\d.]+) %, client ([\d.]+) %, with ASD ([\d.]+) %", text)
    assert len(found) == comparisons, text
    for before, client, with_asd in found:
        assert float(before) > 80, text
        assert float(client) < float(with_asd) - 3, text


def test_two_processes_give_the_parameters_of_one(example: Example) -> None:
    text = example.run("python", "-m", "torch.distributed.run", "--nproc-per-node=2", "two_processes.py")
    (difference,) = re.findall(r"2 processes [\d.]+ %; largest difference of a parameter (\S+)", text)
    assert float(difference) < 1e-4, text


def test_every_script_is_run() -> None:
    scripts = {path.stem for path in (EXAMPLES / "pytorch").glob("*.py")}
    assert scripts == {*SCRIPTS, "two_processes", "task"}
