"""What half precision gains on this machine, measured with a run's own network."""

from __future__ import annotations

import torch

from ..common.randomness import Stream, torch_seeded
from .client.step_timing import StepTimes, time_steps
from .context import Context
from .system import half_precision
from .system.threads import threads


def half_precision_times(context: Context) -> StepTimes:
    """Of a local step on this CPU: in the precision of the run, in bfloat16 if that is float32."""
    config, data = context.experiment.config, context.experiment.data
    precision = "bfloat16" if config.precision == "float32" else config.precision
    batch = min(config.batch_size, int(data.sizes.max()))
    with threads(context.parallelism.threads), torch_seeded(config.seed, Stream.INIT):  # dropout draws
        return time_steps(context.trainer.model.module, data.blank(batch, torch.zeros(())), precision)


def slow_precision(context: Context) -> str | None:
    """A warning where the precision of the run is one that this machine has to emulate."""
    precision, device = context.experiment.config.precision, context.initial.device
    if precision == "float32":
        return None
    if device.type == "cuda":
        if precision == "float16" or torch.cuda.is_bf16_supported(including_emulation=False):
            return None
        return f"precision = bfloat16, but {torch.cuda.get_device_name(device)} emulates it; use precision = float16"
    if half_precision.has_instructions(precision):
        return None
    return (
        f"precision = {precision}, but this CPU has no instructions for it; a local step takes "
        f"{half_precision_times(context)}. precision = float32 needs no others"
    )
