"""Predictions for the CUDA kernels, from datasheets: python -m benchmarks.roofline prints those of docs/kernels.md.

Nothing here was measured on a GPU.  Every function is a line or two of arithmetic, meant to be checked by the reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .cases import SHAPES, shape_name

LAUNCH_SECONDS = (
    3e-6  # assumed: from the start of an empty kernel to its end, as CUDA events see it (2 to 4 microseconds)
)
GRID_BARRIER_SECONDS = 1.5e-6  # assumed: a cooperative launch and its barrier (1 to 2 microseconds)
ACCESS_SECONDS = 0.5e-6  # assumed: one access to memory that the next step needs the result of
EXPONENTIALS_PER_CLOCK = (
    16  # exponentials of a multiprocessor and clock (CUDA C++ Programming Guide, Arithmetic Instructions)
)
INSTRUCTIONS_PER_CLOCK = 128  # instructions, counted by thread: four schedulers, one instruction of a warp each
ROUNDS, RAW_ROUNDS = 1, 2  # of short rows in one block: kRounds and kRawRounds in csrc/cuda/asd.cu
CLASSES_OF_A_THREAD = 16  # of a long row, in a step: csrc/cuda/asd.cu
CACHED_ROWS_OF_A_THREAD = 8  # more of them, and the blocks share the weights out: csrc/cuda/asd.cu
CLASSES_OF_A_PART = 4096  # at least, of a row that blocks share: csrc/cuda/asd.cu
WIDE_BYTES_OF_A_WARP = {4: 512, 2: 256}  # that one wide load asks for, by the size of an element

# Instructions of an element and wide loads in flight, as benchmarks/sass.py counts them for sm_80, by the classes that
# a thread holds (0: a long row) and the size of an element; the teacher's pass and the student's.  A thread of 16
# classes is not among the main kernels and counts as one of 8; short rows of a half type count as float32.
INSTRUCTIONS = {
    True: {(4, 4): 87.8, (8, 4): 60.0, (32, 4): 32.8, (0, 4): 32.2, (0, 2): 40.4},
    False: {(4, 4): 136.5, (8, 4): 87.6, (32, 4): 53.2, (0, 4): 51.5, (0, 2): 61.4},
}
LOADS_IN_FLIGHT = {4: 2, 8: 4, 16: 8, 32: 16, 0: 4}


@dataclass(frozen=True)
class Gpu:
    name: str
    bandwidth: float  # bytes a second
    l2: int  # bytes
    multiprocessors: int
    clock: float  # Hz: the boost clock that the datasheet's float32 rate is made of


GPUS = (
    Gpu("A100 80GB SXM", 2039e9, 40 * 2**20, 108, 1.41e9),
    Gpu("H100 SXM", 3350e9, 50 * 2**20, 132, 1.98e9),
    Gpu("L4", 300e9, 48 * 2**20, 58, 2.04e9),
    Gpu("RTX 4090", 1008e9, 72 * 2**20, 128, 2.52e9),
)


@dataclass(frozen=True)
class Tile:
    """Float arithmetic: csrc/cuda/tiles.cuh, and how many blocks a multiprocessor holds (sm_80, sm_89, sm_90)."""

    lanes: int  # 0: a block a row
    slots: int
    max_threads: int
    threads: int  # at most, where several blocks share a client
    resident: int  # blocks of so many threads


def tile(classes: int) -> Tile:
    if classes > 1024:
        return Tile(0, 16, 256, 256, 2)
    lanes = 4 if classes <= 16 else 8 if classes <= 32 else 16 if classes <= 128 else 32
    slots = 4 if classes <= 64 else 8 if classes <= 256 else 16 if classes <= 512 else 32
    return Tile(lanes, slots, 256 if slots <= 8 else 128, 128, 6 if slots <= 8 else 3)


@dataclass(frozen=True)
class LossCall:
    """One call for loss and gradient with kl; student, teacher and gradient have elements of `size` bytes."""

    clients: int
    batch: int
    classes: int
    size: int = 4
    cached: bool = True

    @property
    def rows(self) -> int:
        return self.clients * self.batch

    @property
    def row(self) -> int:
        return self.classes * self.size


@dataclass(frozen=True)
class Grid:
    blocks: int  # of a client
    threads: int
    teams: int  # rows in progress at once in a block
    parts: int = 1  # blocks that share a row


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def grid(call: LossCall, gpu: Gpu) -> Grid:
    """What csrc/cuda/asd.cu launches."""
    t = tile(call.classes)

    def block(limit: int) -> tuple[int, int]:
        wanted = call.batch * t.lanes if t.lanes else ceil_div(call.classes, CLASSES_OF_A_THREAD)
        threads = min(limit, max(32, 32 * ceil_div(wanted, 32)))
        return threads, threads // t.lanes if t.lanes else 1

    threads, teams = block(t.max_threads)
    most = 1 if not t.lanes else ROUNDS if call.cached else RAW_ROUNDS
    found = 1
    if ceil_div(call.batch, teams) > most:
        shared, shared_teams = block(t.threads)
        blocks = min(ceil_div(call.batch, shared_teams), gpu.multiprocessors * t.resident // call.clients)
        if blocks > 1:
            threads, teams, found = shared, shared_teams, blocks
    if t.lanes == 0:
        parts = min(gpu.multiprocessors * t.resident // call.rows, call.classes // CLASSES_OF_A_PART, threads)
        if parts > 1:
            return Grid(call.batch * parts, threads, 1, parts)
    return Grid(found, threads, teams)


def rounds(call: LossCall, gpu: Gpu) -> int:
    """Rows that a team goes through, one after another."""
    g = grid(call, gpu)
    return ceil_div(call.batch, g.blocks // g.parts * g.teams)


def numbers_bytes(call: LossCall) -> int:
    """Besides the rows of classes.  Labels and row numbers are int64, a cache's constants and weights double."""
    if call.cached:
        return call.rows * 5 * 8 + call.clients * 4  # label, row, the cache's label, constant and weight; loss
    return call.rows * (8 + 4 + 3 * 4) + call.clients * 4  # label, share, three numbers kept of the teacher; loss


