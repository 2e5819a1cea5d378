"""The command `fedasd`: one file a subcommand."""

from .main import main

__all__ = ["main"]
