"""Parameters and running statistics in one vector: what is taken apart is put together again."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast.simulation.vector_layout import VectorLayout


@given(st.integers(1, 6), st.integers(0, 4), st.integers(0, 3), st.data())
def test_parts(parameters: int, statistics: int, clients: int, data: st.DataObject) -> None:
    size = parameters + statistics
    flags = data.draw(st.none() | st.lists(st.booleans(), min_size=size, max_size=size))
    layout = VectorLayout(statistics, None if flags is None else torch.tensor(flags))
    vectors = torch.randn(*([clients] if clients else []), size)
    assert torch.equal(layout.whole(layout.trained(vectors), layout.statistics(vectors)), vectors)
    assert layout.whole(layout.trained(vectors))[..., parameters:].eq(0).all()
    local = torch.tensor(flags if flags is not None else [False] * size)
    assert layout.exchanged(size) == size - int(local.sum())
    own = torch.full_like(vectors, 7.0)
    mixed = layout.personal(vectors, own)
    assert torch.equal(mixed[..., local], own[..., local])
    assert torch.equal(mixed[..., ~local], vectors[..., ~local])
    assert torch.equal(layout.personal(layout.trained(vectors), layout.trained(own)), layout.trained(mixed))
    assert not layout.shared(layout.trained(vectors))[..., local[:parameters]].any()
