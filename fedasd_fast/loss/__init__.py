"""The fused ASD loss: functions, module, teacher cache, and the compiled ops behind them."""

from . import extension

if extension.available:
    from . import ops

    ops.register()
