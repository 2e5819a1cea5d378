"""Large tensors are sent to workers through memory that all of them see."""

from __future__ import annotations

import torch

from fedasd_fast.simulation.system.shared_memory import SharedMemory, dumps, loads


def test_large_tensors_go_through_the_file() -> None:
    rng = torch.Generator().manual_seed(0)
    large = torch.randn(1000, 700, generator=rng)
    images = torch.randint(255, (700, 3, 32, 32), dtype=torch.uint8, generator=rng)
    value = {"large": large, "again": [large, large.T], "images": images, "small": torch.arange(3), "text": "x"}
    file = SharedMemory()
    data = dumps(value, file)
    assert len(data) < 5000
    for _ in range(2):
        found = loads(data, file)
        assert torch.equal(found["large"], large)
        assert torch.equal(found["again"][1], large.T)
        assert torch.equal(found["images"], images)
        assert found["small"].tolist() == [0, 1, 2]
        assert found["text"] == "x"
        found["large"].zero_()  # private: nobody else sees it
    assert large.abs().max() > 1


def test_tensors_that_a_graph_or_a_subclass_belongs_to_are_pickled_as_usual() -> None:
    parameter = torch.nn.Parameter(torch.ones(600, 600))
    file = SharedMemory()
    found = loads(dumps(parameter, file), file)
    assert isinstance(found, torch.nn.Parameter)
    assert torch.equal(found, parameter)
