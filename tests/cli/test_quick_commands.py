"""Commands that only list do not load torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = "docs/results/table4"


@pytest.mark.parametrize(
    "words",
    [
        *(["--help"], ["--version"], ["nonesuch"]),
        *(["presets"], ["presets", "quickstart"], ["presets", "nonesuch"], ["presets", "--help"]),
        *(["settings"], ["settings", "asd.weight"], ["settings", "--help"]),
        *(["list", RESULTS], ["list", "nonesuch"], ["list", "--help"]),
        *(["completion", "bash"], ["completion", "zsh"]),
    ],
    ids=" ".join,
)
def test_torch_is_not_loaded(words: list[str]) -> None:
    code = (
        "import sys\nfrom fedasd_fast.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert result.stdout.splitlines()[-1] == "[]"
