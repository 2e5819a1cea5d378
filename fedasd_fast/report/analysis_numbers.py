"""Key numbers of the analyses, as tables on the report page: eigenvalues, trace, gradient dissimilarity, ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..common.formatting import format_number, method_label
from ..common.html import Html, table

Numbers = Mapping[str, Any]  # what a column is called -> the number, or None


def number_table(name: str, results: Sequence[dict[str, Any]]) -> Html:
    """A row for each run; of an analysis that is not known here, every single number in its file."""
    found = [_numbers(name, result) for result in results]
    columns = [
        column
        for column in dict.fromkeys(column for numbers in found for column in numbers)
        if any(_is_number(numbers.get(column)) for numbers in found)
    ]
    if not columns:
        return Html()
    rows = [
        [result["label"], result["seed"], *(_number_text(numbers.get(column)) for column in columns)]
        for result, numbers in zip(results, found, strict=True)
    ]
    return table(["", "seed", *columns], rows, "Numbers of this analysis")


def _numbers(name: str, result: dict[str, Any]) -> Numbers:
    try:
        return _KEY_NUMBERS[name](result) if name in _KEY_NUMBERS else _single_numbers(result)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):  # a file of another version
        return _single_numbers(result)


def _single_numbers(result: dict[str, Any]) -> Numbers:
    return {key: value for key, value in result.items() if key not in ("label", "seed")}


def _hessian(result: dict[str, Any]) -> Numbers:
    spectrum = result["spectrum"]
    return {
        "top eigenvalue": spectrum["top"][0],
        "smallest": spectrum["smallest"],
        "trace": spectrum["trace"],
        "± (standard error)": spectrum["trace_error"],
        "samples": result["samples"],
        "round": result["round"],
    }


def _dissimilarity(result: dict[str, Any]) -> Numbers:
    """G_d of the run's own loss stands where lambda is the run's weight, 0 without distillation."""
    curve = dict(zip(result["lambdas"], result["normalised"]["values"], strict=True))
    return {
        "G_d of cross-entropy": curve[0.0],
        "G_d at the run's lambda": curve[result["weight"]],
        "lambda": result["weight"],
        "clients": result["clients"],
        "round": result["round"],
    }


def _forgetting(result: dict[str, Any]) -> Numbers:
    after = {f"after {method_label(method)} (%)": value for method, value in result["overall"].items()}
    return {"accuracy before (%)": result["overall_before"], **after, "round": result["round"]}


def _weights(result: dict[str, Any]) -> Numbers:
    return {
        "effective samples (%)": 100 * result["effective_share"],
        "rare labels: samples (%)": 100 * result["rare_samples"],
        "rare labels: weight (%)": 100 * result["rare_weight"],
        "round": result["round"],
    }


def _cost(result: dict[str, Any]) -> Numbers:
    return {
        "forward passes": result["units"][-1],
        "with backward": result["units_with_backward"][-1],
        "training (s)": result["seconds"][-1],
        "rounds": result["rounds"][-1],
    }


_KEY_NUMBERS: dict[str, Callable[[dict[str, Any]], Numbers]] = {
    "hessian": _hessian,
    "dissimilarity": _dissimilarity,
    "forgetting": _forgetting,
    "weights": _weights,
    "cost": _cost,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number_text(value: Any) -> str:
    return format_number(value) if _is_number(value) else "-"
