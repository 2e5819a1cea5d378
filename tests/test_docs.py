"""What the documents say can be done is done here as they say it."""

import re
from dataclasses import fields
from pathlib import Path

import fedasd_fast as fa
from fedasd_fast.cli.main import parse
from fedasd_fast.config import from_dict

DOCS = Path(__file__).parents[1] / "docs"
SMALL = {"clients": 6, "rounds": 2, "participation": 0.5, "local_epochs": 1}


def python_block(name):
    """The first; test_guides.py runs all."""
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)[0]


def test_the_method_of_the_guide_works():
    exec(python_block("methods.md"), {"__name__": "guide"})
    assert fa.algorithms.create("momentum", {"beta": 0.5}).beta == 0.5
    momentum = fa.simulate(SMALL | {"method": "momentum+asd"})
    without = fa.simulate(SMALL | {"method": "momentum+asd", "method_args": {"beta": 0.0}})
    plain = fa.simulate(SMALL | {"method": "fedavg+asd"})
    assert (without.models["cloud"] - plain.models["cloud"]).abs().max() < 1e-6
    assert (momentum.models["cloud"] - plain.models["cloud"]).abs().max() > 1e-3


def test_the_example_from_python_works(capsys):
    names = {}
    exec(python_block("guide/simulate.md"), names)
    assert names["result"].config.method == "feddyn+asd"
    assert names["model"].training is False
    assert capsys.readouterr().out


def test_every_setting_is_documented():
    text = (DOCS / "settings.md").read_text()
    table = text[text.index("## Settings") : text.index("## Teacher and augmentation")]
    missing = [f.name for f in fields(from_dict({})) if not re.search(rf"`{f.name}[`.]", table)]
    assert not missing


def test_links_between_pages_lead_somewhere():
    """Files exist, and so do the headings that a link names."""
    pages = [page for page in (*DOCS.rglob("*.md"), DOCS.parent / "README.md") if "results" not in page.parts]
    broken = []
    for page in pages:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for file, heading in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", prose):
            target = page.parent / file if file else page
            if not target.exists() or (heading and heading not in anchors(target)):
                broken.append((page.name, file, heading))
    assert not broken


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_commands_are_understood():
    """Every fedasd line of the documents has the form that the command line takes."""
    found = 0
    for document in (*DOCS.rglob("*.md"), DOCS.parent / "README.md"):
        for block in re.findall(r"```(?:bash|console)\n(.*?)```", document.read_text(), re.DOTALL):
            for line in block.splitlines():
                if line.startswith("fedasd "):
                    parse(line.split("#")[0].split()[1:])
                    found += 1
    assert found > 8
