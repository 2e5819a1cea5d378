"""Tensors in a file, in the safetensors format: an 8-byte length, a JSON header, then the bytes of the tensors.

Reading runs no code and trusts no number in the header.  https://huggingface.co/docs/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .files import write_atomically

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_METADATA = "__metadata__"


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """The file is as before or complete."""
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    parts, end = [], 0
    # Wide elements first, so that every tensor is aligned to its own.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        header[name] = {
            "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + data.nbytes]
        }  # fmt: skip
        parts.append(data)
        end += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write_atomically(path, b"".join([struct.pack("<Q", len(text)), text, *(part.data for part in parts)]))


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, on the CPU, and the metadata."""
    content = bytearray(path.read_bytes())
    try:
        (length,) = struct.unpack_from("<Q", content)
        if length > len(content) - 8:
            raise ValueError(f"its header has {length:,} bytes, the file {len(content):,}")
        header = json.loads(content[8 : 8 + length])
        metadata = header.pop(_METADATA, {})
        data = memoryview(content)[8 + length :]
        tensors = {name: _tensor(name, entry, data) for name, entry in header.items()}
        return tensors, {str(key): str(value) for key, value in metadata.items()}
    except (struct.error, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error


def _tensor(name: str, entry: dict[str, Any], data: memoryview) -> Tensor:
    dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    sizes = [begin, end, *shape]
    if not all(type(size) is int and 0 <= size < 2**63 for size in sizes) or not begin <= end <= len(data):
        raise ValueError(f"tensor {name!r} has impossible sizes {sizes}")
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError(f"tensor {name!r} of shape {shape} has {end - begin} bytes")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    # A copy: it does not keep the whole file in memory, and its elements are aligned.
    return torch.frombuffer(data[begin:end], dtype=torch.uint8).clone().view(dtype).view(shape)