def student_again(call: LossCall) -> int:
    """Bytes of the student that are read a second time."""
    return call.rows * call.row if tile(call.classes).lanes == 0 else 0


def student_again_from_memory(call: LossCall, gpu: Gpu) -> int:
    """Nothing if L2 holds the student's row of every block that runs: teacher and gradient leave the caches first."""
    g = grid(call, gpu)
    running = min(call.clients * g.blocks, gpu.multiprocessors * tile(call.classes).resident)
    return 0 if running * call.row <= gpu.l2 * g.parts else student_again(call)


def teacher_again(call: LossCall, gpu: Gpu) -> int:
    """Bytes of a raw teacher that are read a second time: all rows but the last of each team, which is in registers."""
    if call.cached:
        return 0
    g = grid(call, gpu)
    kept = min(call.batch, g.blocks * g.teams) if tile(call.classes).lanes else 0
    return call.clients * (call.batch - kept) * call.row


def teacher_again_from_memory(call: LossCall, gpu: Gpu) -> int:
    """The student phase goes backwards: the rows read last are in L2, together with their students and gradients."""
    in_l2 = gpu.l2 // (3 * call.row) * call.row
    return max(0, teacher_again(call, gpu) - in_l2)


def memory_bytes(call: LossCall, gpu: Gpu) -> int:
    """Read from and written to memory."""
    once = 3 * call.rows * call.row + numbers_bytes(call)
    return once + student_again_from_memory(call, gpu) + teacher_again_from_memory(call, gpu)


def publishes_sums(call: LossCall, gpu: Gpu) -> bool:
    """Each block sums its part of the weights, and all meet at a barrier of the grid."""
    g = grid(call, gpu)
    return g.blocks > 1 and (not call.cached or call.batch > CACHED_ROWS_OF_A_THREAD * g.threads)


def weights_bytes(call: LossCall, gpu: Gpu) -> int:
    """From L2 or L1: label, row and weight of every cached row, read by one block or by all of its client's."""
    if not call.cached:
        return 0
    return call.rows * 3 * 8 * (1 if publishes_sums(call, gpu) else grid(call, gpu).blocks)


def busiest_elements(call: LossCall, gpu: Gpu) -> int:
    """Elements of the multiprocessor that has most to do."""
    g = grid(call, gpu)
    rows_of_a_block = min(call.batch, rounds(call, gpu) * g.teams)
    classes = ceil_div(call.classes, g.parts)
    return rows_of_a_block * ceil_div(call.clients * g.blocks, gpu.multiprocessors) * classes


