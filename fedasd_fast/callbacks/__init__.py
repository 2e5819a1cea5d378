"""Callbacks that watch a run: progress, TensorBoard, Weights & Biases, MLflow; one class per file."""

from .base import Callback
from .events import ClientResult, Run
from .metrics import Metrics
from .mlflow import MLflow
from .progress import Progress
from .tensorboard import TensorBoard
from .wandb import WandB

__all__ = ["Callback", "ClientResult", "MLflow", "Metrics", "Progress", "Run", "TensorBoard", "WandB"]
