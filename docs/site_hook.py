"""Pages that the site makes itself: home from the README, API from docstrings, commands and settings from the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import fedasd_fast
from fedasd_fast.cli.main import SUBCOMMANDS, build_parser
from fedasd_fast.cli.settings import all_settings

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    pages = {"index.md": _home(), "api.md": _api(), "commands.md": _commands(), "settings-by-key.md": _settings()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A link to a file that is not on the site, such as source code, becomes its path."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def shown(link: re.Match[str]) -> str:
        target = (folder / link[3]).resolve()
        inside = target.is_relative_to(ROOT / "docs") and target.is_file()
        if inside or not target.exists():  # --strict tells of those that do not exist
            return link[0]
        path = str(target.relative_to(ROOT))
        return link[2] if path in link[2] else f"{link[2]} (`{path}`)"

    return _LINK.sub(shown, markdown)


def _home() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")


def _api() -> str:
    modules = {"algorithms", "callbacks", "data", "presets", "reference"}
    names = [name for name in fedasd_fast.__all__ if name != "__version__" and name not in modules]
    parts = []
    for name in names:
        value = getattr(fedasd_fast, name)
        parts.append(f"::: {value.__module__}.{value.__qualname__}")
    return "# API\n\n" + "\n\n".join([*parts, "::: fedasd_fast.loss.reference", "::: fedasd_fast.presets"]) + "\n"


def _commands() -> str:
    parts = ["# Commands", _block(build_parser([]).format_help())]
    for name in SUBCOMMANDS:
        subparsers = next(a for a in build_parser([name])._actions if a.dest == "command")
        assert isinstance(subparsers.choices, dict)
        parts += [f"## fedasd {name}", _block(subparsers.choices[name].format_help())]
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def _settings() -> str:
    rows = [f"| `{s.key}` | {s.type.replace('|', '&#124;')} | `{s.default}` | {s.meaning} |" for s in all_settings()]
    return "\n".join(["# Settings by key", "", "| key | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"
