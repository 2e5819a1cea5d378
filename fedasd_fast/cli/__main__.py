"""python -m fedasd_fast.cli, where the command itself is not on the path."""

import sys

from .main import main

sys.exit(main())
