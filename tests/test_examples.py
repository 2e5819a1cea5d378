"""Every example of one file runs as its docstring says, and its result is what it claims.

Those that need other packages are in folders; examples/tests runs them (make test-examples).  Here only their files are
looked at.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str) -> str:
    """What the example prints, started as a reader would start it, from the project's folder."""
    example = EXAMPLES / f"{name}.py"
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, f"examples/{example.name}"],
        cwd=EXAMPLES.parent, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracies(text: str) -> dict[str, list[float]]:
    """The percentages of each line, by what stands before its first colon."""
    lines = (line.partition(":") for line in text.splitlines())
    return {name: [float(number) for number in re.findall(r"([\d.]+) %", rest)] for name, _, rest in lines}


def test_clients_of_the_own_training_loop_forget_less_with_asd() -> None:
    found = accuracies(run("own_training_loop"))
    (before,) = found["global model"]
    clients, average = found["cross-entropy"]
    clients_asd, average_asd = found["cross-entropy + ASD"]
    assert clients < clients_asd - 5
    assert clients_asd < before
    assert min(before, average, average_asd) > 85


def test_own_data_is_what_the_clients_train_on() -> None:
    text = run("own_data")
    assert "mine: 40 clients, labels of the first [44, 2, 2, 2]" in text  # 40 of one label, ten of any
    assert "sensors: 1000 clients" in text
    for name, (accuracy,) in accuracies(text).items():
        assert accuracy > 65, name  # four classes: 25 by chance


def test_own_method_goes_with_asd() -> None:
    text = run("own_method")
    found = accuracies(text)
    assert list(found) == ["fedavg", "fedavg+asd", "fedadagrad", "fedadagrad+asd"]
    assert found["fedadagrad"][0] > found["fedavg"][0] + 10  # the server's step is another one
    drift = [float(number) for number in re.findall(r"drift ([\d.]+)", text)]
    assert drift[1] < drift[0]  # and the client's loss has the term
    assert drift[3] != drift[2]  # Adagrad's steps have lengths of their own


def test_several_machines_give_the_bits_of_one_process() -> None:
    text = run("several_machines")
    digests = dict(re.findall(r"^(\d \w+): .*sha256 of the model (\w{16})$", text, re.MULTILINE))
    assert list(digests) == ["1 process", "2 ranks"]
    assert digests["1 process"] == digests["2 ranks"]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_example_is_listed_and_says_how_to_run_it(example: Path) -> None:
    assert f"({example.name})" in (EXAMPLES / "README.md").read_text()
    assert f"    python examples/{example.name}" in example.read_text().split('"""')[1]
    assert f'run("{example.stem}")' in Path(__file__).read_text(), "no test runs it"


@pytest.mark.parametrize("folder", sorted(EXAMPLES.glob("*/README.md")), ids=lambda path: path.parent.name)
class TestFolder:
    def test_it_is_listed_has_a_project_file_and_a_test(self, folder: Path) -> None:
        name = folder.parent.name
        assert f"({name}/README.md)" in (EXAMPLES / "README.md").read_text()
        assert '"fedasd-fast"' in (folder.parent / "pyproject.toml").read_text()
        assert f'install(EXAMPLES / "{name}")' in (EXAMPLES / "tests" / f"test_{name}.py").read_text()

    def test_links_of_its_readme_lead_to_files(self, folder: Path) -> None:
        links = re.findall(r"\]\((?!https?://)([^)#]+)", folder.read_text())
        assert links
        assert [link for link in links if not (folder.parent / link).exists()] == []
