"""`python -m fedasd_fast.cli`, for environments where `fedasd` is not on the path."""

import sys

from .main import main

sys.exit(main())
