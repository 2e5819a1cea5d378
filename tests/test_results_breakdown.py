"""What docs/results.md says of the breakdown of FedAvg+ASD, and of what starts one, is what the runs say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from .results_runs import (
    BF16,
    CACHE,
    DOCS,
    FEDAVG_ASD,
    FEDAVG_ASD_SEED_1,
    FEDDYN_ASD,
    FEDNTD,
    FEDNTD_20,
    FEDNTD_ASD,
    FEDNTD_SEED_1,
    UNIFORM,
    accuracies,
    curve,
    rounds_of,
    row,
)

SPIKE = 6.0
RUNS = (FEDAVG_ASD, FEDAVG_ASD_SEED_1, CACHE, BF16, FEDDYN_ASD, FEDNTD, FEDNTD_SEED_1, FEDNTD_ASD)
MANY = 5


def prose() -> str:
    return " ".join((DOCS / "results.md").read_text().split())


def before_spikes(run: Path) -> Iterator[int]:
    """The participants of the round before each round in which a spike of the loss begins."""
    rounds = rounds_of(run)
    for earlier, later in pairwise(rounds[1:]):
        if later["loss"] > SPIKE >= earlier["loss"]:
            yield earlier["client_updates"]


def starts() -> tuple[Counter[int], Counter[int]]:
    """Rounds, and spikes that begin after them, by participants; five stand for five or more."""
    counts = Counter(min(r["client_updates"], MANY) for run in RUNS for r in rounds_of(run)[1:-1])
    return counts, Counter(min(participants, MANY) for run in RUNS for participants in before_spikes(run))


def start_rows() -> list[str]:
    counts, spikes = starts()
    return [
        row(
            f"{k} or more" if k == MANY else str(k),
            f"{counts[k]:,}",
            str(spikes[k]),
            f"{1000 * spikes[k] / counts[k]:.0f}",
        )
        for k in range(1, MANY + 1)
    ]


def test_spikes_begin_after_rounds_with_few_participants() -> None:
    _, spikes = starts()
    assert "\n".join(start_rows()) in (DOCS / "results.md").read_text()
    assert f"{spikes.total()} begin" in prose()
    assert not [*before_spikes(UNIFORM), *before_spikes(FEDNTD_20)]
    few = spikes[1] + spikes[2]
    assert f"{few} of {spikes.total()} begin after a round with one or two participants" in prose()


def story() -> str:
    sel, everyone = curve(FEDAVG_ASD_SEED_1, "sel"), curve(FEDAVG_ASD_SEED_1, "all")
    lost = [20 * (k + 1) for k, value in enumerate(sel) if value < 2 and k > 5]
    return (
        f"At round 614 one begins that lasts: `sel` falls from {sel[29]:.2f} (round 600) to {sel[31]:.2f} (round 640), "
        f"stays below 2 % from round {lost[0]} to {lost[-1]}, and is back at {sel[44]:.2f} at round 900. `all`, which "
        "averages the last upload of every client, follows with a delay of many rounds: it falls to "
        f"{min(everyone[5:]):.2f} % and is at {accuracies(FEDAVG_ASD_SEED_1)[2]:.2f} % at the end."
    )


def test_the_breakdown_of_fedavg_asd() -> None:
    assert story() in prose()
    losses = [r["loss"] for r in rounds_of(FEDAVG_ASD_SEED_1)]
    first = next(k for k in range(613, 1000) if losses[k] <= SPIKE)  # of round k + 1
    assert f"The loss stays above 6 from round 614 to {first}." in prose()
    few = {r["round"]: r["client_updates"] for r in rounds_of(FEDAVG_ASD_SEED_1)}
    assert (few[613], few[638]) == (2, 1)
