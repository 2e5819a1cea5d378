from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedasd_fast.common.compact_json import SERIES_LENGTH, dumps

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=SERIES_LENGTH - 1) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_arrays_are_on_one_line() -> None:
    text = dumps({"a": [1, 2.5, None], "b": [[1, 2], [3]], "c": {}, "d": [{"x": []}]})
    assert text.splitlines() == [
        "{", ' "a": [1, 2.5, null],', ' "b": [', "  [1, 2],", "  [3]", " ],", ' "c": {},', ' "d": [', "  {",
        '   "x": []', "  }", " ]", "}",
    ]  # fmt: skip


@given(VALUES)
def test_nothing_is_lost_in_short_arrays(value: Any) -> None:
    assert json.loads(dumps(value)) == value


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(), min_size=SERIES_LENGTH))
def test_long_series_keep_six_digits(values: list[float]) -> None:
    text = dumps({"series": values})
    found = json.loads(text)["series"]
    assert len(text.splitlines()) == 3
    assert all(math.isclose(a, b, rel_tol=5e-6, abs_tol=5e-324) for a, b in zip(found, values, strict=True))
    assert all(a == b for a, b in zip(found, values, strict=True) if isinstance(b, int))
    assert dumps(json.loads(text)) == text  # rounding again changes nothing
