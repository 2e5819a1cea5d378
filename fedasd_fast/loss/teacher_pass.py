"""One forward pass of a frozen teacher over a client's samples: tensors, a Dataset or a DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from ..kernels.checks import check_integers, check_memory, check_tensor, require, wrong_type
from .row_numbers import NumberedDataset

Forward: TypeAlias = Callable[[nn.Module, Any], Any]  # model, batch -> logits, or an output that has them

_LABELS = ("labels", "label", "targets", "target")  # of a batch that is a dict


def over_tensors(
    model: nn.Module, inputs: Tensor | Mapping[str, Tensor], targets: Tensor, batch_size: int, forward: Forward | None
) -> Tensor:
    """Logits [N, C] of inputs [*targets.shape, ...], with the dimensions of the targets as one."""
    tensors = dict(inputs) if isinstance(inputs, Mapping) else {"": inputs}
    device = _device(model, next(iter(tensors.values())).device)
    batches = {name: x.flatten(0, targets.dim() - 1).split(batch_size) for name, x in tensors.items()}
    outputs = []
    with _eval_mode(model), torch.no_grad():
        for parts in zip(*batches.values(), strict=True):
            batch = dict(zip(batches, parts, strict=True)) if isinstance(inputs, Mapping) else parts[0]
            outputs.append(_logits((forward or _call)(model, _moved(batch, device)), len(parts[0])))
    return torch.cat(outputs)


def over_loader(
    model: nn.Module, source: Any, targets: Tensor | None, batch_size: int, forward: Forward | None
) -> tuple[Tensor, Tensor]:
    """Logits [N, C] and labels [N] on the model's device, row i being sample i of the dataset."""
    loader = source if isinstance(source, DataLoader) else DataLoader(_dataset(source), batch_size)
    numbered = isinstance(loader.dataset, NumberedDataset)
    _check_order(loader, numbered)
    device = _device(model, torch.device("cpu"))
    logits, labels, rows = [], [], []
    with _eval_mode(model), torch.no_grad():
        for given in loader:
            batch = _moved(given, device)
            samples, numbers = _without_rows(batch) if numbered else (batch, None)
            own = _labels_of(samples) if targets is None else None
            output = forward(model, batch) if forward else _call(model, _inputs_of(samples))
            logits.append(_logits(output, None if own is None else len(own)))
            if own is not None:
                labels.append(own)
            if numbers is not None:
                rows.append(numbers)
    length = len(loader.dataset)  # type: ignore[arg-type]
    require(length > 0, "inputs has no samples; pass a dataset with at least one")
    every = torch.cat(logits)
    order = torch.cat(rows).argsort() if numbered else torch.arange(len(every), device=device)
    complete = len(every) == length
    if numbered and complete:
        complete = torch.equal(torch.cat(rows)[order], torch.arange(length, device=device))
    require(
        complete,
        f"inputs is a DataLoader that gave {len(every)} rows of {length} samples, not each of them once (drop_last, or "
        "a sampler that leaves some out); pass its dataset",
    )
    if targets is None:
        return every[order], torch.cat(labels)[order]
    require(
        tuple(targets.shape) == (length,), f"targets has shape {tuple(targets.shape)}; expected ({length},), as inputs"
    )
    return every[order], targets.to(device)


def check_tensors(model: nn.Module, inputs: Tensor | Mapping[str, Tensor], targets: Tensor) -> None:
    """Before the forward pass, which may take long."""
    named = {f"inputs[{k!r}]": x for k, x in inputs.items()} if isinstance(inputs, Mapping) else {"inputs": inputs}
    require(len(named) > 0, "inputs is empty; expected at least one tensor")
    lead = tuple(targets.shape)
    for name, x in named.items():
        check_tensor(x, name)
        check_memory(x, name)
        require(
            tuple(x.shape[: len(lead)]) == lead,
            f"{name} has shape {tuple(x.shape)}; expected {[*lead, '...']}, one input for each of the targets",
        )
        parameter = next(model.parameters(), x)
        require(
            not parameter.is_meta or targets.is_meta,
            f"model is on {parameter.device} but targets is on {targets.device}; give the model its weights first",
        )
        require(
            not x.is_meta or parameter.is_meta,
            f"{name} is on {x.device} but model is on {parameter.device}; pass inputs with values",
        )


def _dataset(source: Any) -> Any:
    if isinstance(source, (list, tuple, str, bytes)) or not (
        hasattr(source, "__getitem__") and hasattr(source, "__len__") and type(source).__name__ != "ndarray"
    ):
        raise wrong_type(source, "inputs", "a torch.Tensor, a dict of tensors, a Dataset or a DataLoader")
    return source


def _check_order(loader: DataLoader[Any], numbered: bool) -> None:
    if isinstance(loader.dataset, IterableDataset):
        raise wrong_type(loader.dataset, "inputs", "a Dataset with a length: rows of an iterable one have no numbers")
    batches = loader.batch_sampler
    require(
        batches is not None, "inputs is a DataLoader with batch_size=None; give it a batch size, or pass its dataset"
    )
    in_order = type(batches) is BatchSampler and isinstance(batches.sampler, SequentialSampler)
    require(
        numbered or in_order,
        "inputs is a DataLoader that does not go through its dataset in order, so that which row is which is unknown; "
        "make it of with_rows(dataset), or pass the dataset itself",
    )


def _without_rows(batch: Any) -> tuple[Any, Tensor]:
    if isinstance(batch, Mapping):
        return {name: x for name, x in batch.items() if name != "rows"}, batch["rows"]
    return batch[:-1], batch[-1]


def _labels_of(batch: Any) -> Tensor:
    if isinstance(batch, Mapping):
        labels = next((batch[name] for name in _LABELS if name in batch), None)
    else:
        labels = batch[1] if isinstance(batch, (tuple, list)) and len(batch) > 1 else None
    if labels is None:
        kind = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
        raise ValueError(
            f"inputs gives batches ({kind}) without labels; expected (inputs, targets, ...) or a dict with one of "
            f"{', '.join(_LABELS)}: or pass targets"
        )
    check_integers(labels, "targets")
    return labels  # type: ignore[no-any-return]


def _inputs_of(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return {name: x for name, x in batch.items() if name not in _LABELS}
    return batch[0] if isinstance(batch, (tuple, list)) else batch


def _call(model: nn.Module, inputs: Any) -> Any:
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def _logits(output: Any, rows: int | None) -> Tensor:
    """Of a model, or of one whose output has them as `logits`, as those of Hugging Face do."""
    if isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or (rows is not None and len(logits) != rows):
        found = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(output).__name__
        what = "a batch" if rows is None else f"{rows} inputs"
        raise ValueError(
            f"the model returned {found} for {what}; expected logits [B, C], one row for each label: pass "
            "forward=lambda model, batch: ... that returns them"
        )
    return logits


def _moved(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _moved(x, device) for name, x in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [_moved(x, device) for x in batch]
    return batch


def _device(model: nn.Module, otherwise: torch.device) -> torch.device:
    return next((p.device for p in model.parameters()), otherwise)


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Each submodule gets its own mode back: some users keep parts of a training model in eval mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
