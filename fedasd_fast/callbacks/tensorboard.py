"""Callback that writes metrics for TensorBoard into the run directory: `tensorboard --logdir runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import Callback
from .events import Run
from .metrics import Metrics, numeric_metrics

if TYPE_CHECKING:
    from ..simulation.result import Result


class TensorBoard(Callback):
    """Writes the metrics of every round for TensorBoard, into `tensorboard` of the run directory."""

    def __init__(self) -> None:
        self.writer: Any = None
        _summary_writer()  # a missing package is noticed before the run, not in its first round

    def on_start(self, run: Run) -> None:
        self.folder = None if run.out is None else str(run.out / "tensorboard")

    def on_round(self, metrics: Metrics) -> None:
        if self.writer is None:  # a resumed run replaces what was written after its checkpoint
            self.writer = _summary_writer()(self.folder, purge_step=metrics["round"])
        for name, value in numeric_metrics(metrics).items():
            self.writer.add_scalar(name, value, metrics["round"])

    def on_end(self, result: Result) -> None:
        if self.writer is not None:
            self.writer.close()


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ModuleNotFoundError(
            "writing for TensorBoard needs the package tensorboard: pip install 'fedasd-fast[tensorboard]'"
        ) from None
    return SummaryWriter
