"""Callbacks that watch a run: progress, TensorBoard, Weights & Biases; one class per file."""

from .base import Callback
from .progress import Progress
from .tensorboard import TensorBoard
from .wandb import WandB

__all__ = ["Callback", "Progress", "TensorBoard", "WandB"]
