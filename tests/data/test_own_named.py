"""`dataset=package.module:function`: data that a function of the user's makes."""

from __future__ import annotations

import numpy as np
import pytest

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_dict
from fedasd_fast.data import Dataset, FederatedData, PartitionedData, federate, from_arrays, from_clients
from fedasd_fast.simulation import simulate

X, Y = np.arange(24, dtype=np.float32).reshape(12, 2), np.arange(12) % 3


def whole(scale: float = 1.0, data_dir: str | None = None) -> Dataset:
    return from_arrays(scale * X, Y, test=(X, Y), name=f"from {data_dir}")  # type: ignore[return-value]


def divided() -> Dataset | PartitionedData:
    return from_clients([(X[:5], Y[:5]), (X[5:], Y[5:])], test=(X, Y))


def unannotated():  # type: ignore[no-untyped-def]
    raise AssertionError("called before it was looked at")


def number() -> int:
    raise AssertionError("called before it was looked at")


def lies() -> FederatedData:
    return 3  # type: ignore[return-value]


def needs(path: str) -> Dataset:
    raise AssertionError(path)


def settings(name: str, **changes: object) -> dict[str, object]:
    return {"dataset": f"{__name__}:{name}", "clients": 0, "executor": "serial", "rounds": 1, **changes}


def test_a_dataset_is_divided_by_the_settings() -> None:
    config = from_dict(settings("whole", clients=4, partition="iid", dataset_args={"scale": 2.0}, data_dir="here"))
    data = federate(config)
    assert data.sizes.tolist() == [3] * 4
    assert data.name == "from here"
    assert float(max(data.client(k).inputs.max() for k in range(4))) == 46.0


def test_divided_data_say_how_many_clients_there_are() -> None:
    result = simulate(settings("divided", participation=1.0))
    assert (result.config.clients, result.metrics[0]["client_updates"]) == (2, 2)
    alone = simulate(settings("divided", participation=1.0, executor="processes", workers=2, threads=1))
    assert alone.metrics[0]["loss"] == pytest.approx(result.metrics[0]["loss"])


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("hole", {}, "has no hole; did you mean whole"),
        ("unannotated", {}, "is a function; expected a function that is annotated to return data"),
        ("number", {}, "annotated to return data"),
        ("Dataset", {}, "is a class; expected a function"),
        ("lies", {}, "returned a int; expected what fa.data.from_arrays"),
        ("whole", {"scal": 1}, "dataset_args.scal of .*; did you mean scale"),
        ("needs", {}, "cannot be made with dataset_args {}.*path"),
    ],
)
def test_errors(name: str, args: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        federate(from_dict(settings(name, dataset_args=args)))


def test_bad_paths() -> None:
    for path, message in (("no_such:make", "as you would import it"), (":make", "expected package.module:function")):
        with pytest.raises(ConfigError, match=message):
            federate(from_dict({"dataset": path}))
