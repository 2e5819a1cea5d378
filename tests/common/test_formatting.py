from __future__ import annotations

import pytest

from fedasd_fast.common.formatting import (
    format_accuracy,
    format_bytes,
    format_mean,
    format_number,
    format_signed,
    method_label,
    plural,
)


def test_numbers_over_seeds() -> None:
    assert format_mean([93.456]) == "93.46"
    assert format_mean([None, 90.0, 94.0]) == "92.00 ± 2.83"
    assert format_mean([None]) == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [(12161.4, "12,161"), (-1000, "-1,000"), (999.96, "1,000"), (999.94, "999.9"), (13.674, "13.67"), (0, "0")],
)
def test_large_numbers_are_written_without_an_exponent(value: float, text: str) -> None:
    assert format_number(value) == text


def test_method_labels() -> None:
    assert method_label("scaffold+asd") == "SCAFFOLD+ASD"
    assert method_label("my.module:Method") == "my.module:Method"


def test_accuracies_and_differences() -> None:
    assert [format_accuracy(93.456, 0.306), format_accuracy(93.456), format_accuracy(None)] == [
        "93.46 ± 0.31",
        "93.46",
        "-",
    ]
    assert [format_signed(1.25), format_signed(-0.5), format_signed(None)] == ["+1.25", "-0.50", "-"]
    assert [plural(1, "run"), plural(1200, "run")] == ["1 run", "1,200 runs"]


def test_sizes() -> None:
    sizes = (0, 999, 1000, 2.5e6, 1e9, 3.21e12)
    assert [format_bytes(size) for size in sizes] == ["0 B", "999 B", "1.0 KB", "2.5 MB", "1.0 GB", "3.2 TB"]
