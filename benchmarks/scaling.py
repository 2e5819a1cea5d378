"""The cost model of docs/scaling.md, fitted here: python -m benchmarks.scaling [--quick]

A round of m clients on R ranks takes

    max over ranks of (its clients' steps x step + its clients x client) + all-reduce + state I/O

Each term is measured on this machine; `predict` then puts in what other machines have.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing

from fedasd_fast.config import from_dict
from fedasd_fast.simulation import sampling, state
from fedasd_fast.simulation.cohort import client_tasks, local_steps
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.executors import local_executor
from fedasd_fast.simulation.storage.client_store import ClientStore
from fedasd_fast.simulation.system.threads import threads

SMALL_RUN: dict[str, Any] = dict(
    clients=4000, participation=1.0, local_epochs=1, batch_size=10, executor="stacked", model_args={"hidden": [32]},
    synthetic={"shape": [32], "classes": 10, "samples_per_client": 20},
)  # fmt: skip
LARGE_RUN: dict[str, Any] = dict(
    clients=8, participation=1.0, local_epochs=1, batch_size=50, executor="serial", model="cnn_cifar",
    synthetic={"shape": [3, 32, 32], "classes": 100, "samples_per_client": 100, "test_samples": 10},
)  # fmt: skip
SIZES = (2**14, 2**17, 2**20, 2**23)  # int64 numbers in an all-reduce


@dataclass(frozen=True)
class Machine:
    """What the model needs to know of one rank and the wires between them."""

    flops: float  # a second, of local training on one rank
    client: float  # seconds of bookkeeping for a client
    latency: float  # seconds of an all-reduce of nothing
    bandwidth: float  # bytes a second that leave a rank's machine
    disk: float  # bytes a second, of a rank's share of the disk
    ranks_per_host: int = 1


# Eight machines with eight GPUs each.  A step of 4.4 GFLOP in about a millisecond, which its launches alone take;
# 100 Gbit/s between machines; 2 GB/s of disk in each, for eight ranks.  Nobody has measured these for us.
GPUS = Machine(flops=4e12, client=2e-3, latency=2e-4, bandwidth=12.5e9, disk=0.25e9, ranks_per_host=8)


@dataclass(frozen=True)
class Job:
    parameters: int
    step_flops: float
    steps: int  # of a client
    cohort: int
    rows: int = 2  # int64 vectors in the all-reduce: the mean, the all-clients average, one for each client state
    record: int = 0  # vectors that a client keeps
    owned: bool = True  # whether a client belongs to one rank, because it keeps something


# The paper's CNN, clients of 100 samples, 5 epochs in batches of 50.
JOBS = {
    "nothing": Job(815_124, 4.4e9, 10, 0, rows=1, owned=False),
    "last upload": Job(815_124, 4.4e9, 10, 0, rows=2, record=1),
    "upload and h (FedDyn)": Job(815_124, 4.4e9, 10, 0, rows=3, record=2),
}


def imbalance(cohort: int, ranks: int, draws: int = 2000) -> float:
    """The largest share of a round's clients over the mean, where a client's rank is its number modulo the ranks."""
    rng = np.random.default_rng(0)
    return float(rng.multinomial(cohort, [1 / ranks] * ranks, size=draws).max(1).mean() * ranks / cohort)


def predict(job: Job, machine: Machine, ranks: int) -> dict[str, float]:
    """Seconds of a round, by part."""
    even = np.ceil(job.cohort / ranks)
    mine = job.cohort / ranks * imbalance(job.cohort, ranks) if job.owned else even
    hosts = max(1, ranks // machine.ranks_per_host)
    sent = 2 * (hosts - 1) / hosts * 8 * job.parameters * job.rows  # a ring's
    return {
        "compute": mine * job.steps * job.step_flops / machine.flops,
        "clients": mine * machine.client,
        "all-reduce": machine.latency + sent / machine.bandwidth if ranks > 1 else 0.0,
        "state": mine * 2 * job.record * 4 * job.parameters / machine.disk,
    }


def line(xs: list[float], ys: list[float]) -> tuple[float, float, float]:
    """Intercept, slope and the largest relative error of the straight line through the points, weighted by 1/y."""
    x, y = np.array(xs), np.array(ys)
    design = np.stack([np.ones_like(x), x], 1) / y[:, None]
    (intercept, slope), *_ = np.linalg.lstsq(design, np.ones_like(y), rcond=None)
    return float(intercept), float(slope), float(np.abs((intercept + slope * x) / y - 1).max())


def best(function: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def _rank(rank: int, world: int, port: int, repeats: int, answers: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    found = []
    for size in SIZES:
        buffer = torch.zeros(size, dtype=torch.int64)
        torch.distributed.all_reduce(buffer)
        found.append(best(lambda buffer=buffer: torch.distributed.all_reduce(buffer), repeats))  # type: ignore[misc]
    if rank == 0:
        answers.put(found)
    torch.distributed.destroy_process_group()


def all_reduce(world: int, repeats: int) -> list[float]:
    """Seconds for each of SIZES, between processes on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    torch.multiprocessing.spawn(_rank, (world, port, repeats, answers), world)
    found: list[float] = answers.get()
    return found


