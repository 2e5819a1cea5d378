"""The command `fedasd`, one module per subcommand."""

from .main import main

__all__ = ["main"]
