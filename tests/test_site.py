"""The documentation site: built strictly, complete, every link leads somewhere, nothing comes from the network.

Where mkdocs is not installed these are skipped; `make docs` installs it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import fedasd_fast as fa
from fedasd_fast.cli.main import SUBCOMMANDS, build_parser
from fedasd_fast.cli.settings import all_settings

pytest.importorskip("mkdocs", reason="the site needs mkdocs: make docs")

ROOT = Path(__file__).parents[1]
FETCHING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(HTMLParser):
    """The ids, links and text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in FETCHING and FETCHING[tag] in found:
            self.fetched.append(found[FETCHING[tag]])

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @cached_property
    def text(self) -> str:
        return "".join(self.words)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """Pages by path."""
    top = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(top)]
    variables = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path.relative_to(top): Page(path) for path in top.rglob("*.html")}


@pytest.fixture(scope="module")
def top(site: dict[Path, Page], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return next(tmp_path_factory.getbasetemp().glob("site*"))


def test_every_document_has_a_page(site: dict[Path, Page]) -> None:
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    documents += [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.ipynb")]
    pages = {path.with_suffix(".html") for path in documents if path.parts[0] != "results"}
    assert len(pages) > 15
    assert pages <= set(site)


def test_every_link_leads_somewhere(site: dict[Path, Page], top: Path) -> None:
    broken = []
    for path, page in site.items():
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":  # which may be shown at any address
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            there = target in site or (top / target).is_file()
            lost = target in site and parts.fragment and unquote(parts.fragment) not in site[target].ids
            if lost or not there:
                broken.append((str(path), link))
    assert not broken


def test_nothing_is_fetched_from_the_network(site: dict[Path, Page], top: Path) -> None:
    foreign = [(str(path), link) for path, page in site.items() for link in page.fetched if urlsplit(link).netloc]
    styles = [
        path.name for path in top.rglob("*.css") if re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text())
    ]
    assert not foreign
    assert not styles


def test_every_public_name_is_documented(site: dict[Path, Page]) -> None:
    missing, silent = [], []
    for name in fa.__all__:
        value = getattr(fa, name)
        if isinstance(value, ModuleType):
            members = [m for m in value.__all__ if not isinstance(getattr(value, m), ModuleType)]
            ids = site[Path("api-modules.html")].ids
            missing += [f"{name}.{m}" for m in members if not any(i.endswith(f".{m}") and name in i for i in ids)]
            silent += [f"{name}.{m}" for m in members if callable(o := getattr(value, m)) and not o.__doc__]
        elif name != "__version__":
            missing += [name] * (f"fedasd_fast.{name}" not in site[Path("api.html")].ids)
            silent += [name] * (not value.__doc__)
    assert not missing
    assert not silent


def test_every_command_and_option_is_on_its_page(site: dict[Path, Page]) -> None:
    text = site[Path("commands.html")].text
    for name in SUBCOMMANDS:
        section = text.split(f"fedasd {name}¶")[1].split("¶")[0]
        (command,) = [a.choices[name] for a in build_parser([name])._actions if a.dest == "command"]  # type: ignore[index]
        options = [option for action in command._actions for option in action.option_strings]
        assert [option for option in options if option not in section] == [], name
        for nested in nested_commands(command):
            assert f"fedasd {name} {nested}¶" in text


def nested_commands(parser: argparse.ArgumentParser) -> list[str]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [name for action in actions for name in action.choices]


def test_every_setting_is_on_its_page(site: dict[Path, Page]) -> None:
    text = " ".join(site[Path("settings-by-key.html")].text.split())
    for setting in all_settings():
        meaning = " ".join(setting.meaning.replace("`", "").split())
        assert f"{setting.key}¶" in text
        assert f"Default {setting.default} ({setting.type}). {meaning}" in text


def hook(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("index.md", "[a](docs/guide/loss.md#x)", "[a](guide/loss.md#x)"),
        ("index.md", "![a](docs/quickstart.png)", "![a](quickstart.png)"),
        ("index.md", "[how](CONTRIBUTING.md)", "[how](contributing.md)"),
        ("guide/loss.md", "[trust](../../SECURITY.md)", "[trust](../security.md)"),
        ("guide/loss.md", "[api](../api.md)", "[api](../api.md)"),
        ("guide/loss.md", "[reference.py](../../fedasd_fast/loss/reference.py)", "`fedasd_fast/loss/reference.py`"),
        ("results.md", "[the runs](results)", "the runs (`docs/results`)"),
        ("guide/loss.md", "`[a](../api.md)`", "`[a](../api.md)`"),
        ("guide/loss.md", "a `b` [any `c`](../../csrc/cpu) `d`", "a `b` any `c` (`csrc/cpu`) `d`"),
        ("guide/loss.md", "[a](nonesuch.md)", "[a](nonesuch.md)"),
        ("guide/loss.md", "[a](https://example.org/x)", "[a](https://example.org/x)"),
    ],
)
def test_links_as_in_the_repository_become_links_of_the_site(page: str, written: str, shown: str) -> None:
    pages = {"guide/loss.md", "api.md", "quickstart.png", "contributing.md", "security.md"}
    assert hook("site_hook").with_site_links(written, page, pages) == shown


def test_a_notebook_becomes_text_code_and_outputs() -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "source": ["print(1)"],
            "outputs": [
                {"output_type": "stream", "text": ["1\n"]},
                {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": ["<Figure>"]}},
                {"output_type": "execute_result", "data": {"text/plain": ["2"]}},
            ],
        },
    ]
    markdown, images = hook("site_notebooks").converted({"cells": cells}, "first")
    assert images == {"first-1.png": b"hi"}
    assert markdown.startswith("# Title\nwords\n\nA notebook:")
    order = ["```python\nprint(1)\n```", "```text\n1\n```", "](first-1.png)", "```text\n2\n```"]
    assert sorted(order, key=markdown.index) == order
    assert "<Figure>" not in markdown
