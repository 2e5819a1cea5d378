"""One simulation in several processes, on one machine or many, with the same result to the last bit.

    python examples/several_machines.py        # in one process, then in two that torchrun starts on this machine

On several machines, run the same command on each of them (HOST is one of them, and 29500 a free port there):

    torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=1 --rdzv-endpoint=HOST:29500 \
        examples/several_machines.py

Every rank has its share of a round's clients, and their sums are added once a round.  Only use a network that you trust
(see SECURITY.md).
"""

import hashlib
import os
import subprocess
import sys

import torch.distributed

import fedasd_fast as fa

SETTINGS = dict(clients=60, participation=0.2, rounds=6, method="feddyn+asd", asd={"weight": 3.0}, threads=1)


def simulate(executor: str) -> str:
    result = fa.simulate(SETTINGS | {"executor": executor})
    digest = hashlib.sha256(result.models["cloud"].numpy().tobytes()).hexdigest()[:16]
    return f"accuracy {result.metrics[-1]['acc_cloud']:.1f} %, sha256 of the model {digest}"


def main() -> None:
    if torch.distributed.is_torchelastic_launched():  # by torchrun: this process is one of the ranks
        outcome = simulate("torchrun")  # the same in all ranks
        if os.environ["RANK"] == "0":
            print(f"{os.environ['WORLD_SIZE']} ranks: {outcome}")
        return
    print(f"1 process: {simulate('serial')}", flush=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-endpoint=localhost:0"]
    command += ["--rdzv-backend=c10d", __file__]
    subprocess.run(
        command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )  # else torchrun sets it with a warning


if __name__ == "__main__":
    main()
