"""Loads in flight, waits and instructions of the main CUDA kernels, read from their machine code, and their limits.

``make sass`` compiles benchmarks/main_kernels.cu for four architectures and prints the table, as ``make cuda`` does;
the tests hold every kernel to its limits.  nvdisasm is of the CUDA toolkit or of ``pip install nvidia-cuda-nvdisasm``.

Each loop over rows, or over the pieces of a long row, is followed once around, along the path that rows take when they
are aligned: of all paths the one with most wide accesses, then most butterflies (a row that is not ignored), then
fewest tests for NaN (a row that is not masked), then fewest instructions.  A wait is an instruction that needs a
register whose load is still under way; loads arrive in the order in which they were issued.

In code for sm_100 and sm_120 the first pass of a raw teacher is not recognised as a loop: there the counts of raw
kernels are those of the student's passes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .ptxas import describe

# Four elements at once, by their size.
WIDE = {
    4: ("LDG.E.128", "STG.E.128", "STG.E.EF.128", "LDG.E.EF.128"),
    2: ("LDG.E.64.CONSTANT", "LDG.E.EF.64", "STG.E.EF.64"),
}
# Classes of a thread in a step over a long row: of one row, and of student and teacher with the gradient.
LONG_STEP = {False: 16, True: 8}
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
PREDICATE = re.compile(r"^@!?U?P\w+\s+")
WITHOUT_RESULT = ("ST", "RED", "ISETP", "FSETP", "DSETP", "PLOP3", "BRA", "EXIT", "BAR", "MEMBAR", "R2P")


@dataclass
class Code:
    """One kernel: its instructions, and for each label the instruction behind it."""

    instructions: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def operation(self, i: int) -> str:
        return PREDICATE.sub("", self.instructions[i])

    def next(self, i: int) -> list[int]:
        """What may come after instruction i.  Asserts and diverged warps are not followed."""
        text, operation = self.instructions[i], self.operation(i)
        following = [i + 1] if i + 1 < len(self.instructions) else []
        if operation.startswith(("CALL.ABS", "RET", "BRX")):
            return []
        if operation.startswith("EXIT"):
            return following if text.startswith("@") else []
        target = TARGET.search(operation)
        # A call of a label in the kernel is a jump, too.
        if target and operation.startswith(("BRA", "CALL")) and not operation.startswith("BRA.DIV"):
            conditional = text.startswith("@") or re.match(r"BRA\s+!?U?P", operation)
            return [self.labels[target[1]], *(following if conditional else [])]
        return following


def kernels(disassembly: str) -> dict[str, Code]:
    found: dict[str, Code] = {}
    code = Code()
    for line in disassembly.splitlines():
        if symbol := re.match(r"\.text\.(\w+):", line):
            code = found[symbol[1]] = Code()
        elif label := re.match(r"(\.L_x_\d+):", line):
            code.labels[label[1]] = len(code.instructions)
        elif instruction := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?);", line):
            code.instructions.append(instruction[1].strip())
    return found


def loops(code: Code) -> Iterator[tuple[int, set[int]]]:
    """First instruction and body of every loop: those from which its end can be reached without passing its start."""
    before: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    entered, left, stack = {0}, set(), [(0, iter(code.next(0)))]
    while stack:  # depth first: an edge to an instruction that is entered and not left closes a loop
        i, rest = stack[-1]
        j = next(rest, None)
        if j is None:
            left.add(i)
            stack.pop()
            continue
        before.setdefault(j, []).append(i)
        if j not in entered:
            entered.add(j)
            stack.append((j, iter(code.next(j))))
        elif j not in left:
            ends.setdefault(j, []).append(i)
    for start, last in ends.items():
        body, todo = {start}, list(last)
        while todo:
            i = todo.pop()
            if i not in body:
                body.add(i)
                todo += before.get(i, [])
        yield start, body


def path(code: Code, start: int, body: set[int], wide: tuple[str, ...]) -> list[int]:
    """Once around the loop, along the path described above."""
    order: list[int] = []
    entered, left, stack = {start}, set(), [(start, iter(code.next(start)))]
    back: set[tuple[int, int]] = set()
    while stack:
        i, rest = stack[-1]
        j = next((j for j in rest if j in body), None)
        if j is None:
            left.add(i)
            order.append(i)
            stack.pop()
        elif j in entered and j not in left:
            back.add((i, j))
        elif j not in entered:
            entered.add(j)
            stack.append((j, iter(code.next(j))))

    def score(i: int) -> tuple[int, ...]:
        operation = code.operation(i)
        return operation.startswith(wide), operation.startswith("SHFL.BFLY"), -operation.startswith("FSETP.NAN"), -1

    # From the end: `order` has every instruction after all that may follow it.
    best: dict[int, tuple[tuple[int, ...], int]] = {}
    for i in order:
        ways = [(best[j][0], j) for j in code.next(i) if j in best and (i, j) not in back]
        if any((i, j) in back and j == start for j in code.next(i)):
            ways.append(((0, 0, 0, 0), -1))
        if ways:
            after, j = max(ways)
            best[i] = (tuple(a + b for a, b in zip(score(i), after, strict=True)), j)
    taken = [start] if start in best else []
    while taken and best[taken[-1]][1] >= 0:
        taken.append(best[taken[-1]][1])
    return taken


def registers(operands: str) -> list[int]:
    return [int(r) for r in re.findall(r"\bR(\d+)\b", operands)]


def waits(code: Code, taken: list[int], wide: tuple[str, ...]) -> tuple[int, int]:
    """Waits of one time around, and the most wide loads in flight at a wait; the time before has filled the queue."""
    pending: dict[int, int] = {}
    flying: dict[int, bool] = {}
    count = most = 0
    for n, i in enumerate(taken * 2):
        operation = code.operation(i)
        name = operation.split()[0]
        operands = operation[len(name) :]
        if name.startswith(WITHOUT_RESULT):
            result, sources = "", operands
        else:
            result, _, sources = operands.partition(",")
        if needed := [pending[r] for r in registers(sources) if r in pending]:
            if n >= len(taken):
                count += 1
                most = max(most, sum(flying.values()))
            flying = {load: is_wide for load, is_wide in flying.items() if load > max(needed)}
            pending = {r: load for r, load in pending.items() if load in flying}
        for r in registers(result):
            pending.pop(r, None)
        if name.startswith("LDG"):
            flying[n] = name.startswith(wide)
            size = 4 if ".128" in name else 2 if ".64" in name else 1
            pending.update({registers(result)[0] + k: n for k in range(size)})
    return count, most


@dataclass(frozen=True)
class Pass:
    """Once around a loop: a row of short rows, a step of long ones."""

    kernel: str
    arch: str
    wide_loads: int
    wide_stores: int
    in_flight: int  # wide loads, at most, when the first of them is waited for
    waits: int
    instructions: int
    elements: int  # of a thread

    @property
    def per_element(self) -> float:
        return self.instructions / self.elements


def passes(symbol: str, code: Code, arch: str) -> Iterator[Pass]:
    """Of loss kernels in float arithmetic: the loops that move rows, the innermost only."""
    name, _, _ = describe(symbol)
    wide = WIDE[2 if "bf16" in name else 4]
    around = [(start, body) for start, body in loops(code) if any(code.operation(i).startswith(wide) for i in body)]
    short = re.search(r"lanes x (\d+)", name)
    for start, body in sorted(around, key=lambda loop: min(loop[1])):
        if any(other < body for _, other in around):
            continue
        taken = path(code, start, body, wide)
        moved = [code.operation(i) for i in taken if code.operation(i).startswith(wide)]
        loads, stores = (sum(o.startswith(kind) for o in moved) for kind in ("LDG", "STG"))
        if loads == 0:
            continue  # zeros for an ignored row
        elements = int(short[1]) if short else LONG_STEP[stores > 0]
        count, most = waits(code, taken, wide)
        yield Pass(name, arch, loads, stores, most, count, len(taken), elements)


@dataclass(frozen=True)
class Limit:
    in_flight: int  # wide loads, at least, in the pass that has fewest of them
    waits: int  # at most, in the pass that has most of them
    per_element: float  # instructions of all passes, at most
    # The same for sm_100 and sm_120, whose code has loads of both ways into a row, one of them switched off.
    per_element_100: float


LIMITS = {
    "cached kl, f32 rows, 4 lanes x 4": Limit(2, 4, 110, 110),
    "cached kl, f32 rows, 16 lanes x 8": Limit(4, 5, 72, 72),
    "cached kl, f32 rows, 32 lanes x 32": Limit(16, 8, 35, 35),
    "cached kl, f32 rows, block a row": Limit(4, 4, 35, 42),
    "cached kl, bf16 rows, block a row": Limit(4, 4, 42, 51),
    "raw kl, f32 rows, 4 lanes x 4": Limit(1, 4, 160, 105),
    "raw kl, f32 rows, 16 lanes x 8": Limit(1, 4, 105, 70),
    "raw kl, f32 rows, 32 lanes x 32": Limit(7, 8, 56, 40),
    "raw kl, f32 rows, block a row": Limit(4, 4, 54, 48),
    "raw kl, bf16 rows, block a row": Limit(4, 4, 64, 56),
}


@dataclass(frozen=True)
class Counted:
    """A kernel: all its passes over a row."""

    kernel: str
    arch: str
    passes: tuple[Pass, ...]
    spills: int  # accesses to local memory

    @property
    def in_flight(self) -> int:
        return min(p.in_flight for p in self.passes)

    @property
    def waits(self) -> int:
        return max(p.waits for p in self.passes)

    @property
    def per_element(self) -> float:
        return sum(p.per_element for p in self.passes)

    @property
    def most(self) -> float:
        """Instructions an element that are allowed."""
        limit = LIMITS[self.kernel]
        return limit.per_element_100 if int(self.arch) >= 100 else limit.per_element

    def broken(self) -> list[str]:
        """The limits that it does not keep."""
        limit = LIMITS[self.kernel]
        found = [
            (self.in_flight < limit.in_flight, f"{self.in_flight} loads in flight, not {limit.in_flight}"),
            (self.waits > limit.waits, f"{self.waits} waits, more than {limit.waits}"),
            (self.per_element > self.most, f"{self.per_element:.1f} instructions, over {self.most}"),
            (self.spills > 0, f"{self.spills} accesses to local memory"),
        ]
        return [f"{self.kernel}, sm_{self.arch}: {text}" for is_broken, text in found if is_broken]


def nvdisasm() -> str | None:
    """Of the toolkit, or of the package nvidia-cuda-nvdisasm beside this Python."""
    if found := shutil.which("nvdisasm"):
        return found
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or []) if package else []:
        for candidate in sorted(Path(folder).glob("*/bin/nvdisasm")):
            return str(candidate)
    return None


def read(cubin: Path, tool: str) -> list[Counted]:
    """`cubin` is named like main_kernels-sm80.cubin."""
    arch = cubin.stem.rpartition("-sm")[2]
    text = subprocess.run([tool, "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    found = []
    for symbol, code in kernels(text).items():
        spills = sum(code.operation(i).startswith(("LDL", "STL")) for i in range(len(code.instructions)))
        found.append(Counted(describe(symbol)[0], arch, tuple(passes(symbol, code, arch)), spills))
    return sorted(found, key=lambda c: list(LIMITS).index(c.kernel))


def table(found: list[Counted]) -> str:
    lines = [
        "| kernel | sm | wide loads | in flight | waits | wide stores | instructions an element | local |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for c in found:
        limit = LIMITS[c.kernel]
        loads, stores = sum(p.wide_loads for p in c.passes), sum(p.wide_stores for p in c.passes)
        lines.append(
            f"| {c.kernel} | {c.arch} | {loads} | {c.in_flight} (>= {limit.in_flight}) | {c.waits} (<= {limit.waits}) "
            f"| {stores} | {c.per_element:.1f} (<= {c.most}) | {c.spills} (0) |"
        )
    return "\n".join(lines) + "\n"


def main(paths: list[str]) -> None:
    tool = nvdisasm()
    if not tool:
        print("no nvdisasm: pip install nvidia-cuda-nvdisasm for the table of loads in flight and waits")
        return
    print("Once around each loop over rows (long rows: over pieces), aligned; the limits in brackets:\n")
    print(table([c for path in paths for c in read(Path(path), tool)]), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
