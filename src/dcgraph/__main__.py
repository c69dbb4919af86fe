"""``python -m dcgraph`` is the command ``dcgraph``."""

import sys

from .cli import main

sys.exit(main())
