"""The compiled kernels: loading them, their ops in torch, and the checks of their arguments."""

from . import loader, ops

if loader.available:
    ops.register()
