from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast.common.dotted import differences, flatten, lookup, nest

KEYS = st.text("abc", min_size=1, max_size=2)
NESTED = st.recursive(
    st.dictionaries(KEYS, st.integers(0, 3), min_size=1, max_size=3),
    lambda inner: st.dictionaries(KEYS, inner | st.integers(0, 3), min_size=1, max_size=3),
    max_leaves=8,
)


def test_lookup() -> None:
    assert lookup({"asd": {"weight": 3}}, "asd.weight") == 3
    assert lookup({"asd": {"weight": 3}}, "asd.weight.more") is None
    assert lookup({}, "asd.weight") is None


def test_differences_keep_the_order_of_the_first() -> None:
    one, other = {"b": 1, "a": {"y": 1, "x": 2}, "c": 0}, {"a": {"x": 3, "y": 2, "z": 0}, "c": 0, "b": 2}
    assert differences(one, other) == ["b", "a.y", "a.x", "a.z"]


@given(NESTED)
def test_nesting_undoes_flattening(settings: dict[str, Any]) -> None:
    flat = dict(flatten(settings))
    assert nest(flat) == settings
    assert all(lookup(settings, key) == value for key, value in flat.items())
    assert differences(settings, settings) == []
