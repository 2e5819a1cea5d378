"""`python -m fedasd_fast`: the command `fedasd`."""

import sys

from .cli import main

sys.exit(main())
