"""fedasd completion: prints a script with which bash or zsh complete commands, presets and settings."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from .. import preset_files
from .settings import all_settings

_DESCRIPTION = "Prints a completion script of commands, presets and settings for a shell."
_EPILOG = """bash, in ~/.bashrc:   eval "$(fedasd completion bash)"
zsh, in ~/.zshrc:     eval "$(fedasd completion zsh)"     after compinit"""

# The words are in the script: nothing is started when TAB is pressed.
_BASH = """\
_fedasd() {{
  local current=${{COMP_WORDS[COMP_CWORD]}}
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{commands}" -- "$current"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
    run|compare|sweep|reproduce|data)
      COMPREPLY=($(compgen -W "{presets} {assignments}" -- "$current"))
      if [[ ${{COMPREPLY[0]}} == *= ]]; then compopt -o nospace; fi ;;
    presets) COMPREPLY=($(compgen -W "{presets}" -- "$current")) ;;
    settings) COMPREPLY=($(compgen -W "{keys}" -- "$current")) ;;
    completion) COMPREPLY=($(compgen -W "bash zsh" -- "$current")) ;;
  esac
}}
complete -o default -F _fedasd fedasd
"""
_ZSH = """\
_fedasd() {{
  if ((CURRENT == 2)); then
    compadd -- {commands}
    return
  fi
  case $words[2] in
    run|compare|sweep|reproduce|data)
      compadd -- {presets}
      compadd -S = -- {keys} ;;
    presets) compadd -- {presets} ;;
    settings) compadd -- {keys} ;;
    completion) compadd -- bash zsh ;;
  esac
  _files
}}
compdef _fedasd fedasd
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", metavar="SHELL", choices=_SCRIPTS, help="bash or zsh")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    print(script(arguments.shell, arguments.subcommands), end="")
    return 0


def script(shell: str, commands: Iterable[str]) -> str:
    keys = [setting.key for setting in all_settings()]
    words = {
        "commands": commands,
        "presets": preset_files.names(),
        "keys": keys,
        "assignments": [f"{key}=" for key in keys],
    }
    return _SCRIPTS[shell].format(**{name: " ".join(values) for name, values in words.items()})
