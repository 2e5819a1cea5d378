"""Randomness is a function of (seed, stream, round, client), the same for ever, and touches nothing global."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedasd_fast.common.randomness import Stream, generator, torch_seeded
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_dict


def raw(seed: int, stream: Stream, round: int = 0, client: int = 0) -> int:
    return int(generator(seed, stream, round, client).bit_generator.random_raw())


def test_numbers_of_streams_are_part_of_every_result() -> None:
    assert {stream.name: int(stream) for stream in Stream} == {
        "PARTITION": 0, "INIT": 1, "SAMPLING": 2, "SHUFFLE": 3, "AUGMENT": 4, "FAILURE": 5, "MODULE": 6, "SYNTHETIC": 7,
        "ANALYSIS": 8, "DEVICE": 9, "AVAILABILITY": 10,
    }  # fmt: skip


def test_pinned() -> None:
    """These change only if every published result does."""
    assert raw(0, Stream.PARTITION) == 11749869230777074271
    assert raw(1, Stream.SAMPLING, 7) == 90777690000730256
    assert raw(2**40 + 1, Stream.SHUFFLE, 1999, 10**6) == 1312217789925457996
    with torch_seeded(0, Stream.INIT):
        assert torch.initial_seed() == 2918264622725855778
    with torch_seeded(5, Stream.MODULE, 3, 499):
        assert torch.initial_seed() == 7267362636256204509


def test_all_that_is_told_matters() -> None:
    """Neighbours, large numbers, and numbers whose words would run together if they were merely written in a row."""
    seeds, rounds, clients = (0, 1, 2, 2**32, 2**32 + 1, 3 * 2**32 + 5), (0, 1, 2, 1000), (0, 1, 2, 2**20)
    keys = [(s, stream, r, c) for s in seeds for stream in Stream for r in rounds for c in clients]
    assert len({raw(*key) for key in keys}) == len(keys)
    seeds_of_torch = set()
    for key in keys[:128]:
        with torch_seeded(*key):
            seeds_of_torch.add(torch.initial_seed())
    assert len(seeds_of_torch) == 128


@pytest.mark.parametrize(
    "neighbour", [(0, Stream.SHUFFLE, 0, 1), (0, Stream.SHUFFLE, 1, 0), (0, Stream.AUGMENT), (1, Stream.SHUFFLE)]
)
def test_neighbours_are_independent(neighbour: tuple[int, Stream]) -> None:
    one, other = generator(0, Stream.SHUFFLE).random(20_000), generator(*neighbour).random(20_000)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03  # four standard deviations


def test_drawing_from_one_stream_does_not_move_another() -> None:
    expected = generator(3, Stream.SAMPLING, 2).random(5)
    generator(3, Stream.AUGMENT, 2).random(1000)
    np.random.random(10)  # noqa: NPY002
    assert (generator(3, Stream.SAMPLING, 2).random(5) == expected).all()


def _leave() -> None:
    with torch_seeded(1, Stream.MODULE, 2, 3):
        torch.rand(100)


def _fail() -> None:
    with pytest.raises(ZeroDivisionError), torch_seeded(1, Stream.MODULE, 2, 3):
        raise ZeroDivisionError(torch.rand(100))


@pytest.mark.parametrize("use", [_leave, _fail])
def test_global_generators_are_as_before(use: Callable[[], None]) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    use()
    generator(0, Stream.INIT).random(3)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_torch_draws_are_repeated_whatever_ran_before() -> None:
    draws = []
    for _ in range(2):
        with torch_seeded(1, Stream.MODULE, 2, 3):
            draws.append(torch.rand(4))
        with torch.random.fork_rng():
            torch.rand(7)
    assert torch.equal(*draws)


def test_negative_seed_is_refused_where_it_is_set() -> None:
    with pytest.raises(ConfigError, match=r"seed = -1; expected a whole number of at least 0"):
        from_dict({"seed": -1})
