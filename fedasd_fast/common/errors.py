"""The base of errors that a user can mend: their message is enough, the command line shows no traceback."""

from __future__ import annotations


class ExpectedError(Exception):
    """The message names what is wrong and the remedy."""

    exit_code = 2  # of the command