def training(setting: dict[str, Any], cohorts: tuple[int, ...], repeats: int) -> tuple[list[float], float]:
    """Seconds of rounds with so many clients, one thread, and the floating point operations of a client."""
    config = from_dict(setting | {"threads": 1})
    context = build_context(config)
    server = context.experiment.server(state.first(config, context.experiment.method, context.initial))
    executor = local_executor(context)
    tasks = client_tasks(context.experiment, 0)
    seconds = []
    for cohort in cohorts:
        part = replace(tasks[:cohort], weights=np.full(cohort, 1 / cohort))
        seconds.append(best(lambda part=part: (executor.run(server, part), context.records.rollback()), repeats))  # type: ignore[misc]
    return seconds, int(local_steps(context.experiment, tasks[:1])[0]) * context.step_flops


def state_io(parameters: int, repeats: int) -> tuple[float, float]:
    """Bytes a second of writing records, until they are on disk, and of reading them."""
    count = max(2, 2**27 // (8 * parameters))
    with tempfile.TemporaryDirectory() as folder:
        store = ClientStore(("h", "upload"), parameters, torch.float32, Path(folder))
        vectors = {"h": torch.rand(parameters), "upload": torch.rand(parameters)}
        clients = iter(range(10**9))

        def write() -> None:
            for _ in range(count):
                store.write(next(clients), vectors)
            store.snapshot()

        def read() -> None:
            for client in range(count):
                record = store.read(client)
                assert record is not None
                vectors["h"].copy_(record["h"]), vectors["upload"].copy_(record["upload"])

        size = count * store.record_bytes
        return size / best(write, repeats), size / best(read, repeats)


def population(clients: int, cohort: int) -> dict[str, float]:
    """What a population costs before anybody trains: seconds to draw a cohort, bytes for everybody's size."""
    config = from_dict({"clients": clients, "participation": cohort / clients, "sampling": "fixed"})
    return {"draw": best(lambda: sampling.participants(config, 1), 5), "sizes": 8.0 * clients}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    repeats = 2 if parser.parse_args().quick else 7
    cohorts, few = (100, 500, 1000, 4000), (1, 2, 4, 8)
    with threads(1):
        a = torch.rand(1024, 1024)
        gemm = 2 * 1024**3 / best(lambda: a @ a, 20)
        print(f"one-thread GEMM: {gemm / 1e9:.1f} GFLOP/s")
        for name, setting, counts in (("MLP, stacked", SMALL_RUN, cohorts), ("CNN, serial", LARGE_RUN, few)):
            seconds, flops = training(setting, counts, repeats)
            start, each, error = line([float(c) for c in counts], seconds)
            print(
                f"{name}: {1e3 * start:.2f} ms a round and {1e3 * each:.3f} ms a client of {flops / 1e6:.1f} MFLOP "
                f"({flops / each / 1e9:.1f} GFLOP/s); the line is within {100 * error:.0f} % of {len(counts)} cohorts"
            )
    for world in (2, 4):
        seconds = all_reduce(world, repeats)
        latency, slope, error = line([8.0 * size for size in SIZES], seconds)
        ring = 2 * (world - 1) / world
        print(
            f"all-reduce, {world} gloo ranks on this machine: {1e3 * latency:.2f} ms and {ring / slope / 1e9:.2f} GB/s "
            f"a rank; within {100 * error:.0f} % of {', '.join(f'{1e3 * s:.2f}' for s in seconds)} ms"
        )
    for parameters in (1386, 815_124):
        wrote, read = state_io(parameters, repeats)
        print(f"client state, {parameters:,} parameters: {wrote / 1e9:.2f} GB/s to disk, {read / 1e9:.2f} GB/s back")
    for clients in (10**6, 10**8):
        found = population(clients, 10_000)
        print(
            f"population {clients:,}: {1e3 * found['draw']:.1f} ms to draw 10,000, sizes {found['sizes'] / 1e6:.0f} MB"
        )
    print("| clients a round | keeps | compute | clients | all-reduce | state | seconds | efficiency |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for cohort in (640, 10_000):
        for keeps, job in JOBS.items():
            parts = predict(replace(job, cohort=cohort), GPUS, 64)
            ideal = cohort / 64 * job.steps * job.step_flops / GPUS.flops
            times = " | ".join(f"{value:.3f}" for value in parts.values())
            total = sum(parts.values())
            print(f"| {cohort:,} | {keeps} | {times} | {total:.2f} | {100 * ideal / total:.0f} % |")
    for cohort in (64, 640, 1000, 10_000):
        print(f"{cohort:,} clients on 64 ranks: the busiest has {imbalance(cohort, 64):.2f} times the mean")


if __name__ == "__main__":
    main()
