"""Pages of the site that are made from the code and from documents outside docs/, and links between all pages."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.structure.files import File, Files

import fedasd_fast
from fedasd_fast.cli.main import SUBCOMMANDS, build_parser
from fedasd_fast.cli.settings import all_settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MODULES = ("reference", "presets", "data", "algorithms", "callbacks")
# Pages that are documents of the project.
DOCUMENTS = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "code-of-conduct.md": "CODE_OF_CONDUCT.md",
}
_NO_SIGNATURE = {"fedasd_fast.Config"}  # all settings, which have a page of their own
# Code, which stays as it is, or a link to a file: image, text, file, anchor.
_CODE_OR_LINK = re.compile(
    r"^```.*?^```$|`[^`\n]+`|(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)", re.MULTILINE | re.DOTALL
)


def on_files(files: Files, config: Any) -> Files:
    pages = {page: (ROOT / document).read_text(encoding="utf-8") for page, document in DOCUMENTS.items()}
    pages["index.md"] = "---\nhide: [navigation]\n---\n" + pages["index.md"]  # it has a list of links
    pages |= {"api-modules.md": _modules(), "commands.md": _commands(), "settings-by-key.md": _settings()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    name = page.file.src_uri
    text = with_site_links(markdown, name, {file.src_uri for file in files if not file.inclusion.is_excluded()})
    return text + _api() if name == "api.md" else text


def with_site_links(markdown: str, page: str, pages: set[str]) -> str:
    """Links as in the repository become links of the site; one to a file that is not on it becomes the file's path."""
    folder = (ROOT / DOCUMENTS[page] if page in DOCUMENTS else DOCS / page).parent
    page_of = {(ROOT / document).resolve(): name for name, document in DOCUMENTS.items()}

    def shown(link: re.Match[str]) -> str:
        image, text, file, anchor = link.groups(default="")
        target = (folder / file).resolve()
        if not file or not target.exists():  # code, a generated page, or a mistake that --strict tells of
            return link[0]
        inside = target.relative_to(DOCS).as_posix().replace(".ipynb", ".md") if target.is_relative_to(DOCS) else ""
        if name := page_of.get(target) or (inside if inside in pages else None):
            return f"{image}[{text}]({'../' * page.count('/')}{name}{anchor})"
        path = target.relative_to(ROOT).as_posix()
        code = text.strip("`")
        return f"`{path}`" if path.endswith(code) else text if path in text else f"{text} (`{path}`)"

    return _CODE_OR_LINK.sub(shown, markdown)


def _api() -> str:
    """Every name of the package that is not a module, after the table that is in docs/api.md."""
    names = [name for name in fedasd_fast.__all__ if name != "__version__" and name not in MODULES]
    return "\n\n## Every name\n\n" + _docstrings("fedasd_fast", names)


def _modules() -> str:
    parts = ["# API of the modules", "What is in the modules of `import fedasd_fast as fa`."]
    for name in MODULES:
        module = getattr(fedasd_fast, name)
        public = [member for member in module.__all__ if not isinstance(getattr(module, member), ModuleType)]
        parts += [f"## fa.{name}", module.__doc__ or "", _docstrings(module.__name__, public)]
    return "\n\n".join(parts)


def _docstrings(package: str, names: Iterable[str]) -> str:
    return "\n\n".join(_docstring(f"{package}.{name}") for name in names)


def _docstring(path: str) -> str:
    if (ROOT / f"{path.replace('.', '/')}.py").exists():  # a module of the same name would be shown instead
        path = f"{path}.{path.rpartition('.')[2]}"
    options = "\n    options: {show_signature: false}" if path in _NO_SIGNATURE else ""
    return f"::: {path}{options}"


def _commands() -> str:
    os.environ["COLUMNS"] = "100"  # not the width of the terminal in which the site is built
    parts = ["# Commands", "What `fedasd COMMAND --help` prints.", _help(build_parser([]))]
    for name in SUBCOMMANDS:
        command = _subparsers(build_parser([name]))[name]
        parts += [f"## fedasd {name}", _help(command)]
        for action, parser in _subparsers(command).items():
            parts += [f"### fedasd {name} {action}", _help(parser)]
    return "\n\n".join(parts)


def _subparsers(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    found = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    return {name: sub for choices in found for name, sub in choices.items() if isinstance(sub, ArgumentParser)}


def _help(parser: ArgumentParser) -> str:
    return f"```text\n{parser.format_help().rstrip()}\n```"


def _settings() -> str:
    """Not a table: long lists of names would leave no room for the rest."""
    parts = ["# Settings by key", "What `fedasd settings` prints: every setting with default, type and meaning."]
    for setting in all_settings():
        meaning = setting.meaning.replace("<", "&lt;")  # no HTML
        parts += [f"### `{setting.key}`", f"Default `{setting.default}` ({setting.type}). {meaning}"]
    return "\n\n".join(parts)
