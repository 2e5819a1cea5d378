"""The samples of a cohort are those of its clients, one after the other, in both versions of the random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasd_fast.config import Config, from_dict
from fedasd_fast.data.federated import Dataset, FederatedData, PartitionedData, Samples
from fedasd_fast.data.load import federate
from fedasd_fast.simulation.client.cohort_samples import CohortSamples
from fedasd_fast.simulation.client.samples import LocalSamples

ROUND, LIKE = 3, torch.empty(0, dtype=torch.float64)


def ragged(version: int, **settings: Any) -> tuple[Config, FederatedData]:
    config = from_dict({"clients": 9, "size_sigma": 0.8, "random_streams": version, "seed": 2, **settings})
    return config, federate(config)


def images(version: int, augment: str) -> tuple[Config, FederatedData]:
    rng = np.random.default_rng(0)
    train = Samples(
        torch.from_numpy(rng.integers(0, 256, (40, 3, 8, 8), np.uint8)), torch.from_numpy(rng.integers(0, 4, 40))
    )
    dataset = Dataset("own", train, train, 4, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))
    config = from_dict({"clients": 3, "augment": augment, "random_streams": version})
    return config, PartitionedData(dataset, [np.arange(7), np.arange(7, 30), np.arange(30, 40)])


def check(config: Config, data: FederatedData, clients: list[int], epochs: list[int]) -> None:
    cohort = CohortSamples(config, data, ROUND, np.array(clients), np.array(epochs), LIKE)
    alone = [LocalSamples(config, data, ROUND, client, LIKE) for client in clients]
    orders, labels = cohort.padded_orders(), cohort.padded(cohort.targets, -100)
    assert len(cohort) == len(clients)
    for k, samples in enumerate(alone):
        own = slice(cohort.offsets[k], cohort.offsets[k + 1])
        assert torch.equal(cohort.targets[own], samples.targets)
        assert torch.equal(cohort.inputs[own], samples.inputs)
        assert labels[k].tolist() == samples.targets.tolist() + [-100] * (labels.shape[1] - len(samples))
        mine = cohort.orders[cohort.order_offsets[k] : cohort.order_offsets[k + 1]].view(epochs[k], -1)
        for epoch in range(epochs[k]):
            order = samples.order().tolist()
            assert mine[epoch].tolist() == order
            padding = list(range(len(samples), labels.shape[1]))
            assert orders[epoch, k].tolist() == order + padding
        for epoch in range(epochs[k], len(orders)):
            assert orders[epoch, k].tolist() == list(range(labels.shape[1]))
    for epoch in range(len(orders)):
        view = cohort.view(epoch)
        for k, samples in enumerate(alone):
            expected = samples.view() if epoch < epochs[k] else samples.inputs
            assert torch.equal(view[cohort.offsets[k] : cohort.offsets[k + 1]], expected)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("partition", ["dirichlet_0.3", "iid", "shards_2"])
def test_synthetic_clients(version: int, partition: str) -> None:
    config, data = ragged(version, partition=partition)
    check(config, data, [7, 0, 3, 8], [2, 1, 3, 2])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("augment", ["none", "round", "epoch"])
def test_images(version: int, augment: str) -> None:
    check(*images(version, augment), [2, 0, 1], [1, 3, 2])


@pytest.mark.parametrize("version", [1, 2])
def test_equal_sizes_need_no_padding(version: int) -> None:
    config, data = ragged(version, size_sigma=0.0)
    cohort = CohortSamples(config, data, ROUND, np.array([1, 5]), np.array([2, 2]), LIKE)
    assert cohort.padded_rows is None
    assert cohort.padded(cohort.inputs).data_ptr() == cohort.inputs.data_ptr()
    check(config, data, [1, 5], [2, 2])


@given(chosen=st.sets(st.integers(0, 8), min_size=1), version=st.sampled_from([1, 2]))
@settings(max_examples=20, deadline=None)
def test_a_client_has_the_same_samples_and_orders_in_any_cohort(chosen: set[int], version: int) -> None:
    config, data = ragged(version)
    everyone = CohortSamples(config, data, ROUND, np.arange(9), np.full(9, 2), LIKE)
    some = CohortSamples(config, data, ROUND, np.array(sorted(chosen)), np.full(len(chosen), 2), LIKE)
    for k, client in enumerate(sorted(chosen)):
        for name, offsets in (("inputs", "offsets"), ("targets", "offsets"), ("orders", "order_offsets")):
            one, other = getattr(some, offsets), getattr(everyone, offsets)
            mine = getattr(some, name)[one[k] : one[k + 1]]
            assert torch.equal(mine, getattr(everyone, name)[other[client] : other[client + 1]])


class OwnClients(PartitionedData):
    """A subclass that changes what a client has."""

    def client(self, k: int) -> Samples:
        samples = super().client(k)
        return Samples(samples.inputs, (samples.targets + k) % 4)


def test_a_subclass_that_replaces_client_is_asked() -> None:
    config, data = images(2, "none")
    assert isinstance(data, PartitionedData)
    own = OwnClients(data.dataset, [data.rows(k).numpy() for k in range(3)])
    cohort = CohortSamples(config, own, ROUND, np.array([2, 1]), np.array([1, 1]), LIKE)
    assert torch.equal(cohort.targets, torch.cat([own.client(2).targets, own.client(1).targets]))


def test_too_few_samples_are_told() -> None:
    config, data = images(2, "none")
    data.sizes = data.sizes + torch.tensor([0, 0, 1])

    class Short(FederatedData):
        name, num_classes, input_shape, sizes, test, nbytes = "short", 4, (3, 8, 8), data.sizes, data.test, 0

        def client(self, k: int) -> Samples:
            return Samples(data.test.inputs[:7], data.test.targets[:7])

    with pytest.raises(ValueError, match="short gave 7 samples for clients that have 11 by `sizes`"):
        CohortSamples(config, Short(), ROUND, np.array([2]), np.array([1]), LIKE)