def exponentials(cached: bool) -> int:
    """Of an element: two in the student's softmax, two again for the gradient; raw: three of the teacher."""
    return 4 if cached else 7


def instructions(call: LossCall) -> float:
    """Of an element, aligned, in the machine code for sm_80: python -m benchmarks.sass."""
    t = tile(call.classes)
    if t.lanes == 0:
        return INSTRUCTIONS[call.cached][0, call.size]
    return INSTRUCTIONS[call.cached][8 if t.slots == 16 else t.slots, 4]


def in_flight_seconds(call: LossCall, gpu: Gpu) -> float:
    """At least so long: a multiprocessor gets what its warps ask for at once, every time an access takes."""
    t, g = tile(call.classes), grid(call, gpu)
    blocks = min(call.clients * g.blocks, gpu.multiprocessors * t.resident)
    loads = LOADS_IN_FLIGHT[t.slots if t.lanes else 0]
    at_once = blocks * g.threads // 32 * loads * WIDE_BYTES_OF_A_WARP[call.size]
    return memory_bytes(call, gpu) / at_once * ACCESS_SECONDS


def memory_seconds(call: LossCall, gpu: Gpu) -> float:
    return memory_bytes(call, gpu) / gpu.bandwidth


def special_seconds(call: LossCall, gpu: Gpu) -> float:
    return busiest_elements(call, gpu) * exponentials(call.cached) / (EXPONENTIALS_PER_CLOCK * gpu.clock)


def issue_seconds(call: LossCall, gpu: Gpu) -> float:
    return busiest_elements(call, gpu) * instructions(call) / (INSTRUCTIONS_PER_CLOCK * gpu.clock)


def waits(call: LossCall, gpu: Gpu) -> int:
    """Accesses that wait for each other.

    Cached: labels, then weights; raw: labels.  Every round all loads of a row at once; of a long row the first step of
    each pass, because later steps are on their way while a step is computed.  With several blocks, the fence after the
    partial loss and the look at the others'.
    """
    return (2 if call.cached else 1) + rounds(call, gpu) * passes(call) + waits_for_blocks(call, gpu)


def passes(call: LossCall) -> int:
    """Over a row, each of which begins with a wait."""
    return (2 if tile(call.classes).lanes == 0 else 1) + (0 if call.cached else 1)


def waits_for_blocks(call: LossCall, gpu: Gpu) -> int:
    """The partial losses of several blocks; of a row in parts each softmax and the sum over classes: out and back."""
    g = grid(call, gpu)
    return (2 if g.blocks > 1 else 0) + (2 * (2 if call.cached else 3) if g.parts > 1 else 0)


def floor_seconds(call: LossCall, gpu: Gpu) -> float:
    """Launch, and the grid barrier where there is one."""
    return LAUNCH_SECONDS + (GRID_BARRIER_SECONDS if publishes_sums(call, gpu) else 0)


def parts(call: LossCall, gpu: Gpu) -> dict[str, float]:
    arithmetic = max(special_seconds(call, gpu), issue_seconds(call, gpu))
    memory = max(memory_seconds(call, gpu), in_flight_seconds(call, gpu))
    return {"memory": memory, "arithmetic": arithmetic, "waiting": waits(call, gpu) * ACCESS_SECONDS}


def predicted(call: LossCall, gpu: Gpu) -> tuple[float, float, str]:
    """Seconds if the parts overlap fully, if they do not at all, and what sets the pace."""
    floor, p = floor_seconds(call, gpu), parts(call, gpu)
    largest = max(p, key=lambda name: p[name])
    return floor + p[largest], floor + sum(p.values()), "launch" if p[largest] < floor else largest


def bandwidth_fraction(call: LossCall, gpu: Gpu) -> float:
    """Of the memory's bandwidth, from the kernel's first instruction to its last.

    Loads overlap with arithmetic, because a multiprocessor has several blocks or rounds.  Not hidden: what comes before
    the first row (labels, weights, the row's own first access), and what blocks have to tell each other.
    """
    p = parts(call, gpu)
    ends = (2 if call.cached else 1) + 1 + waits_for_blocks(call, gpu)
    barrier = GRID_BARRIER_SECONDS if publishes_sums(call, gpu) else 0
    whole = max(p["memory"], p["arithmetic"]) + ends * ACCESS_SECONDS + barrier
    return memory_seconds(call, gpu) / whole


