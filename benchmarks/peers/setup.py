"""Installs the peers, each in a venv of its own: python -m benchmarks.peers.setup [--venvs build/peers]

torch is installed first and pinned by constraints.txt: unpinned, it would bring gigabytes of CUDA libraries.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENVS = ROOT / "build" / "peers"
PACKAGES = {"pfl": "pfl==0.6.0", "flower": "flwr[simulation]==1.41.0"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venvs", type=Path, default=VENVS)
    options = parser.parse_args()
    for name, package in PACKAGES.items():
        folder = options.venvs / name
        print(f"== {package} in {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
        subprocess.run([*pip, "torch", "numpy"], check=True)
        subprocess.run([*pip, package], check=True)


if __name__ == "__main__":
    main()
