"""What a checkpoint must look like.  Its checksum shows damage; a file that somebody made up has a right one too."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import torch
from torch import Tensor

_STATE = {"round", "initial", "cloud", "sel", "all_change", "server"}
_OPTIONAL_STATE = {"loss_scale", "clock"}  # of runs in float16, of runs with simulated devices
_MAX_THREADS, _MAX_AT_ONCE = 4096, 1 << 20
_MAX_CONFIG = 1 << 20  # characters


class WrongFormat(Exception):
    """Says what is wrong with a checkpoint."""


def check_archive(file: IO[bytes]) -> None:
    """torch.save writes a zip archive that is not compressed: so it takes no more memory than its file has bytes."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, UnicodeDecodeError) as error:
        raise WrongFormat(f"it is not an archive that torch wrote ({error})") from None
    finally:
        size = file.seek(0, 2)
        file.seek(0)
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or sum(e.file_size for e in entries) > size:
        raise WrongFormat("it is compressed, which torch never does")


def check_content(content: Any, round: int) -> None:
    """Raises WrongFormat unless this is what a checkpoint of that round holds.  Further keys are allowed."""
    _require(isinstance(content, dict), "it holds no mapping")
    for key in ("state", "clients", "config", "threads"):
        _require(key in content, f"it lacks {key!r}")
    _check_state(content["state"], round)
    shards = content["clients"] if isinstance(content["clients"], list) else [content["clients"]]
    _require(len(shards) > 0, "it has no records of clients")
    for shard in shards:
        _check_shard(shard)
    _require(isinstance(content["config"], str) and len(content["config"]) <= _MAX_CONFIG, "'config' is no text")
    _require(_whole(content["threads"], 1, _MAX_THREADS), f"threads = {content['threads']!r:.60}")
    at_once = content.get("at_once", 1)  # 0.1.0 had none
    _require(_whole(at_once, 1, _MAX_AT_ONCE), f"at_once = {at_once!r:.60}")


def _check_state(state: Any, round: int) -> None:
    _require(
        isinstance(state, dict) and state.keys() - _OPTIONAL_STATE == _STATE,
        f"'state' is no mapping of {', '.join(sorted(_STATE))}",
    )
    _require(
        type(state["round"]) is int and state["round"] == round, f"it says that it is of round {state['round']!r:.60}"
    )
    initial = state["initial"]
    for name in ("initial", "cloud", "sel"):
        _require(_is_vector(state[name]) and state[name].is_floating_point(), f"'{name}' is no vector of numbers")
        same = state[name].shape == initial.shape and state[name].dtype == initial.dtype
        _require(same, f"'{name}' has another size or type than 'initial'")
    change = state["all_change"]
    whole = change is None or (_is_vector(change) and change.dtype == torch.int64 and change.shape == initial.shape)
    _require(whole, "'all_change' is no vector of whole numbers like 'initial'")
    _require(isinstance(state["server"], dict), "'server' is no mapping")
    for name, vector in state["server"].items():
        fits = isinstance(name, str) and _is_vector(vector) and vector.shape == initial.shape
        _require(fits and vector.dtype == torch.float64, f"the server's {name!r:.60} is no vector like 'initial'")
    if "loss_scale" in state:
        _check_loss_scale(state["loss_scale"])
    if "clock" in state:
        _check_clock(state["clock"])


def _check_clock(saved: Any) -> None:
    _require(isinstance(saved, dict) and saved.keys() == {"seconds", "files"}, "'clock' is no simulated clock")
    seconds, files = saved["seconds"], saved["files"]
    right = type(seconds) is float and math.isfinite(seconds) and seconds >= 0
    _require(right, f"the simulated clock is at {seconds!r:.60}")
    _require(isinstance(files, str) and len(files) <= 100, "the simulated clock has no checksum of files")


def _check_loss_scale(saved: Any) -> None:
    _require(isinstance(saved, dict) and saved.keys() == {"scale", "clean_rounds"}, "'loss_scale' is no loss scale")
    scale = saved["scale"]
    power_of_two = type(scale) is float and math.isfinite(scale) and scale > 0 and math.frexp(scale)[0] == 0.5
    _require(power_of_two, f"its loss scale is {scale!r:.60}, which is no power of 2")
    _require(_whole(saved["clean_rounds"], 0, 1 << 20), f"clean_rounds = {saved['clean_rounds']!r:.60}")


def _check_shard(shard: Any) -> None:
    _require(isinstance(shard, Mapping) and {"clients", "slots"} <= shard.keys(), "'clients' has no clients and slots")
    clients, slots = shard["clients"], shard["slots"]
    for name, numbers in (("clients", clients), ("slots", slots)):
        _require(_is_vector(numbers), f"'clients' has {name} that are no vector")
        if len(numbers):  # an empty one has torch's default type
            _require(numbers.dtype == torch.int64 and int(numbers.min()) >= 0, f"'clients' has {name} below 0")
            _require(len(numbers.unique()) == len(numbers), f"'clients' has some of its {name} twice")
    _require(len(clients) == len(slots), f"'clients' has {len(clients)} clients, but {len(slots)} slots")


def _is_vector(value: Any) -> bool:
    """An ordinary one.  Contiguous, so that it is no larger than what the file holds of it."""
    return (
        type(value) is Tensor
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and not value.requires_grad
        and value.dim() == 1
        and value.is_contiguous()
    )


def _whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise WrongFormat(what)
