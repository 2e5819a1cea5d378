"""What the compiler made of the CUDA kernels: a table from the output of ptxas.

``make cuda`` compiles with ``-Xptxas -v`` and keeps the output; ``python -m benchmarks.ptxas LOG...`` prints the table.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

KERNEL = re.compile(
    r"(?P<kind>objective|cross_entropy|build_cache)_kernelINS0_"
    r"(?:8WarpTeamI(?P<warp_type>[fd])Li(?P<lanes>\d+)ELi(?P<slots>\d+)EE|"
    r"9BlockTeamI(?P<block_type>[fd])LNS0_7OffsetsE\d+EE)E"
    r"(?:Lb(?P<cached>[01])ELb(?P<kl>[01])ELNS0_4RowsE(?P<rows>[012])E)?"
)
UPDATE = re.compile(r"(?:update_kernelINS0_\d+(?P<row>Step|Ascent)RowI|accumulate_kernelI)(?P<type>[fd])E")
TRAINING = re.compile(r"train_clients_kernelI(?P<type>[fd])E")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?, (\d+) bytes smem)?")


@dataclass(frozen=True)
class Architecture:
    """Limits of a multiprocessor (CUDA C++ Programming Guide, Technical Specifications per Compute Capability)."""

    warps: int
    blocks: int
    shared_kib: int
    registers: int = 65536


ARCHITECTURES = {
    "75": Architecture(32, 16, 64),
    "80": Architecture(64, 32, 164),
    "86": Architecture(48, 16, 100),
    "89": Architecture(48, 24, 100),
    "90": Architecture(64, 32, 228),
    "100": Architecture(64, 32, 228),
    "120": Architecture(48, 24, 100),
}


@dataclass(frozen=True)
class Kernel:
    name: str
    arch: str
    classes: int | None  # the longest row it takes; None: any
    double: bool
    registers: int
    shared: int
    stack: int
    spills: int

    def place(self) -> tuple[bool, str, bool, int]:
        """In the table: by purpose, type and length of row."""
        return self.update, self.name.split(" f")[0], self.double, self.classes or sys.maxsize

    @property
    def update(self) -> bool:
        return self.name.startswith("update")

    @property
    def training(self) -> bool:
        return self.name.startswith("whole client")

    @property
    def threads(self) -> int:
        """Of a block where several share the work (csrc/cuda/asd.cu, update.cuh), or that trains a large client."""
        return 512 if self.training and not self.double else 128 if self.classes else 256

    @property
    def warps(self) -> int:
        """Resident on a multiprocessor: what registers, shared memory and the architecture's own limits allow."""
        arch = ARCHITECTURES[self.arch]
        warps = self.threads // 32
        registers_of_a_warp = -(-self.registers * 32 // 256) * 256  # allocated in units of 256
        reserved = 1024 if int(self.arch) >= 80 else 0  # shared memory the system takes of each block
        by_registers = arch.registers // registers_of_a_warp // warps
        by_shared = arch.shared_kib * 1024 // max(1, self.shared + reserved)
        return min(by_registers, by_shared, arch.warps // warps, arch.blocks) * warps

    @property
    def occupancy(self) -> float:
        return self.warps / ARCHITECTURES[self.arch].warps


def read(log: str) -> Iterator[Kernel]:
    """The kernels in the output of ``nvcc -Xptxas -v``."""
    entry: re.Match[str] | None = None
    stack = spills = 0
    for line in log.splitlines():
        if found := ENTRY.search(line):
            entry = found
        elif found := STACK.search(line):
            # The kernel's own line, and one for each function it calls.
            stack, spills = max(stack, int(found[1])), max(spills, int(found[2]) + int(found[3]))
        elif (found := USED.search(line)) and entry:
            name, classes, double = describe(entry[1])
            yield Kernel(
                name=name,
                arch=entry[2],
                classes=classes,
                double=double,
                registers=int(found[1]),
                shared=int(found[2] or 0),
                stack=stack,
                spills=spills,
            )
            entry, stack, spills = None, 0, 0


def describe(symbol: str) -> tuple[str, int | None, bool]:
    """Name, longest row and whether it computes in double."""
    if training := TRAINING.search(symbol):
        return f"whole client, {'f64' if training['type'] == 'd' else 'f32'}", None, training["type"] == "d"
    if update := UPDATE.search(symbol):
        what = {"Step": "step", "Ascent": "ascent", None: "accumulation"}[update["row"]]
        return f"update: {what}, {'f64' if update['type'] == 'd' else 'f32'}", None, update["type"] == "d"
    kernel = KERNEL.search(symbol)
    if not kernel:
        raise ValueError(f"unknown kernel {symbol}; teach benchmarks/ptxas.py its name")
    g = kernel.groupdict()
    double = (g["warp_type"] or g["block_type"]) == "d"
    row = f"{g['lanes']} lanes x {g['slots']}" if g["lanes"] else "block a row"
    teacher = "cached" if g["cached"] == "1" else "raw"
    what = {"build_cache": "cache", "cross_entropy": "cross-entropy"}.get(g["kind"], teacher)
    loss = "" if g["kl"] is None else " kl" if g["kl"] == "1" else " reverse_kl, js"
    classes = int(g["lanes"]) * int(g["slots"]) if g["lanes"] else None
    rows = {"1": "f32 rows", "2": "bf16 rows"}.get(g["rows"] or "", "f64" if double else "f32")
    return f"{what}{loss}, {rows}, {row}", classes, double


def table(kernels: Iterable[Kernel]) -> str:
    """One row a kernel; in each architecture's column: registers / resident warps (occupancy)."""
    by_name: dict[str, dict[str, Kernel]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, {})[kernel.arch] = kernel
    archs = [a for a in ARCHITECTURES if any(a in row for row in by_name.values())]
    lines = [
        "| kernel | C up to | shared | stack, spills | " + " | ".join(f"sm_{a}" for a in archs) + " |",
        "|---|---|---|---|" + "---|" * len(archs),
    ]
    for name, row in by_name.items():
        one = row[archs[0]]
        cells = [f"{k.registers} / {k.warps} ({k.occupancy:.0%})" for k in (row[a] for a in archs)]
        outside = f"{max(k.stack for k in row.values())}, {max(k.spills for k in row.values())} B"
        lines.append(f"| {name} | {one.classes or 'any'} | {one.shared} B | {outside} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(paths: list[str]) -> None:
    kernels = sorted((k for path in paths for k in read(Path(path).read_text())), key=Kernel.place)
    if not kernels:
        sys.exit("no kernel in these logs; compile with -Xptxas -v, as make cuda does")
    print("In each architecture's column: registers / warps resident on a multiprocessor (occupancy).\n")
    print(table(kernels), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
