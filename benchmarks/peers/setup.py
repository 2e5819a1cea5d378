"""Installs the peers, each in a venv of its own: python -m benchmarks.peers.setup [--newer-python python3.12]

torch is installed first and pinned by constraints.txt.  Where only a CUDA build fits, gigabytes of CUDA libraries come
along; they are not used.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENVS = ROOT / "build" / "peers"
PACKAGES = {
    "pfl": "pfl==0.6.0",
    "flower": "flwr[simulation]==1.41.0",
    "fluke": "fluke-fl==0.8.1",
    "blazefl": "blazefl[contrib,reproducibility]==2.0.3",
}


NEEDS_PYTHON_3_12 = {"blazefl"}
# torchvision loads only beside the torch that it was built for: the index's, not a CPU build from a local folder.
NEEDS_TORCH_OF_THE_INDEX = {"fluke"}


def python_for(name: str, newer: Path | None) -> Path:
    """The interpreter of a peer's venv."""
    if name not in NEEDS_PYTHON_3_12 or sys.version_info >= (3, 12):
        return Path(sys.executable)
    if newer is None:
        raise SystemExit(f"{PACKAGES[name]} needs Python 3.12 or newer: name one with --newer-python PATH")
    return newer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venvs", type=Path, default=VENVS)
    parser.add_argument("--newer-python", type=Path, help="Python 3.12 or newer, for peers that need it")
    parser.add_argument("--only", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    options = parser.parse_args()
    pythons = {name: python_for(name, options.newer_python) for name in options.only}
    for name, python in pythons.items():
        folder = options.venvs / name
        print(f"== {PACKAGES[name]} in {folder}", flush=True)
        subprocess.run([python, "-m", "venv", folder], check=True)
        local = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""} if name in NEEDS_TORCH_OF_THE_INDEX else {}
        pip = [folder / "bin" / "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
        for packages in (["torch", "numpy"], [PACKAGES[name]]):
            subprocess.run([*pip, *packages], check=True, env=os.environ | local)


if __name__ == "__main__":
    main()