def calls() -> list[LossCall]:
    """The shapes of the loss benchmark; those of a million elements and more in bfloat16 too."""
    found = []
    for shape in SHAPES:
        clients, batch, classes = shape if len(shape) == 3 else (1, *shape)
        call = LossCall(clients, batch, classes)
        found += [call] if len(shape) == 3 or call.rows * classes < 10**6 else [call, replace(call, size=2)]
    return found


def name(call: LossCall) -> str:
    shape = (call.batch, call.classes) if call.clients == 1 else (call.clients, call.batch, call.classes)
    return shape_name(shape).replace("x", " x ") + (" bf16" if call.size == 2 else "")


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] + ["---:"] * (len(head) - 1), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def gpu_table() -> str:
    head = ["", "memory, GB/s", "L2, MiB", "multiprocessors", "clock, GHz", "10^12 exponentials a second"]
    return table(head, (
        [g.name, f"{g.bandwidth / 1e9:.0f}", f"{g.l2 / 2**20:.0f}", f"{g.multiprocessors}", f"{g.clock / 1e9:.2f}",
         f"{EXPONENTIALS_PER_CLOCK * g.multiprocessors * g.clock / 1e12:.2f}"] for g in GPUS
    ))  # fmt: skip


def grid_table() -> str:
    """Blocks of all clients and rounds, cached."""
    lines = []
    for call in calls():
        if call.size == 2:
            continue
        grids = [f"{call.clients * grid(call, gpu).blocks} / {rounds(call, gpu)}" for gpu in GPUS]
        lines.append([name(call), f"{grid(call, GPUS[0]).threads}", f"{grid(call, GPUS[0]).teams}", *grids])
    return table(["shape", "threads", "rows at once", *(g.name for g in GPUS)], lines)


def bytes_table() -> str:
    lines = []
    for call in calls():
        raw = replace(call, cached=False)
        read = [memory_bytes(call, GPUS[0]), *(memory_bytes(raw, gpu) for gpu in GPUS)]
        again = [student_again(call), student_again(raw) + teacher_again(raw, GPUS[0])]
        lines.append([name(call), *(megabytes(b) for b in (*read, *again))])
    head = ["MB", "cached", *(f"raw, {g.name}" for g in GPUS), "read again: cached", "raw, A100"]
    return table(head, lines)


def time_table(cached: bool) -> str:
    lines = []
    for call in calls():
        cells = []
        for gpu in GPUS:
            best, worst, bound = predicted(replace(call, cached=cached), gpu)
            cells.append(f"{microseconds(best)} - {microseconds(worst)} {bound}")
        lines.append([name(call), *cells])
    return table(["cached" if cached else "raw", *(g.name for g in GPUS)], lines)


def arithmetic_table() -> str:
    """Memory / exponentials / instructions, for the shapes that fill a GPU."""
    lines = []
    for call in calls():
        if call.rows < 512 or call.rows * call.classes < 10**6:
            continue
        for cached in (True, False):
            w = replace(call, cached=cached)
            cells = [
                " / ".join(microseconds(f(w, gpu)) for f in (memory_seconds, special_seconds, issue_seconds))
                for gpu in GPUS
            ]
            lines.append([f"{name(call)}, {'cached' if cached else 'raw'}", *cells])
    return table(["microseconds", *(g.name for g in GPUS)], lines)


def fraction_table() -> str:
    """Of the bandwidth, cached / raw."""
    lines = []
    for call in calls():
        both = (call, replace(call, cached=False))
        cells = [" / ".join(f"{bandwidth_fraction(w, gpu):.0%}" for w in both) for gpu in GPUS]
        lines.append([name(call), *cells])
    return table(["of the bandwidth, cached / raw", *(g.name for g in GPUS)], lines)


def microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.2g}" if seconds < 9.95e-6 else f"{1e6 * seconds:.0f}"


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2g}" if count < 9.95e6 else f"{count / 1e6:.0f}"


def tables() -> tuple[str, ...]:
    return (
        gpu_table(),
        grid_table(),
        bytes_table(),
        time_table(cached=True),
        time_table(cached=False),
        arithmetic_table(),
        fraction_table(),
    )


def main() -> None:
    print("\n".join(tables()), end="")


if __name__ == "__main__":
    main()
