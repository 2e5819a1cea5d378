"""Runs that take a second, and what is left of them, for the tests of robustness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedasd_fast.common.schema import merge
from fedasd_fast.config import Config, from_dict
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.distributed.sharding import Shard
from fedasd_fast.simulation.restore import restore, saved_parallelism
from fedasd_fast.simulation.storage import checkpoint
from fedasd_fast.simulation.storage.run_directory import RunDirectory

SETTINGS: dict[str, Any] = {
    "synthetic": {"shape": [12], "classes": 5, "samples_per_client": 16, "test_samples": 50},
    "model_args": {"hidden": [16]}, "executor": "serial",
    "asd": {"weight": 2.0},
    "clients": 12, "participation": 0.4, "rounds": 7, "local_epochs": 1, "batch_size": 8, "checkpoint_every": 2,
}  # fmt: skip


def small(**changes: Any) -> Config:
    return from_dict(merge(SETTINGS, changes))


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of metrics without what differs from one clock to the next."""
    return [{key: value for key, value in row.items() if not key.startswith("seconds")} for row in rows]


def contents(out: Path | str) -> dict[str, Any]:
    """All results in the folder of a run, down to the records of its clients, in a form that == compares by bits."""
    folder = RunDirectory(Path(out))
    config = folder.config()
    kept = checkpoint.load(folder.checkpoints)
    context = build_context(config, shard=Shard(folder.clients), parallelism=saved_parallelism(kept[0]))
    state = restore(context, kept, read_only=True)
    found = {name: bits(value) for name, value in vars(state).items()}
    found["records"] = {k: bits(record) for k in range(config.clients) if (record := context.records.read(k))}
    found["metrics"] = timeless(folder.metrics())
    models = folder.path / "models.pt"
    found["models"] = bits(torch.load(models, weights_only=True)) if models.exists() else None
    return found


def bits(value: Any) -> Any:
    if isinstance(value, Tensor):
        return str(value.dtype), value.numpy().tobytes()
    return {key: bits(item) for key, item in value.items()} if isinstance(value, dict) else value


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """With a short message: the bytes themselves would fill the screen."""
    assert one["metrics"] == other["metrics"]
    assert one.keys() == other.keys()
    assert one["records"].keys() == other["records"].keys()
    assert [key for key in one if one[key] != other[key]] == []


def files(folder: Path) -> dict[str, bytes]:
    """Every file but the lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
