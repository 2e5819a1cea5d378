"""The compiled kernels: loading the extension, registering its ops with torch, and checking their arguments."""

from . import loader, ops

if loader.available:
    ops.register()
