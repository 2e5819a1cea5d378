"""fedasd completion: prints a script with which bash or zsh complete commands, presets, settings and their values."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from .. import preset_files
from .setting_meanings import DATASETS, METHODS, MODELS
from .settings import all_settings

_DESCRIPTION = "Prints a completion script of commands, presets, settings and their values for a shell."
_EPILOG = """bash, in ~/.bashrc:   eval "$(fedasd completion bash)"     bash 4.2 or newer
zsh, in ~/.zshrc:     eval "$(fedasd completion zsh)"     after compinit"""

# The words are in the script: nothing is started when TAB is pressed, but for the options of a command, which its help
# is asked for once.  bash splits words at "=", so that the key of a value is two words before it.
_BASH = """\
declare -gA _fedasd_values=({values}) _fedasd_options=()
_fedasd() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} key= words=
  local command=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{commands}" -- "$current"))
    return
  fi
  if [[ $current == "=" ]]; then key=$before current=
  elif [[ $before == "=" ]]; then key=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  if [[ -n $key ]]; then
    COMPREPLY=($(compgen -W "${{_fedasd_values[$key]}}" -- "$current"))
    return
  fi
  if [[ $current == -* ]]; then
    if [[ -z ${{_fedasd_options[$command]}} ]]; then
      _fedasd_options[$command]=$(fedasd "$command" --help 2>/dev/null | {find_options})
    fi
    COMPREPLY=($(compgen -W "${{_fedasd_options[$command]}}" -- "$current"))
    return
  fi
  if [[ $before == --methods || $before == --only ]]; then
    [[ $current == *,* ]] && words=${{current%,*}},
    COMPREPLY=($(compgen -P "$words" -W "${{_fedasd_values[method]}}" -- "${{current##*,}}"))
    return
  fi
  case $command in
    run|compare|sweep|reproduce|data)
      COMPREPLY=($(compgen -W "{presets} {assignments}" -- "$current"))
      if [[ ${{COMPREPLY[0]}} == *= ]]; then compopt -o nospace; fi ;;
    resume)
      COMPREPLY=($(compgen -W "{assignments}" -- "$current"))
      if [[ -z $current ]]; then COMPREPLY=(); elif [[ ${{COMPREPLY[0]}} == *= ]]; then compopt -o nospace; fi ;;
    presets) COMPREPLY=($(compgen -W "{presets}" -- "$current")) ;;
    settings) COMPREPLY=($(compgen -W "{keys}" -- "$current")) ;;
    completion) COMPREPLY=($(compgen -W "bash zsh" -- "$current")) ;;
  esac
}}
complete -o default -F _fedasd fedasd
"""
_ZSH = """\
typeset -gA _fedasd_values=({values}) _fedasd_options=()
_fedasd() {{
  local command=$words[2] key=${{PREFIX%%=*}}
  if ((CURRENT == 2)); then
    compadd -- {commands}
    return
  fi
  if [[ $PREFIX == -* ]]; then
    if [[ -z $_fedasd_options[$command] ]]; then
      _fedasd_options[$command]=$(fedasd $command --help 2>/dev/null | {find_options})
    fi
    compadd -- ${{=_fedasd_options[$command]}}
    return
  fi
  if [[ $words[CURRENT-1] == --methods || $words[CURRENT-1] == --only ]]; then
    compset -P '*,'
    compadd -- ${{=_fedasd_values[method]}}
    return
  fi
  if [[ $PREFIX == *=* ]]; then
    compset -P '*='
    [[ -n $_fedasd_values[$key] ]] && compadd -- ${{=_fedasd_values[$key]}}
    return
  fi
  case $command in
    run|compare|sweep|reproduce|data)
      compadd -- {presets}
      compadd -S = -- {keys} ;;
    resume) compadd -S = -- {keys} ;;
    presets) compadd -- {presets} ;;
    settings) compadd -- {keys} ;;
    completion) compadd -- bash zsh ;;
  esac
  _files
}}
compdef _fedasd fedasd
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH}
_FIND_OPTIONS = "grep -oE -e '--[a-z][a-z-]*' | sort -u | tr '\\n' ' '"


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
    settings = list(all_settings())
    keys = [setting.key for setting in settings]
    values = {setting.key: setting.choices for setting in settings if setting.choices} | _names()
    words = {
        "commands": commands,
        "presets": preset_files.names(),
        "keys": keys,
        "assignments": [f"{k}=" for k in keys],
    }
    return _SCRIPTS[shell].format(
        values=" ".join(f"[{key}]='{' '.join(choices)}'" for key, choices in values.items()),
        find_options=_FIND_OPTIONS,
        **{name: " ".join(several) for name, several in words.items()},
    )


def _names() -> dict[str, tuple[str, ...]]:
    return {
        "dataset": DATASETS,
        "model": MODELS,
        "method": tuple(f"{method}{asd}" for method in METHODS for asd in ("", "+asd")),
        "partition": ("dirichlet_", "iid", "shards_", "natural"),
    }
