from ..cli.conftest import fedasd

__all__ = ["fedasd"]  # the command, also here
