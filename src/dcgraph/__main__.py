"""``python -m dcgraph`` is the command ``dcgraph``."""

import sys

from .experiments.cli import main

sys.exit(main())
