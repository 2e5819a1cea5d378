"""The Flower app with `flwr run` and the simulation engine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tables import accuracies
from venvs import EXAMPLES, Example, install


@dataclass(frozen=True)
class Flower:
    example: Example
    variables: dict[str, str]

    def run(self, settings: str) -> dict[str, list[float]]:
        text = self.example.run(
            "flwr", "run", ".", "--stream", "--federation-config", "num-supernodes=10", "--run-config", settings,
            **self.variables,
        )  # fmt: skip
        found = accuracies(text)
        assert list(found) == ["FedAvg", "FedAvg + ASD"], text
        return found


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """With a SuperLink of our own: the one that `flwr run` would start goes on when the test has ended."""
    example, home = install(EXAMPLES / "flower"), tmp_path_factory.mktemp("flwr")
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        port, control = (str(probe.getsockname()[1]) for probe in (first, second))
    variables = {
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # as the README says
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port,
        "FLWR_LOCAL_CONTROL_API_PORT": control,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # by default its workers give way to everything else on the machine
    }
    log = home / "superlink.log"
    superlink = subprocess.Popen(
        [example.bin / "flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", port,
         "--control-api-address", f"127.0.0.1:{control}"],
        env={**os.environ, **variables, "PATH": f"{example.bin}{os.pathsep}{os.environ['PATH']}"},
        stdout=log.open("w"), stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        wait_until_healthy(superlink, port, log)
        yield Flower(example, variables)
    finally:
        superlink.terminate()
        superlink.wait(60)


def wait_until_healthy(superlink: subprocess.Popen[bytes], port: str, log: Path) -> None:
    for _ in range(600):
        assert superlink.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the SuperLink does not answer:\n{log.read_text()}")


def test_asd_helps_fedavg(flower: Flower) -> None:
    found = flower.run("num-server-rounds=3 seeds='0 1'")
    assert found["FedAvg"][-1] + 1 < found["FedAvg + ASD"][-1]


@pytest.mark.parametrize("augment", ["round", "batch"])
def test_augmentation(flower: Flower, augment: str) -> None:
    found = flower.run(f"num-server-rounds=1 seeds='1' augment='{augment}'")
    assert found["FedAvg"] != found["FedAvg + ASD"]
