"""Commands that only list do not load torch; the completion script completes in a real bash."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedasd_fast import presets
from fedasd_fast.cli.completion import script
from fedasd_fast.cli.main import SUBCOMMANDS

from .conftest import Fedasd


@pytest.mark.parametrize(
    "words", [["--help"], ["presets"], ["presets", "quickstart"], ["presets", "nonesuch"], ["settings"],
              ["completion", "bash"]]
)  # fmt: skip
def test_torch_is_not_loaded(words: list[str]) -> None:
    code = (
        "import sys\nfrom fedasd_fast.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in ("fedasd", *words))
    shell = (
        f"{script('bash', SUBCOMMANDS)}\ncompopt() {{ :; }}\n"  # exists only while a completion runs
        f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _fedasd; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    result = subprocess.run(["bash", "--norc", "-c", shell], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout.split()


def test_bash_completes_commands_presets_and_settings() -> None:
    assert completed("") == list(SUBCOMMANDS)
    assert completed("re") == ["reproduce", "resume", "replay", "report"]
    assert completed("run", "table2") == ["table2_cifar100", "table2_tinyimagenet"]
    assert completed("presets", "") == presets.names()
    assert completed("run", "quickstart", "optimizer.c") == ["optimizer.clip_norm="]
    assert completed("settings", "optimizer.c") == ["optimizer.clip_norm"]
    assert completed("completion", "z") == ["zsh"]
    assert completed("doctor", "") == []  # files, which bash adds itself


def test_the_command_prints_the_script(fedasd: Fedasd) -> None:
    for shell in ("bash", "zsh"):
        assert fedasd("completion", shell) == (0, script(shell, SUBCOMMANDS), "")
    code, _, err = fedasd("completion", "fish")
    assert (code, "there is no 'fish'" in err) == (2, True)
